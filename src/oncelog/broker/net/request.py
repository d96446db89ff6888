"""Defines a request as its handler sees it, and the results of handlers.

A handler is a function `handle(context, request)`. Its result determines when the later requests of
the connection start (D13):

- the response itself (the API's class, or the reply's buffers without the 4-byte size where the
  handler encodes it): it is sent in order;
- a `Pending`: the response comes later; `Pending.holds_back` says whether later requests wait too;
- a coroutine, only where the handler truly awaits something: later requests wait for it; it may end
  with a response or a `Pending`;
- None: no reply is sent at all (Produce with acks=0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
from oncelog.protocol.error_versions import replacements
from oncelog.protocol.headers import RequestHeader

__all__ = [
    "TIME_BUCKETS_COUNT",
    "Api",
    "Buffers",
    "Handler",
    "Peer",
    "Request",
    "RequestMeter",
]

Buffers = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
"""A reply's frame without its 4-byte size: one buffer, or several that are written one after the
other.
"""


TIME_BUCKETS_COUNT = 64
"""A bucket per power of two of microseconds: the bit length of any time that can be measured."""


Body = TypeVar("Body")


class Peer(Protocol):
    """The part of the connection's interface that handlers use."""

    listener: str
    """The name of the listener that accepted it."""
    principal: str
    """The user that the client is."""
    peer_host: str
    client_software: str

    def fail(self, reason: str) -> None:
        """Close because of what the peer did, with one log line."""

    def mute(self, duration_ms: float) -> None:
        """Start no request for so long: the client is over a quota."""


class Request(Generic[Body]):
    """One request as its handler sees it.

    `body` is the API's request (`oncelog.protocol.messages`); for an API that parses its own bytes
    it is a writable `memoryview` of the frame from the body on (no copy: the frame belongs to this
    request alone). `version` is the request's version, `client_id` the client's name for itself,
    empty when it sent none.

    Until its reply is sent, the request has its place in the connection's order: it waits for
    `pending`, then `reply` has the buffers. `begun_s` is the time of its arrival, if requests are
    timed; a handler that encodes its reply itself passes its errors through `RequestMeter.told`.
    """

    __slots__ = (
        "api",
        "begun_s",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "meter",
        "pending",
        "reply",
        "version",
    )

    def __init__(
        self, meter: RequestMeter, header: RequestHeader, body: Body, connection: Peer
    ) -> None:
        self.api = meter.api.key
        self.meter = meter
        self.begun_s = 0.0
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id or ""
        self.body = body
        self.connection = connection
        self.pending: Pending[object] | None = None
        self.reply: Buffers | None = None


Handler = Callable[[Any, Request[Any]], object]
"""``handle(context, request)``; see the module for its results."""


class Api(NamedTuple):
    """One API of this broker. With `reads_bytes` its handler parses the request's body itself."""

    key: ApiKey
    handle: Handler
    reads_bytes: bool


class RequestMeter:
    """Counts of the requests of one version of an API, as plain integers.

    Counts are always updated; times and sizes only where the dispatcher has a stopwatch.
    """

    __slots__ = (
        "api",
        "buckets",
        "byte_count",
        "count",
        "errors",
        "throttle_ms",
        "throttled_count",
        "time_us",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.count = 0
        self.errors: Counter[int] = Counter()
        """The count of each error code in replies: one may have many, for its parts."""
        self.byte_count = 0
        self.throttled_count = 0
        """The count of requests whose clients were over a quota."""
        self.throttle_ms = 0
        """For how long they were told to wait, in all."""
        self.time_us = 0
        self.buckets = [0] * TIME_BUCKETS_COUNT
        """The count of requests by duration: the bit length of its microseconds."""

    def told(self, error: ErrorCode, count: int = 1) -> ErrorCode:
        """Count an error of replies that the handler encodes; return what this version is told."""
        error = replacements(self.api.key, self.version).get(error, error)
        self.errors[error] += count
        return error

    def took(self, elapsed_s: float) -> None:
        """Count the time from a request's arrival to its reply."""
        elapsed_us = int(elapsed_s * 1_000_000)
        self.time_us += elapsed_us
        self.buckets[elapsed_us.bit_length()] += 1

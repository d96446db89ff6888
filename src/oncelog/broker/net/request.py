"""One request, from its frame to its reply: what its handler sees, and its place in the order.

`handle(context, request)` is what a handler is. Its answer decides how the connection treats the
requests behind it (D13):

- the response itself (the API's class, or the reply's buffers without the 4-byte size where the
  handler encodes it): it leaves in its turn;
- a `Pending`: the response comes later; `Pending.holds_back` says whether later requests wait too;
- a coroutine, only where the handler truly awaits something: later requests wait for it; it may end
  with a response or a `Pending`;
- None: no reply is sent at all (Produce with acks=0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
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
    """As much of the connection as a handler knows.

    `id` rises with each connection that the broker accepts.
    """

    id: int
    peer_host: str
    client_software: str

    def fail(self, reason: str) -> None:
        """Close because of what the peer did, with one log line."""


class Request(Generic[Body]):
    """One request as its handler sees it.

    `body` is the API's request (`oncelog.protocol.messages`); for an API that reads
    its own bytes it is a writable `memoryview` of the frame from the body on (no copy: the frame
    belongs to this request alone). `version` is the one that the client asked in, `client_id` its
    own name for itself, empty when it gave none.

    While the reply cannot leave, the request keeps its place in the connection's order: `pending`
    is what it waits for, `reply` the buffers once they are there. `begun_s` is when it arrived, if
    that is measured; a handler that encodes its reply itself counts in `meter` the errors in it.
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
        self.pending: Pending | None = None
        self.reply: Buffers | None = None


Handler = Callable[[Any, Request[Any]], Any]
"""``handle(context, request)``; see the module for what it returns."""


class Api(NamedTuple):
    """One API as this broker serves it. With `reads_bytes` its handler parses the body itself."""

    key: ApiKey
    handle: Handler
    reads_bytes: bool


class RequestMeter:
    """What is counted of the requests of one version of an API: plain integers.

    Counts are always kept; times and sizes only where the dispatcher has a stopwatch.
    """

    __slots__ = (
        "api",
        "buckets",
        "byte_count",
        "count",
        "errors",
        "time_us",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.count = 0
        self.errors: Counter[int] = Counter()
        """How often each error code was answered."""
        self.byte_count = 0
        self.time_us = 0
        self.buckets = [0] * TIME_BUCKETS_COUNT
        """How many requests took so many microseconds, by the number's bit length."""

    def took(self, elapsed_s: float) -> None:
        """Note the time from a request's arrival to its reply."""
        elapsed_us = int(elapsed_s * 1_000_000)
        self.time_us += elapsed_us
        self.buckets[elapsed_us.bit_length()] += 1

"""One topic whose logs are known to the byte, and requests about it on one connection.

A request is sent at once and judged when its answer is there, so several can be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.core.errors import ProtocolError
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.wire import Buffer
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import ExactAnswer, as_read
from oncelog.simulation.peers.exact_logs import KnownLog, LogMark
from oncelog.simulation.peers.exact_metadata import TopicsSeen
from oncelog.simulation.peers.wire import LostError, PeerWire, look

__all__ = ["MESSAGE_BYTES_MAX", "LogAsker", "SentRequest"]

MESSAGE_BYTES_MAX = 3_000
"""`max.message.bytes` of the topic."""


class SentRequest(NamedTuple):
    """A request under way, and what judges the body of its answer."""

    connection: Connection
    future: asyncio.Future[memoryview]
    judge: Callable[[memoryview], None]
    changes: bool
    """Whether the log is in doubt without the answer."""


class LogAsker(TopicsSeen):
    """What all requests about the present topic share."""

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        super().__init__(context, wire)
        self.topic = ""
        self.topic_id: UUID | None = None
        self.logs: list[KnownLog] = []
        self.epochs: list[int] = []
        """The leader epoch of each partition on the present connection."""
        self.is_in_doubt = False
        self.refuses_old_records = False
        self.seen_on: Connection | None = None

    @property
    def total_batches(self) -> int:
        """Return the number of all batches."""
        return sum(len(log.batches) for log in self.logs)

    def marks(self) -> list[LogMark]:
        """Return what is certain of each log now, for the answer of a request that is sent now."""
        return [log.mark for log in self.logs]

    async def carry_out(self, sent: SentRequest) -> None:
        """Wait for an answer and judge it. Raises `LostError`."""
        try:
            body = await self.wire.wait(sent.connection, sent.future, self.wire.timeout_ms)
            sent.judge(body)
        except LostError:
            self.is_in_doubt = self.is_in_doubt or sent.changes
            raise
        except ProtocolError as error:
            raise self.wire.broken(f"an answer cannot be read: {error}") from error

    def submit(
        self,
        connection: Connection,
        api: ApiKey,
        version: int,
        buffers: Sequence[Buffer],
        judge: Callable[[memoryview], None],
        *,
        changes: bool = False,
    ) -> SentRequest:
        """Send an encoded request."""
        future = connection.submit(api, version, buffers)
        future.add_done_callback(look)
        return SentRequest(connection, future, judge, changes)

    def send(
        self,
        connection: Connection,
        api: ApiKey,
        request: RequestFor[ResponseT],
        judge: Callable[[ExactAnswer[ResponseT]], None],
        *,
        changes: bool = False,
    ) -> SentRequest:
        """Send a request in a drawn version; `judge` gets the whole answer."""
        version = self.drawn_version(connection, api, 0)
        seen = as_read(api, version, request)

        def parsed(body: memoryview) -> None:
            response: Any = parse_response(api, version, body, 0)
            judge(ExactAnswer(api, version, seen, response, connection))

        future = connection.send(api, version, request)
        future.add_done_callback(look)
        return SentRequest(connection, future, parsed, changes)

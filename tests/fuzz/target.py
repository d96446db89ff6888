"""A whole broker in this process, behind connections that are not sockets.

Everything from `ServerConnection` down is what ships; the transport, the listening network, time
and threads are not. One frame at a time is given to a connection as a peer's bytes would come, and
what the broker does with it is told as an `Outcome`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from enum import Enum
from typing import Any, NamedTuple, cast

from oncelog.broker.broker import Broker
from oncelog.broker.net.connection import ServerConnection
from oncelog.broker.net.dispatch import Dispatcher
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.metadata.memory import MemoryStore
from tests.fuzz.peer import Peer
from tests.fuzz.virtual import InlineDisk, VirtualClock, VirtualLoop

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""`socket.request.max.bytes` of fuzzed brokers: small, so that the memory bound is a sharp one."""

HOME_TOPIC = "home"
"""Where the healthy client lives; no fuzzed request names it."""

SETTLE_TURNS_COUNT = 8
WAIT_STEPS_S = (0.001, 0.05, 0.15, 0.5, 1.0, 4.0, 10.0, 60.0)
"""Virtual time given to an answer before it is called a wait."""

_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "socket.request.max.bytes": str(FRAME_BYTES_MAX),
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.segment.bytes": str(1024 * 1024),
    "log.index.size.max.bytes": "4096",
}
TOPIC_CONFIGS: dict[str, dict[str, str]] = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "packed": {"compression.type": "zstd", "compression.zstd.level": "1"},
    "dated": {"message.timestamp.before.max.ms": "1000"},
    "undated": {"message.timestamp.after.max.ms": str(2**63 - 1)},
    HOME_TOPIC: {},
}


class Kind(Enum):
    """What became of a frame."""

    ANSWERED = "answered"
    CLOSED = "connection closed"
    SILENT = "no answer asked for"
    WAITING = "waits as the request asks"
    HELD = "more bytes awaited"


class Outcome(NamedTuple):
    """What became of a frame, and the bytes that came back for it."""

    kind: Kind
    answer: bytes


class Transport:
    """The broker's view of a peer that reads everything at once."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4242) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, buffers: list[bytes]) -> None:
        for buffer in buffers:
            self.written += buffer

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close


class Link:
    """One connection to the broker."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher) -> None:
        self.transport = Transport()
        self.connection = ServerConnection(
            broker.server.listeners[0], dispatcher, broker.server.read_buffer
        )
        self.connection.connection_made(cast(Any, self.transport))

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def give(self, data: bytes, piece_bytes: int = 1 << 18) -> None:
        """As if these bytes had come from the peer."""
        position = 0
        while position < len(data) and not self.connection.closed:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data) - position, piece_bytes)
            buffer[:size] = data[position : position + size]
            # A buffer with views cannot grow.
            del buffer
            self.connection.buffer_updated(size)
            position += size

    def take(self) -> bytes:
        """What was written since the last call."""
        written = bytes(self.transport.written)
        self.transport.written.clear()
        return written

    def hang_up(self) -> None:
        """The peer goes."""
        if self.transport is not None:
            self.connection.connection_lost(None)


class Errors(logging.Handler):
    """Keeps what the broker logs as an error, and whatever carries a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []
        self._formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(self._formatter.format(record))

    def take(self) -> list[str]:
        found, self.found = self.found, []
        return found


class Target:
    """A broker that lives from `start` to `stop`, in the running `VirtualLoop`."""

    def __init__(self, errors: Errors) -> None:
        self._errors = errors
        self._folder = tempfile.mkdtemp(prefix="oncelog-fuzz-")
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        self._loop = loop
        self.broker = Broker(
            BrokerConfig(_SETTINGS | {"log.dirs": self._folder}),
            clock=VirtualClock(loop),
            disk=InlineDisk(),
            network=cast(Any, _NoNetwork()),
            store=MemoryStore(),
        )
        loop.set_exception_handler(self._loop_failed)

    async def start(self) -> None:
        await self.broker.start()
        self._dispatcher = self.broker.dispatcher
        await self.restore_topics()

    async def restore_topics(self) -> None:
        """Make the topics that a DeleteTopics took."""
        missing = [name for name in TOPIC_CONFIGS if self.broker.image.topic(name) is None]
        if missing:
            topics = [TopicToCreate(name, 2, 1, {}, dict(TOPIC_CONFIGS[name])) for name in missing]
            await self.broker.controller.create_topics(topics, validate_only=False)

    def connect(self) -> Link:
        return Link(self.broker, self._dispatcher)

    def peer(self, link: Link) -> Peer:
        """A healthy client on this connection."""
        return Peer(link, self.settle)

    async def send(self, link: Link, data: bytes, piece_bytes: int = 1 << 18) -> Outcome:
        """Give one frame, size and all, and wait until it is clear what becomes of it."""
        link.give(data, piece_bytes)
        return await self.settle(link)

    async def settle(self, link: Link) -> Outcome:
        """Let the loop run until the connection has nothing under way, or time does not help."""
        connection = link.connection
        if connection._waiting or connection._queue or connection._task is not None:
            for _ in range(SETTLE_TURNS_COUNT):
                await asyncio.sleep(0)
                if connection.closed or not connection._waiting:
                    break
            else:
                for pause_s in WAIT_STEPS_S:
                    await asyncio.sleep(pause_s)
                    if connection.closed or not connection._waiting:
                        break
        if connection._flush_scheduled:
            await asyncio.sleep(0)
        answer = link.take()
        if connection.closed:
            return Outcome(Kind.CLOSED, answer)
        if connection._waiting:
            return Outcome(Kind.WAITING, answer)
        if connection._frame is not None or connection._size_prefix:
            return Outcome(Kind.HELD, answer)
        return Outcome(Kind.ANSWERED if answer else Kind.SILENT, answer)

    def hang_up(self, link: Link) -> None:
        link.hang_up()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def leftovers(self) -> list[str]:
        """What is still held although every peer has gone; call it after some time has passed."""
        broker = self.broker
        found = []
        if broker.server.connections:
            found.append(f"{len(broker.server.connections)} connections")
        fetches = sum(len(partition.fetches) for partition in broker.partitions)
        if fetches:
            found.append(f"{fetches} delayed fetches")
        for name, runtime in (("group", broker.groups), ("transaction", broker.transactions)):
            if runtime.parked_count:
                found.append(f"{runtime.parked_count} parked {name} requests")
        return found

    def stopped_because(self) -> str | None:
        """Why the broker gave up, if it did (a broken invariant, a failed disk)."""
        reason = self.broker.stopped_because
        return None if reason is None else repr(reason)

    async def stop(self) -> None:
        await self.broker.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _loop_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.found.append(
            f"event loop: {context.get('message')} {context.get('exception')!r}"
        )


class _NoNetwork:
    async def listen(self, _host: str, _port: int, _factory: Any, *, accepts: bool = True) -> Any:
        return _NoListener()


class _NoListener:
    addresses = (("127.0.0.1", 9092),)

    async def accept(self) -> None:
        pass

    async def close(self) -> None:
        pass

"""A real broker and scripted clients on one virtual loop, over links in memory that can break.

It is what the simulation is, in small: enough for a role to show what it does, in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.broker.broker import Broker
from oncelog.controller.topics import NewTopic
from oncelog.core.config import BrokerConfig
from oncelog.metadata.memory import MemoryStore
from oncelog.runtime.network import Listener, ProtocolFactory
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Acked, Event, History, Polled, Progress, Value
from tests.fuzz.virtual import InlineDisk, VirtualClock, VirtualLoop

ADDRESS = ("10.0.0.1", 9092)
SETTINGS = {
    "listeners": "PLAINTEXT://10.0.0.1:9092",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.index.size.max.bytes": "4096",
    "auto.create.topics.enable": "false",
}


class _End(asyncio.Transport):
    """One end of a link. What is written reaches the other end a little later, in order."""

    def __init__(self, network: LinkNetwork) -> None:
        super().__init__({"peername": ("10.0.0.9", 1)})
        self.network = network
        self.protocol: Any = None
        self.other: _End
        self.closed = False
        self._arrives_s = 0.0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._later(self.other._receive, bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _later(self, callback: Callable[..., None], *args: object) -> None:
        loop = asyncio.get_running_loop()
        # Timers of one moment have no order.
        self._arrives_s = max(self._arrives_s + 1e-6, loop.time() + self.network.delay_s())
        loop.call_at(self._arrives_s, callback, *args)

    def _receive(self, data: bytes) -> None:
        if self.closed:
            return
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        while data and not self.closed:
            buffer = memoryview(self.protocol.get_buffer(-1))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            del buffer
            data = data[size:]
            self.protocol.buffer_updated(size)

    def abort(self) -> None:
        if self.closed:
            return
        self.closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
        self._later(self.other.abort)

    close = abort

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Listening:
    addresses = (ADDRESS,)

    def __init__(self, network: LinkNetwork) -> None:
        self._network = network

    async def close(self) -> None:
        self._network.factory = None


class LinkNetwork:
    """Links with a delay. `cut_chance` breaks a link at a write, before or after it arrives."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.factory: ProtocolFactory | None = None
        self.ends: list[_End] = []

    def delay_s(self) -> float:
        return self.rng.uniform(0.0002, 0.003)

    def cut_some(self, chance: float) -> None:
        """Break some of the links that are open."""
        self.ends = [end for end in self.ends if not end.closed]
        for end in self.ends:
            if self.rng.random() < chance:
                end.abort()

    async def listen(self, host: str, port: int, protocol_factory: ProtocolFactory) -> Listener:
        self.factory = protocol_factory
        return _Listening(self)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        await asyncio.sleep(self.delay_s())
        if self.factory is None:
            raise ConnectionRefusedError("nobody listens")
        ours, theirs = _End(self), _End(self)
        ours.other, theirs.other = theirs, ours
        ours.protocol, theirs.protocol = protocol_factory(), self.factory()
        theirs.protocol.connection_made(theirs)
        ours.protocol.connection_made(ours)
        self.ends.append(ours)


class World:
    """A broker, its clients and what they saw."""

    def __init__(self, folder: Path, seed: int, settings: Mapping[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, VirtualLoop)
        self.seed = seed
        self.history = History()
        self.network = LinkNetwork(random.Random(f"{seed}:network"))
        self.clock = VirtualClock(self.loop)
        self.stop = False
        self.store = MemoryStore()
        self.config = BrokerConfig(SETTINGS | {"log.dirs": str(folder)} | dict(settings))
        self.broker = self._make()

    def _make(self) -> Broker:
        return Broker(
            self.config,
            clock=self.clock,
            disk=InlineDisk(),
            network=self.network,
            store=self.store,
        )

    async def restart(self) -> None:
        """Stop the broker and start it again on what it left."""
        await self.broker.stop()
        self.broker = self._make()
        await self.broker.start()

    async def create(
        self, name: str, partitions: int = 2, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, {}, dict(config or {}))
        await self.broker.controller.create_topics([topic], validate_only=False)

    async def delete(self, name: str) -> None:
        topic = self.broker.image.topic(name)
        assert topic is not None
        await self.broker.controller.delete_topic(topic.topic_id)

    def context(self, name: str, **parameters: Any) -> ClientContext:
        return ClientContext(
            name=name,
            bootstrap=ADDRESS,
            network=self.network,
            clock=self.clock,
            rng=random.Random(f"{self.seed}:{name}"),
            history=self.history,
            now_s=self.loop.time,
            stopping=lambda: self.stop,
            parameters={"think_ms": 60, **parameters},
        )

    async def run(
        self,
        clients: Sequence[Awaitable[None]],
        seconds: float = 5,
        trouble: Callable[[], Awaitable[None] | None] | None = None,
    ) -> None:
        """Let clients work, with `trouble` every half second, and then settle."""
        tasks = [asyncio.ensure_future(client) for client in clients]
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            await asyncio.sleep(0.5)
            if trouble is not None and (awaited := trouble()) is not None:
                await awaited
        self.stop = True
        async with asyncio.timeout(120):
            for task in tasks:
                await task

    # --- what they saw ----------------------------------------------------------------

    def events(self, kind: type[Any]) -> list[Any]:
        return list(self.history.of(kind))

    def states(self) -> list[str]:
        return [event.state for event in self.history.of(Progress)]

    def acked(self) -> dict[Value, int]:
        return {event.value: event.offset for event in self.history.of(Acked)}

    def read(self, committed: bool = True) -> list[Value]:
        """Every value that some reader was given, with repeats."""
        return [
            value
            for event in self.history.of(Polled)
            if event.committed is committed
            for _offset, value in event.records
        ]


@asynccontextmanager
async def world(
    folder: Path, seed: int = 1, settings: Mapping[str, str] | None = None
) -> AsyncIterator[World]:
    """A started broker, which is stopped at the end."""
    made = World(folder, seed, settings or {})
    await made.broker.start()
    try:
        yield made
    finally:
        await made.broker.stop()


def play(story: Awaitable[None]) -> None:
    """Run a story on virtual time."""
    loop = VirtualLoop()

    async def told() -> None:
        await story

    try:
        loop.run_until_complete(told())
    finally:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def stuck(events: Iterable[Event]) -> list[str]:
    return [e.state for e in events if isinstance(e, Progress) and e.state.startswith("stuck")]

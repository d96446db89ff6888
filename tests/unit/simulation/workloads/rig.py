"""A whole broker and its clients in one virtual loop, on a network in memory that can be cut.

A stand-in for the simulation's own core, small enough to test one workload against.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from oncelog.broker.broker import Broker
from oncelog.client import Admin, NewTopic
from oncelog.core.config import BrokerConfig
from oncelog.metadata.memory import MemoryStore
from oncelog.runtime.network import Listener, ProtocolFactory
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import History, Progress
from tests.fuzz.virtual import InlineDisk, VirtualClock, VirtualLoop

T = TypeVar("T")

HOST, PORT = "10.0.0.1", 9092
LATENCY_S = 0.001
TRANSACTION_TIMEOUT_S = 12.0
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class _End(asyncio.Transport):
    """One end of a connection; what is written arrives at the other end a moment later."""

    def __init__(self, protocol: asyncio.BaseProtocol, closed: Callable[[_End], None]) -> None:
        super().__init__()
        self.protocol = protocol
        self.other: _End | None = None
        self.gone = False
        self._arriving: deque[bytes] = deque()
        self._tell = closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (HOST, 4242) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.gone and self.other is not None:
            # asyncio does not keep the order of timers that are due at one moment.
            self.other._arriving.append(bytes(data))
            asyncio.get_running_loop().call_later(LATENCY_S, self.other._take)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _take(self) -> None:
        protocol = self.protocol
        data = self._arriving.popleft()
        if self.gone:
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data and not self.gone:
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                del buffer
                protocol.buffer_updated(size)
                data = data[size:]
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    def lose(self) -> None:
        if not self.gone:
            self.gone = True
            self._tell(self)
            self.protocol.connection_lost(None)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(LATENCY_S, self.lose)
        if self.other is not None:
            loop.call_later(LATENCY_S, self.other.lose)

    abort = close


class PairNetwork:
    """Connects ends in this process. `cut` breaks connections; what is under way is lost."""

    def __init__(self) -> None:
        self.ends: list[_End] = []
        self._listening: dict[tuple[str, int], ProtocolFactory] = {}

    async def listen(self, host: str, port: int, protocol_factory: ProtocolFactory) -> Listener:
        self._listening[(host, port)] = protocol_factory
        return _Listening(self._listening, (host, port))

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        await asyncio.sleep(LATENCY_S)
        accept = self._listening.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(f"{host}:{port} refused")
        ours = _End(protocol_factory(), self.ends.remove)
        theirs = _End(accept(), lambda _end: None)
        ours.other, theirs.other = theirs, ours
        self.ends.append(ours)
        theirs.protocol.connection_made(theirs)
        ours.protocol.connection_made(ours)

    def cut(self, rng: random.Random, share: float) -> None:
        for end in [end for end in self.ends if rng.random() < share]:
            if end.other is not None:
                end.other.lose()
            end.lose()


class _Listening:
    def __init__(
        self, listening: dict[tuple[str, int], ProtocolFactory], address: tuple[str, int]
    ) -> None:
        self._listening = listening
        self.addresses = (address,)

    async def close(self) -> None:
        self._listening.pop(self.addresses[0], None)


class Rig:
    """A broker with topics, and what its clients are given."""

    def __init__(self, folder: Path, settings: Mapping[str, str], seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._config = BrokerConfig(SETTINGS | {"log.dirs": str(folder)} | dict(settings))
        self._store = MemoryStore()
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = VirtualClock(loop)
        self.network = PairNetwork()
        self.history = History()
        self.stopping = False
        self.reading_ends = False
        self.broker = self._new_broker()

    def _new_broker(self) -> Broker:
        return Broker(
            self._config,
            clock=self.clock,
            disk=InlineDisk(),
            network=self.network,
            store=self._store,
        )

    async def restart(self, down_s: float) -> None:
        await self.broker.stop()
        await asyncio.sleep(down_s)
        self.broker = self._new_broker()
        await self.broker.start()

    async def create(self, **topics: int) -> None:
        async with Admin(f"{HOST}:{PORT}", **self.options("setup")) as admin:
            await admin.create_topics([NewTopic(name, count) for name, count in topics.items()])

    def options(self, name: str) -> dict[str, Any]:
        rng = random.Random(f"{self.seed}:{name}")
        return {"network": self.network, "clock": self.clock, "rng": rng}

    def context(self, name: str, **parameters: object) -> ClientContext:
        """What a writer is given."""
        return ClientContext(
            name=name,
            bootstrap=(HOST, PORT),
            network=self.network,
            clock=self.clock,
            rng=random.Random(f"{self.seed}:{name}"),
            history=self.history,
            now_s=self._loop.time,
            stopping=lambda: self.stopping,
            parameters=parameters,
        )

    def reader(self, name: str, **parameters: object) -> ClientContext:
        """What a reader is given, which settles when the writers have."""
        context = self.context(name, **parameters)
        return replace(context, stopping=lambda: self.reading_ends)

    async def run(
        self,
        seconds: float,
        *writers: Coroutine[Any, Any, None],
        readers: Iterable[Coroutine[Any, Any, None]] = (),
        cuts: float = 0.0,
    ) -> None:
        """Run clients for some seconds; each tenth of a second `cuts` of the connections break.

        Then the writers settle, the transactions that they left open time out, and the readers
        read to the end.
        """
        writing = [asyncio.ensure_future(client) for client in writers]
        reading = [asyncio.ensure_future(client) for client in readers]
        begun_s = self._loop.time()
        while self._loop.time() < begun_s + seconds:
            await asyncio.sleep(0.1)
            if cuts:
                self.network.cut(self.rng, cuts)
        self.stopping = True
        await asyncio.gather(*writing)
        await asyncio.sleep(TRANSACTION_TIMEOUT_S)
        self.reading_ends = True
        await asyncio.gather(*reading)

    def states(self) -> dict[str, str]:
        """How each client ended."""
        return {event.who: event.state for event in self.history.of(Progress)}


def in_virtual_time(
    folder: Path,
    story: Callable[[Rig], Awaitable[T]],
    settings: Mapping[str, str] | None = None,
    seed: int = 1,
) -> T:
    """Start a broker, run `story` with it in a loop of virtual time, stop it."""

    async def live() -> T:
        rig = Rig(folder, settings or {}, seed)
        await rig.broker.start()
        try:
            return await story(rig)
        finally:
            await rig.broker.stop()

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(live())
    finally:
        loop.close()

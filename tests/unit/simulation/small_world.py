"""A real broker and clients on one virtual loop, over links in memory that can break.

It is what the simulation is, in small: enough for one client to show what it does, in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.metadata.memory import MemoryStore
from oncelog.runtime.network import Listener, ProtocolFactory
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import History
from tests.fuzz.virtual import InlineDisk, VirtualClock, VirtualLoop

HOST, PORT = "10.0.0.1", 9092
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
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
    addresses = ((HOST, PORT),)
    descriptors: tuple[int, ...] = ()

    def __init__(self, network: LinkNetwork, factory: ProtocolFactory) -> None:
        self._network = network
        self._factory = factory

    async def accept(self) -> None:
        self._network.factory = self._factory

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

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        listening = _Listening(self, protocol_factory)
        if accepts:
            await listening.accept()
        return listening

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


class SmallWorld:
    """A broker, the links to it, and what its clients are given and saw."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        settings: Mapping[str, str],
        disk: InlineDisk | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.seed = seed
        self.history = History()
        self.network = LinkNetwork(random.Random(f"{seed}:network"))
        self.clock = VirtualClock(loop)
        self.stopping = False
        self._disk = disk or InlineDisk()
        self._store = MemoryStore()
        self.settings = SETTINGS | {"log.dirs": str(folder)} | dict(settings)
        self._config = BrokerConfig(self.settings)
        self.broker = self._new_broker()

    def _new_broker(self) -> Broker:
        return Broker(
            self._config,
            clock=self.clock,
            disk=self._disk,
            network=self.network,
            store=self._store,
        )

    async def restart(self, down_s: float = 0.0) -> None:
        """Stop the broker and start it again on what it left."""
        await self.broker.stop()
        await asyncio.sleep(down_s)
        self.broker = self._new_broker()
        await self.broker.start()

    def context(self, name: str, **parameters: object) -> ClientContext:
        """What a client is given."""
        return ClientContext(
            name=name,
            bootstrap=(HOST, PORT),
            network=self.network,
            clock=self.clock,
            rng=random.Random(f"{self.seed}:{name}"),
            history=self.history,
            now_s=self.loop.time,
            stopping=lambda: self.stopping,
            parameters=parameters,
            settings=self.settings,
        )

"""Two or more simulated processes on one network, and protocols that record what happens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from oncelog.runtime.network import Listener, Network
from oncelog.simulation.network import SimulatedNetwork
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.trace import Trace
from oncelog.simulation.transport import SimulatedTransport

T = TypeVar("T")

PORT = 9092


def for_each_seed(test: Callable[[int], None]) -> Callable[[], None]:
    """Run a test with 20 seeds, as one test; a failure names its seed."""

    def run_all() -> None:
        for seed in range(20):
            try:
                test(seed)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise

    run_all.__name__ = test.__name__
    run_all.__doc__ = test.__doc__
    return run_all


class Recorder(asyncio.Protocol):
    """Keeps every call of the transport. `on_data` may act inside one."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world
        self.events: list[str] = []
        self.data = bytearray()
        self.errors: list[Exception | None] = []
        self.writable = True
        self.keep_open = False
        self.on_data: Callable[[], None] = lambda: None

    @property
    def transport(self) -> SimulatedTransport:
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(SimulatedTransport, transport)
        self.loop = asyncio.get_running_loop()
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert asyncio.get_running_loop() is self.loop
        assert isinstance(data, bytes)
        self.data += data
        self.events.append("data")
        self.on_data()

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.writable = False
        self.events.append("pause")

    def resume_writing(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.writable = True
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.errors.append(exc)
        self.events.append("lost")

    @property
    def is_lost(self) -> bool:
        return bool(self.errors)


class World:
    """A scheduler, a network, and processes by name."""

    def __init__(self, seed: int = 0) -> None:
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now_s, keep=True)
        self.network = SimulatedNetwork(self.scheduler, random.Random(seed), self.trace)
        self.failures: list[str] = []
        self.networks: dict[str, Network] = {}
        self.listeners: dict[str, Listener] = {}
        self._host_count = 0

    def process(self, name: str, host: str = "") -> Process:
        self._host_count += 1
        process = Process(
            self.scheduler,
            name,
            host or f"10.0.0.{self._host_count}",
            random.Random(name),
            on_error=lambda process, text, error: self.failures.append(f"{process}: {error!r}"),
        )
        self.networks[name] = self.network.of(process)
        return process

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_s + seconds)

    def call(self, process: Process, callback: Callable[..., object], *args: object) -> None:
        """Call something inside the process, now."""
        self.scheduler.call_after(0.0, process, callback, *args)
        self.run(0.0)

    def ask(self, process: Process, work: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
        """Run a coroutine in the process; its result or exception."""
        outcome: list[T | BaseException] = []

        async def run() -> None:
            try:
                outcome.append(await work())
            except (OSError, asyncio.CancelledError) as error:
                outcome.append(error)
            self.scheduler.stop()

        process.spawn(run())
        self.run(seconds)
        (result,) = outcome
        if isinstance(result, BaseException):
            raise result
        return result

    def listen(self, process: Process, port: int = PORT) -> list[Recorder]:
        """Listen; returns the list of the protocols of accepted connections."""
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(Recorder(self))
            return accepted[-1]

        network = self.networks[process.name]
        self.listeners[process.name] = self.ask(
            process, lambda: network.listen(process.host, port, accept)
        )
        return accepted

    def connect(self, process: Process, server: Process, port: int = PORT) -> Recorder:
        protocol = Recorder(self)
        network = self.networks[process.name]
        self.ask(process, lambda: network.connect(server.host, port, lambda: protocol))
        return protocol


class Pair:
    """A client connected to a server."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.network = self.world.network
        self.client_process = self.world.process("client")
        self.server_process = self.world.process("server")
        accepted = self.world.listen(self.server_process)
        self.client = self.world.connect(self.client_process, self.server_process)
        self.world.run(0.1)
        (self.server,) = accepted

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def process_of(self, recorder: Recorder) -> Process:
        return self.client_process if recorder is self.client else self.server_process

    def write(self, recorder: Recorder, data: bytes) -> None:
        self.world.call(self.process_of(recorder), recorder.transport.write, data)

    def do(self, recorder: Recorder, name: str) -> None:
        """Call a method of the transport in its process."""
        self.world.call(self.process_of(recorder), getattr(recorder.transport, name))

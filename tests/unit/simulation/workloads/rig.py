"""A broker in small, and workloads that write, then settle, then read to the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from oncelog.client import Admin, NewTopic
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Progress
from tests.fuzz.virtual import VirtualLoop
from tests.unit.simulation.small_world import HOST, PORT, SmallWorld

T = TypeVar("T")

TRANSACTION_TIMEOUT_S = 12.0
SETTINGS = {"group.initial.rebalance.delay.ms": "100"}


class Rig(SmallWorld):
    """A broker with topics, and what its clients are given."""

    def __init__(self, folder: Path, seed: int, settings: Mapping[str, str]) -> None:
        super().__init__(folder, seed, settings)
        self.reading_ends = False

    async def create(self, **topics: int) -> None:
        async with Admin(f"{HOST}:{PORT}", **self.options("setup")) as admin:
            await admin.create_topics([NewTopic(name, count) for name, count in topics.items()])

    def options(self, name: str) -> dict[str, Any]:
        rng = random.Random(f"{self.seed}:{name}")
        return {"network": self.network, "clock": self.clock, "rng": rng}

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
        begun_s = self.loop.time()
        while self.loop.time() < begun_s + seconds:
            await asyncio.sleep(0.1)
            if cuts:
                self.network.cut_some(cuts)
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
        rig = Rig(folder, seed, SETTINGS | dict(settings or {}))
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

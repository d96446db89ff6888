"""A broker in small, and scripted clients that work while there is trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.controller.topics import TopicToCreate
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Acked, Event, Polled, Progress, Value
from tests.fuzz.virtual import VirtualLoop
from tests.unit.simulation.small_world import SmallWorld

SETTINGS = {
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "500",
    "log.index.size.max.bytes": "4096",
    "auto.create.topics.enable": "false",
}


class World(SmallWorld):
    """A broker, its clients and what they saw."""

    async def create(
        self, name: str, partitions: int = 2, config: Mapping[str, str] | None = None
    ) -> None:
        topic = TopicToCreate(name, partitions, 1, {}, dict(config or {}))
        await self.broker.controller.create_topics([topic], validate_only=False)

    async def delete(self, name: str) -> None:
        topic = self.broker.image.topic(name)
        assert topic is not None
        await self.broker.controller.delete_topic(topic.topic_id)

    def context(self, name: str, **parameters: object) -> ClientContext:
        return super().context(name, **{"think_ms": 60, **parameters})

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
        self.stopping = True
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
    made = World(folder, seed, SETTINGS | dict(settings or {}))
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

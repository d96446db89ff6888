"""offsets.commit.timeout.ms: what a disk holds up of the group coordinator's, in virtual time.

Every message is flushed, so that a write counts only once it is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from oncelog import OffsetAndMetadata, TopicPartition
from oncelog.client import group_offsets
from oncelog.client.cluster import Cluster
from oncelog.client.errors import RetriableError
from oncelog.client.group_offsets import fetch_offsets
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.runtime.disk import Lane
from tests.fuzz.virtual import InlineDisk, VirtualLoop
from tests.unit.simulation.small_world import HOST, PORT, SmallWorld

T = TypeVar("T")
T0 = TopicPartition("t", 0)
FLUSHED = {"log.flush.interval.messages": "1"}


class HeldDisk(InlineDisk):
    """While it is held, what somebody waits for is not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go: asyncio.Event | None = None

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        if lane is Lane.SYNC and self.let_go is not None:
            await self.let_go.wait()
        return work()


class Story:
    """A broker on that disk, with one topic and offsets of a group."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.disk = HeldDisk()
        self.world = SmallWorld(folder, 1, FLUSHED | settings, self.disk)
        self.cluster = Cluster(f"{HOST}:{PORT}", network=self.world.network, clock=self.world.clock)

    async def commit(self, offset: int, group_id: str = "g") -> float:
        """Commit once; returns how many seconds the answer took."""
        begun_s = self.world.loop.time()
        offsets = {T0: OffsetAndMetadata(offset)}
        try:
            await group_offsets.commit_offsets(self.cluster, group_id, offsets)
        finally:
            self.took_s = self.world.loop.time() - begun_s
        return self.took_s

    async def committed(self) -> int:
        found = await fetch_offsets(self.cluster, "g", [T0], False, 1_000)
        return found[T0].offset


def play(
    folder: Path, story: Callable[[Story], Coroutine[Any, Any, None]], **settings: str
) -> None:
    """Have a story happen on virtual time."""

    async def whole() -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        context = Story(folder, given)
        await context.world.broker.start()
        await context.world.broker.controller.create_topics([TopicToCreate("t")])
        await context.cluster.retrying(lambda: context.commit(1), 10_000)
        await story(context)
        await context.cluster.close()
        await context.world.broker.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


@pytest.mark.parametrize(
    ("settings", "timeout_s"), [({}, 5.0), ({"offsets_commit_timeout_ms": "700"}, 0.7)]
)
def test_a_commit_that_is_not_synced_in_time_is_answered_and_counts_once_it_is(
    tmp_path: Path, settings: dict[str, str], timeout_s: float
) -> None:
    async def story(context: Story) -> None:
        context.disk.let_go = asyncio.Event()
        with pytest.raises(RetriableError) as caught:
            await context.commit(2)
        assert caught.value.code is ErrorCode.coordinator_not_available
        assert timeout_s <= context.took_s <= timeout_s + 0.02
        assert await context.committed() == 1
        context.disk.let_go.set()
        await asyncio.sleep(0.01)
        assert await context.committed() == 2
        assert await context.commit(3) < 0.02

    play(tmp_path, story, **settings)


def test_a_commit_that_is_synced_just_in_time_is_answered_as_committed(tmp_path: Path) -> None:
    async def story(context: Story) -> None:
        context.disk.let_go = asyncio.Event()
        context.world.loop.call_later(4.9, context.disk.let_go.set)
        assert 4.9 <= await context.commit(2) < 5.0

    play(tmp_path, story)

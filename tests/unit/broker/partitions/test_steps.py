"""How steps of the metadata are applied: roles at once, folders after, and only named deletions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.partitions.folders import FolderWork
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.controller.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PARTITIONS_PER_TURN_COUNT_MAX
from oncelog.replication.leader import LeaderState
from oncelog.runtime import Lane
from oncelog.runtime.disk import StorageFailure
from tests.support.folders import open_logs
from tests.support.logged import said_by
from tests.unit.broker.partitions.test_manager import Clock
from tests.unit.broker.support import ME, NOW_MS, apply, batch, naming

OTHER = 2
LED = PartitionImage(ME, 0, (ME,), (ME,))
TOPIC = TopicImage("t", UUID(int=1), (LED,))
ANOTHER = TopicImage("u", UUID(int=2), (LED,))
AGAIN = TopicImage("t", UUID(int=3), (LED,))
"""Another topic of the same name."""
NAMES_NONE = naming(())


class Disk:
    """The executor's: work begins when the disk does not hang, and is done at once."""

    def __init__(self) -> None:
        self.is_moving = asyncio.Event()
        self.is_moving.set()
        self.waiting_count = 0
        self.after: Callable[[], None] = lambda: None
        """Called once a work is done, before who waits for it goes on."""

    async def run(self, work: Any, lane: Lane = Lane.UPKEEP) -> Any:
        self.waiting_count += 1
        await self.is_moving.wait()
        self.waiting_count -= 1
        done = work()
        self.after()
        return done


class Bench:
    def __init__(self, *folders: Path) -> None:
        self.folder = folders[0]
        self.disk = Disk()
        self.logs = open_logs(*folders, node_id=ME, now_ms=NOW_MS)
        disk: Any = self.disk
        rng: Any = None
        self.partitions = PartitionManager(ME, BrokerConfig(), self.logs, disk, Clock(), rng)

    async def hang(self, delta: ImageDelta) -> asyncio.Task[Any]:
        """Apply a step on a disk that does not answer; returns what waits for it."""
        self.disk.is_moving.clear()
        work = await self.partitions.take_roles(delta, naming(delta.deleted))
        making = asyncio.create_task(self.partitions.make_folders(work))
        await asyncio.sleep(0)
        return making

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*-*") if path.is_dir())


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.partitions.close()
    made.logs.close()


async def test_a_topic_that_a_read_does_not_show_keeps_its_folder_and_its_role(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """D14: a lagging server, or a store restored from an older copy, deletes nothing."""
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    await apply(bench.partitions, ImageDelta(deleted=(TOPIC,)), NAMES_NONE)
    held = bench.partitions.get("t", 0)
    assert held is not None
    assert held.append(batch(), now_ms=NOW_MS).error is ErrorCode.none
    assert bench.folders() == ["t-0"]
    (said,) = [record for record in said_by(caplog) if record.levelno == logging.ERROR]
    assert "names no deletion of it: its partitions are kept" in said.getMessage()
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    assert bench.partitions.get("t", 0) is held
    assert held.log.log_end_offset == 1


async def test_a_deletion_that_the_metadata_names_removes_the_folder(bench: Bench) -> None:
    await apply(bench.partitions, ImageDelta(created=(TOPIC, ANOTHER)))
    await apply(bench.partitions, ImageDelta(deleted=(TOPIC,)))
    assert bench.partitions.get("t", 0) is None
    assert [name for name in bench.folders() if not name.endswith("-delete")] == ["u-0"]
    assert len(bench.partitions.removals) == 1


async def test_a_missing_topic_is_deleted_once_its_deletion_is_named(bench: Bench) -> None:
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    await apply(bench.partitions, ImageDelta(deleted=(TOPIC,)), NAMES_NONE)
    await apply(bench.partitions, ImageDelta(), naming([TOPIC]))
    assert bench.partitions.get("t", 0) is None
    assert [name for name in bench.folders() if not name.endswith("-delete")] == []


async def test_the_folder_of_a_missing_topic_outlives_another_of_its_name(bench: Bench) -> None:
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    first = bench.partitions.get("t", 0)
    assert first is not None
    first.append(batch(), now_ms=NOW_MS)
    await apply(bench.partitions, ImageDelta(deleted=(TOPIC,), created=(AGAIN,)), NAMES_NONE)
    second = bench.partitions.get("t", 0)
    assert second is not None
    assert (second.state.topic_id, second.log.log_end_offset) == (AGAIN.topic_id, 0)
    assert first.state.leader_error() is ErrorCode.not_leader_or_follower
    assert bench.folders() == ["t-0", f"t-0.{TOPIC.topic_id.hex}-stray"]


async def test_a_deletion_named_late_spares_the_topic_made_under_the_name(bench: Bench) -> None:
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    await apply(bench.partitions, ImageDelta(deleted=(TOPIC,), created=(AGAIN,)), NAMES_NONE)
    await apply(bench.partitions, ImageDelta(), naming([TOPIC]))
    assert bench.partitions.get("t", 0) is not None
    assert "t-0" in bench.folders()


async def test_a_hung_disk_keeps_no_broker_from_hearing_of_its_roles(bench: Bench) -> None:
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    making = await bench.hang(ImageDelta(created=(ANOTHER,)))
    held = bench.partitions.get("t", 0)
    assert held is not None
    for leader, epoch in ((OTHER, 1), (ME, 2)):
        elsewhere = PartitionImage(leader, epoch, (ME, OTHER), (ME, OTHER))
        changed = replace(TOPIC, partitions=(elsewhere,))
        work = await bench.partitions.take_roles(
            ImageDelta(changed=(TopicDelta(changed, (0,)),)), NAMES_NONE
        )
        assert work.is_empty
        assert (held.state.is_leader, held.state.leader_epoch) == (leader == ME, epoch)
    await bench.partitions.take_roles(ImageDelta(deleted=(TOPIC,)), naming([TOPIC]))
    assert held.state.leader_error() is ErrorCode.not_leader_or_follower
    assert bench.partitions.get("t", 0) is None
    assert bench.partitions.get("u", 0) is None
    bench.disk.is_moving.set()
    assert await making == {}
    assert bench.partitions.get("u", 0) is not None


async def test_a_new_partition_is_served_by_the_newest_state_of_its_topic(bench: Bench) -> None:
    making = await bench.hang(ImageDelta(created=(TOPIC,)))
    newer = replace(TOPIC, partitions=(replace(LED, leader_epoch=7),))
    later = await bench.hang(ImageDelta(changed=(TopicDelta(newer, (0,)),)))
    bench.disk.is_moving.set()
    assert await making == {} == await later
    held = bench.partitions.get("t", 0)
    assert held is not None
    assert (held.state.is_leader, held.state.leader_epoch) == (True, 7)


async def test_a_topic_deleted_while_its_folder_is_made_leaves_none(bench: Bench) -> None:
    making = await bench.hang(ImageDelta(created=(TOPIC,)))
    assert bench.disk.waiting_count == 1
    deleting = await bench.hang(ImageDelta(deleted=(TOPIC,)))
    again = await bench.hang(ImageDelta(created=(AGAIN,)))
    bench.disk.is_moving.set()
    assert await making == {}
    assert bench.partitions.get("t", 0) is None
    await deleting
    await again
    held = bench.partitions.get("t", 0)
    assert held is not None
    assert held.state.topic_id == AGAIN.topic_id
    assert [name for name in bench.folders() if not name.endswith("-delete")] == ["t-0"]
    assert bench.logs.topic_id(held.topic_partition) == AGAIN.topic_id


async def test_a_replica_removed_while_its_folder_is_made_leaves_none(bench: Bench) -> None:
    both = replace(TOPIC, partitions=(PartitionImage(ME, 0, (ME, OTHER), (ME, OTHER)),))
    making = await bench.hang(ImageDelta(created=(both,)))
    elsewhere = PartitionImage(OTHER, 1, (OTHER,), (OTHER,), removed=(ME,))
    moved = TopicDelta(replace(TOPIC, partitions=(elsewhere,)), (0,))
    later = await bench.hang(ImageDelta(changed=(moved,)))
    bench.disk.is_moving.set()
    assert await making == await later == {}
    assert bench.partitions.get("t", 0) is None
    assert [name for name in bench.folders() if not name.endswith("-delete")] == []
    await apply(bench.partitions, ImageDelta(created=(replace(both, topic_id=UUID(int=9)),)))
    assert bench.partitions.get("t", 0) is not None


async def test_a_topic_deleted_before_its_folder_is_made_gets_none(bench: Bench) -> None:
    making = await bench.hang(ImageDelta(created=(ANOTHER,)))
    behind = await bench.hang(ImageDelta(created=(TOPIC,)))
    deleting = await bench.hang(ImageDelta(deleted=(TOPIC,)))
    bench.disk.is_moving.set()
    assert await making == await behind == await deleting == {}
    assert bench.folders() == ["u-0"]


async def test_a_step_whose_partitions_are_served_by_now_waits_for_no_disk(bench: Bench) -> None:
    created = ImageDelta(created=(TOPIC,))
    first, second = [await bench.partitions.take_roles(created, NAMES_NONE) for _ in range(2)]
    assert second.wanted
    await bench.partitions.make_folders(first)
    bench.disk.is_moving.clear()
    assert await asyncio.wait_for(bench.partitions.make_folders(second), 1) == {}


async def test_a_log_whose_directory_fails_before_it_is_served_is_off_line(tmp_path: Path) -> None:
    disk: Any = Disk()
    rng: Any = None
    logs = open_logs(tmp_path / "a", tmp_path / "b", node_id=ME, now_ms=NOW_MS)
    partitions = PartitionManager(ME, BrokerConfig(), logs, disk, Clock(), rng)
    told: list[TopicPartition] = []
    partitions.on_off_line = told.extend
    work = await partitions.take_roles(ImageDelta(created=(TOPIC,)), NAMES_NONE)
    disk.after = lambda: partitions.folder_failed(
        StorageFailure("write", str(tmp_path / "a" / "u-0"), "broken")
    )
    assert await partitions.make_folders(work) == {}
    await asyncio.sleep(0)
    held = partitions.get("t", 0)
    assert held is not None
    assert held.state.leader_error() is ErrorCode.kafka_storage_error
    assert told == [TopicPartition("t", 0)]
    partitions.close()
    logs.abandon()


async def test_a_move_keeps_the_high_watermark_through_a_checkpoint(bench: Bench) -> None:
    """INV-7: a leader with followers cannot derive it from its log."""
    await apply(bench.partitions, ImageDelta(created=(TOPIC,)))
    held = bench.partitions.get("t", 0)
    assert held is not None
    held.append(batch(), now_ms=NOW_MS)
    both = replace(TOPIC, partitions=(PartitionImage(ME, 0, (ME, OTHER), (ME, OTHER)),))
    change = ImageDelta(changed=(TopicDelta(both, (0,)),))
    await apply(bench.partitions, change)
    assert (held.state.is_leader, held.state.high_watermark) == (True, 1)
    bench.partitions.leave(held.topic_partition)
    bench.partitions._upkeep.note_high_watermarks()()
    bench.partitions.rejoin(held.topic_partition)
    await apply(bench.partitions, change)
    again = bench.partitions.get("t", 0)
    assert again is not None
    assert again is not held
    assert again.state.high_watermark == 1


async def test_a_move_keeps_what_was_asked_for_the_isr(bench: Bench) -> None:
    """INV-1: the controller may still add the follower, which lacks what is committed without."""
    alone = replace(TOPIC, partitions=(PartitionImage(ME, 0, (ME,), (ME, OTHER)),))
    await apply(bench.partitions, ImageDelta(created=(alone,)))
    held = bench.partitions.get("t", 0)
    assert held is not None
    state = held.state
    assert isinstance(state, LeaderState)
    state.ask(((ME, 1), (OTHER, 1)))
    bench.partitions.leave(held.topic_partition)
    bench.partitions.rejoin(held.topic_partition)
    await apply(bench.partitions, ImageDelta(changed=(TopicDelta(alone, (0,)),)))
    again = bench.partitions.get("t", 0)
    assert again is not None
    assert again is not held
    again.append(batch(), now_ms=NOW_MS)
    assert again.state.high_watermark == 0
    newer = PartitionImage(ME, 0, (ME,), (ME, OTHER), partition_epoch=1)
    settled = replace(TOPIC, partitions=(newer,))
    await apply(bench.partitions, ImageDelta(changed=(TopicDelta(settled, (0,)),)))
    assert again.state.high_watermark == 1


# --- a topic of many partitions, which are taken in over several turns of the loop


class Turns(Clock):
    """Does once between two turns what a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], Awaitable[object]] | None = None

    async def sleep(self, delay_ms: float) -> None:
        await super().sleep(delay_ms)
        work, self.between = self.between, None
        if work is not None:
            await work()


WIDE = replace(TOPIC, partitions=(LED,) * (2 * PARTITIONS_PER_TURN_COUNT_MAX + 1))


async def take_in(bench: Bench, between: Callable[[], Awaitable[object]]) -> Turns:
    """Have a wide topic taken in, and something done after the first turn of that."""
    turns = bench.partitions.clock = Turns()
    work = await bench.partitions.take_roles(ImageDelta(created=(WIDE,)), NAMES_NONE)
    turns.pauses_count, turns.between = 0, between
    assert await bench.partitions.make_folders(work) == {}
    return turns


async def test_many_new_partitions_are_served_some_in_each_turn(bench: Bench) -> None:
    served: list[int] = []

    async def look() -> None:
        served.append(len(bench.partitions))

    turns = await take_in(bench, look)
    assert served == [PARTITIONS_PER_TURN_COUNT_MAX]
    assert turns.pauses_count == 2
    assert len(bench.partitions) == len(WIDE.partitions)
    assert all(partition.state.is_leader for partition in bench.partitions)


async def test_configs_changed_while_a_wide_topic_is_taken_in_are_those_of_all_its_partitions(
    bench: Bench,
) -> None:
    changed = replace(WIDE, config={"retention.ms": "77"})
    change = ImageDelta(changed=(TopicDelta(changed, range(len(WIDE.partitions))),))
    await take_in(bench, lambda: bench.partitions.take_roles(change, NAMES_NONE))
    assert {partition.log.config.retention_ms for partition in bench.partitions} == {77}


async def test_a_wide_topic_deleted_while_it_is_taken_in_is_served_no_more(bench: Bench) -> None:
    deleted = ImageDelta(deleted=(WIDE,))
    await take_in(bench, lambda: bench.partitions.take_roles(deleted, naming([WIDE])))
    assert len(bench.partitions) == 0
    await bench.partitions.make_folders(FolderWork([WIDE], {}, {}, []))
    assert [name for name in bench.folders() if not name.endswith("-delete")] == []


async def test_a_directory_that_fails_while_a_wide_topic_is_taken_in_takes_its_part_off_line(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "a", tmp_path / "b")
    told: list[TopicPartition] = []
    bench.partitions.on_off_line = told.extend

    async def fail() -> None:
        bench.partitions.folder_failed(StorageFailure("write", str(tmp_path / "a" / "u"), "broken"))

    await take_in(bench, fail)
    await asyncio.sleep(0)
    assert {at.topic_partition for at in bench.partitions}.isdisjoint(told)
    assert 0 < len(told) < len(WIDE.partitions) == len(told) + len(list(bench.partitions))
    assert {path.name for path in (tmp_path / "a").glob("t-*")} == {str(at) for at in told}
    bench.partitions.close()
    bench.logs.abandon()

"""The upkeep of partitions, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.partitions.folders import removed_logs
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import (
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicDelta,
    TopicImage,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import NO_PRODUCER_ID
from oncelog.core.limits import PRODUCERS_SWEPT_PER_TURN_COUNT_MAX
from oncelog.runtime import Lane
from oncelog.storage.producer_state import ProducerEntry, ProducerStates
from tests.support.folders import open_logs
from tests.unit.broker.support import ME, NOW_MS, apply, batch

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ALONE = PartitionImage(ME, 0, (ME,), (ME,))


class Clock:
    """Sleeps end when a test lets the time pass; a pause of nothing ends with the turn."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS
        self.set_by_ms = 0
        """How far the wall clock was set forward."""
        self.pauses_count = 0
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self.at_ms + self.set_by_ms

    def monotonic_ms(self) -> float:
        return float(self.at_ms)

    async def sleep(self, delay_ms: float) -> None:
        if delay_ms == 0:
            self.pauses_count += 1
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.at_ms + delay_ms, future))
        await future

    async def advance(self, ms: int) -> None:
        self.at_ms += ms
        for until_ms, future in self._sleeping:
            if until_ms <= self.at_ms and not future.done():
                future.set_result(None)
        for _ in range(100):
            await asyncio.sleep(0)


class Bench:
    """A manager with one topic `t`, whose background work runs."""

    def __init__(self, folder: Path, partitions_count: int, config: Mapping[str, str]) -> None:
        self.clock = Clock()
        self.logs = open_logs(folder, node_id=ME, now_ms=NOW_MS)
        disk: Any = self
        self.partitions = PartitionManager(
            ME, BrokerConfig(config), self.logs, disk, self.clock, random.Random(1)
        )
        self.topic = TopicImage("t", UUID(int=1), (ALONE,) * partitions_count)

    async def run(self, work: Any, lane: Lane = Lane.UPKEEP) -> Any:
        """The disk's executor: what it would do in a thread is done at once."""
        return work()

    def partition(self, index: int = 0) -> Partition:
        found = self.partitions.get("t", index)
        assert found is not None
        return found

    def append(self, producer_id: int, *, transactional: bool = False, index: int = 0) -> None:
        made = batch(producer_id=producer_id, epoch=0, sequence=0, transactional=transactional)
        self.partition(index).append(made, now_ms=self.clock.now_ms())

    def recovery_points(self) -> list[int]:
        return [each.log.recovery_point for each in self.partitions]

    def producers(self) -> list[int]:
        return [entry.producer_id for entry in self.partition().log.producers.entries()]


@asynccontextmanager
async def upkeep(folder: Path, partitions_count: int = 1, **config: str) -> AsyncIterator[Bench]:
    named = {name.replace("_", "."): value for name, value in config.items()}
    bench = Bench(folder, partitions_count, named)
    await apply(bench.partitions, ImageDelta(created=(bench.topic,)))
    task = asyncio.create_task(bench.partitions.run())
    await bench.clock.advance(0)
    yield bench
    task.cancel()
    await asyncio.wait([task])
    bench.partitions.close()
    bench.logs.close()


async def test_producers_idle_for_a_day_are_forgotten_within_ten_minutes(tmp_path: Path) -> None:
    async with upkeep(tmp_path) as bench:
        bench.append(1)
        await bench.clock.advance(23 * HOUR_MS)
        bench.append(2)
        assert bench.producers() == [1, 2]
        await bench.clock.advance(HOUR_MS)
        assert bench.producers() == [2]


async def test_a_clock_set_forward_forgets_no_producer(tmp_path: Path) -> None:
    """INV-2: a batch of its that comes again would be appended twice."""
    async with upkeep(tmp_path) as bench:
        bench.append(1)
        bench.clock.set_by_ms = 48 * HOUR_MS
        await bench.clock.advance(HOUR_MS)
        assert bench.producers() == [1]
        await bench.clock.advance(24 * HOUR_MS)
        assert bench.producers() == []


async def test_a_producer_in_a_transaction_is_not_forgotten_before_it_ends(tmp_path: Path) -> None:
    """INV-3: its open transaction holds the last stable offset."""
    async with upkeep(tmp_path) as bench:
        bench.append(1, transactional=True)
        await bench.clock.advance(48 * HOUR_MS)
        assert bench.producers() == [1]
        bench.partition().append_marker(
            1, 0, 0, commit=True, now_ms=bench.clock.now_ms(), transaction_version=0
        )
        await bench.clock.advance(24 * HOUR_MS)
        assert bench.producers() == []


async def test_retention_takes_the_last_stable_offset_along(tmp_path: Path) -> None:
    """INV-7: the open transaction that held it is deleted with its segment."""
    async with upkeep(tmp_path) as bench:
        bench.append(1, transactional=True)
        assert bench.partition().last_stable_offset == 0
        await bench.clock.advance(9 * 24 * HOUR_MS)
        assert bench.partition().log.log_start_offset == 1
        assert bench.partition().last_stable_offset == 1


async def test_the_loop_gets_its_turn_while_producers_are_looked_at(tmp_path: Path) -> None:
    async with upkeep(tmp_path, partitions_count=2) as bench:
        asked: list[int] = []
        many = [ProducerEntry(NO_PRODUCER_ID)] * (3 * PRODUCERS_SWEPT_PER_TURN_COUNT_MAX)
        with watched(bench, many, asked):
            await bench.clock.advance(10 * MINUTE_MS)
        assert max(asked) <= PRODUCERS_SWEPT_PER_TURN_COUNT_MAX
        assert sum(asked) == len(many)
        assert bench.clock.pauses_count == 3


@contextmanager
def watched(bench: Bench, entries: list[ProducerEntry], asked: list[int]) -> Iterator[None]:
    """Partition 0 says it remembers `entries`, and notes how many of them are looked at a time."""
    local = bench.partition().log._local
    known, local.state.producers = local.state.producers, WatchedProducers(entries, asked)
    yield
    local.state.producers = known


class WatchedProducers(ProducerStates):
    __slots__ = ("_asked", "_entries")

    def __init__(self, entries: list[ProducerEntry], asked: list[int]) -> None:
        super().__init__()
        self._entries = entries
        self._asked = asked

    def entries(self) -> list[ProducerEntry]:
        return self._entries

    def remove_expired(
        self, entries: Iterable[ProducerEntry], now_ms: int, expiration_ms: int
    ) -> int:
        self._asked.append(len(list(entries)))
        return 0


async def test_a_change_of_one_partition_is_a_new_role_for_that_one_alone(tmp_path: Path) -> None:
    async with upkeep(tmp_path, 3) as bench:
        later = TopicImage("t", UUID(int=1), (replace(ALONE, leader_epoch=5),) * 3)
        await apply(bench.partitions, ImageDelta(changed=(TopicDelta(later, [1]),)))
        epochs = [bench.partition(index).state.leader_epoch for index in range(3)]
        assert epochs == [0, 5, 0]


@pytest.mark.parametrize(("own", "cluster", "is_enough"), [(None, 2, False), (1, 2, True)])
async def test_the_cluster_says_how_many_replicas_an_append_needs(
    tmp_path: Path, own: int | None, cluster: int, is_enough: bool
) -> None:
    """Not this broker's own file, which says 1."""
    async with upkeep(tmp_path) as bench:
        shrunk = PartitionImage(ME, 1, (ME,), (ME, ME + 1))
        config = {} if own is None else {"min.insync.replicas": str(own)}
        topic = replace(bench.topic, partitions=(shrunk,), config=config)
        image = MetadataImage(cluster_id="c", cluster_config={"min.insync.replicas": str(cluster)})
        await apply(bench.partitions, ImageDelta(changed=(TopicDelta(topic, range(1)),)), image)
        assert bench.partition().state.has_enough_replicas is is_enough


async def test_only_the_log_of_the_very_topic_is_removed(tmp_path: Path) -> None:
    """A log of an earlier topic of the name is not what the removal was noted for."""
    async with upkeep(tmp_path, 3) as bench:
        removed = replace(ALONE, removed=(ME,))
        topic = replace(bench.topic, partitions=(ALONE, removed, removed))
        assert removed_logs(bench.logs, ME, topic, range(3)) == [topic.label(1), topic.label(2)]
        assert removed_logs(bench.logs, ME + 1, topic, range(3)) == []
        assert removed_logs(bench.logs, ME, replace(topic, topic_id=UUID(int=2)), range(3)) == []


async def test_what_waited_as_long_as_the_setting_says_is_synced(tmp_path: Path) -> None:
    interval = {"log_flush_scheduler_interval_ms": "1000", "log_flush_interval_ms": "5000"}
    async with upkeep(tmp_path, 2, **interval) as bench:
        await bench.clock.advance(1_000)
        bench.append(1, index=1)
        for _ in range(5):
            assert bench.recovery_points() == [0, 0]
            await bench.clock.advance(1_000)
        assert bench.recovery_points() == [0, 1]


async def test_sealed_segments_are_synced_once_a_minute_and_no_others(tmp_path: Path) -> None:
    async with upkeep(tmp_path, 2) as bench:
        bench.append(1)
        bench.partition().log.roll(1)
        bench.append(2)
        bench.append(1, index=1)
        await bench.clock.advance(MINUTE_MS)
        assert bench.recovery_points() == [2, 0]


async def test_a_partition_off_line_is_known_and_not_looked_after(tmp_path: Path) -> None:
    async with upkeep(tmp_path, 2) as bench:
        bench.partition(0).fail()
        assert len(bench.partitions) == 2
        assert [each.topic_partition.partition for each in bench.partitions] == [1]


async def test_the_log_is_synced_at_each_append_that_makes_enough_messages(tmp_path: Path) -> None:
    async with upkeep(tmp_path) as bench:
        topic = replace(bench.topic, config={"flush.messages": "3"})
        await apply(bench.partitions, ImageDelta(changed=(TopicDelta(topic, (0,)),)))
        partition = bench.partition()
        for committed, synced in ((1, 0), (2, 0), (2, 3), (4, 3)):
            partition.append(batch(), now_ms=NOW_MS)
            assert partition.readable_end(read_committed=False) == committed
            await bench.clock.advance(0)
            assert partition.log.recovery_point == synced

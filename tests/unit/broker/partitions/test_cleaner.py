"""Compaction of a broker's partitions, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from oncelog.broker.partitions.cleaner import PartitionCleaner
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import Record, build_batch, iter_records
from oncelog.runtime import StorageFailure, SystemDisk
from oncelog.runtime.disk import Lane
from oncelog.storage.checkpoints import parse_offsets
from tests.support.folders import open_logs
from tests.support.logged import said_by
from tests.unit.broker.partitions.test_manager import Clock
from tests.unit.broker.support import ME, NOW_MS, apply

T = TypeVar("T")
OTHER = ME + 1
ALONE = PartitionImage(ME, 0, (ME,), (ME,))
BACKOFF_MS = 15_000
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1"}
"""Each record closes a segment."""


class Disk(SystemDisk):
    """What the executor would do is done at once, and counted. The loop gets its turn at times."""

    def __init__(self) -> None:
        super().__init__()
        self.works_count = 0
        self.after: Callable[[], None] = lambda: None

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        self.works_count += 1
        if self.works_count % 100 == 0:
            await asyncio.sleep(0)
        done = work()
        self.after()
        return done


class Bench:
    """A manager whose background work runs, with compacted topics."""

    def __init__(self, folder: Path, settings: Mapping[str, str], *others: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.disk = Disk()
        self.logs = open_logs(folder, *others, node_id=ME, now_ms=NOW_MS, disk=self.disk)
        self.config = BrokerConfig(settings)
        self.partitions = PartitionManager(
            ME, self.config, self.logs, self.disk, self.clock, random.Random(1)
        )
        self.ids = 0

    @property
    def cleaner(self) -> PartitionCleaner:
        return self.partitions.cleaner

    async def create(self, name: str, settings: Mapping[str, str] | None = None) -> Partition:
        self.ids += 1
        topic = TopicImage(name, UUID(int=self.ids), (ALONE,), {**COMPACTED, **(settings or {})})
        await apply(self.partitions, ImageDelta(created=(topic,)))
        found = self.partitions.get(name, 0)
        assert found is not None
        return found

    def put(self, partition: Partition, *values: str | None) -> None:
        for value in values:
            self.clock.at_ms += 10
            text = None if value is None else value.encode()
            made = build_batch([Record(0, self.clock.now_ms(), b"key", text)])
            assert partition.append(made, now_ms=self.clock.now_ms()).error is ErrorCode.none

    async def pause(self) -> None:
        await self.clock.advance(BACKOFF_MS)

    def clean_offsets(self) -> dict[str, int]:
        offsets = parse_offsets(self.disk.read(f"{self.folder}/cleaner-offset-checkpoint"))
        return {str(partition): offset for partition, offset in (offsets or {}).items()}


def values(partition: Partition) -> list[str | None]:
    log, offset, found = partition.log, partition.log.log_start_offset, []
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20, upper_bound=log.log_end_offset))
        for position, header in iter_headers(data):
            for record in iter_records(data, position, header):
                found.append(None if record.value is None else record.value.decode())
            offset = header.next_offset
    return found


@asynccontextmanager
async def cleaning(folder: Path, *others: Path, **settings: str) -> AsyncIterator[Bench]:
    keys = {f"log.cleaner.{name.replace('_', '.')}": value for name, value in settings.items()}
    bench = Bench(folder, keys, *others)
    task = asyncio.create_task(bench.partitions.run())
    yield bench
    task.cancel()
    await asyncio.wait([task])
    bench.partitions.close()
    bench.logs.close()


async def test_a_dirty_log_is_cleaned_and_how_far_is_noted(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        first, second = await bench.create("first"), await bench.create("second")
        other = await bench.create("other", {"cleanup.policy": "delete"})
        for partition in (first, second, other):
            bench.put(partition, "1", "2", "3")
        await bench.pause()
        assert [values(p) for p in (first, second, other)] == [["2", "3"]] * 2 + [["1", "2", "3"]]
        assert bench.clean_offsets() == {"first-0": 2, "second-0": 2}
        assert bench.cleaner.cleanings_count == 2
        bench.put(first, "4", "5")
        await bench.pause()
        assert values(first) == ["4", "5"]
        assert bench.clean_offsets() == {"first-0": 4, "second-0": 2}


async def test_a_log_that_is_clean_is_left_in_peace(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first", {"min.cleanable.dirty.ratio": "0.6"})
        bench.put(partition, "1", "2", "3")
        await bench.pause()
        bench.put(partition, "4")
        await bench.pause()
        assert values(partition) == ["2", "3", "4"]
        bench.put(partition, "5")
        await bench.pause()
        assert values(partition) == ["4", "5"]


async def test_compaction_can_be_switched_off(tmp_path: Path) -> None:
    for settings in ({"enable": "false"}, {"threads": "0"}):
        async with cleaning(tmp_path / str(settings), **settings) as bench:
            partition = await bench.create("first")
            bench.put(partition, "1", "2", "3")
            await bench.pause()
            assert values(partition) == ["1", "2", "3"]


async def test_several_workers_share_the_logs(tmp_path: Path) -> None:
    async with cleaning(tmp_path, threads="3") as bench:
        partitions = [await bench.create(f"t{number}") for number in range(5)]
        for partition in partitions:
            bench.put(partition, "1", "2", "3")
        await bench.pause()
        await bench.pause()
        assert [values(partition) for partition in partitions] == [["2", "3"]] * 5
        assert bench.cleaner.cleanings_count == 5


async def test_the_checkpoint_counts_after_a_restart(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first")
        bench.put(partition, "1", "2", "3")
        await bench.pause()
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first")
        await bench.pause()
        assert bench.cleaner.cleanings_count == 0
        bench.put(partition, "4", "5")
        await bench.pause()
        assert values(partition) == ["4", "5"]
        assert bench.clean_offsets() == {"first-0": 4}


async def test_a_damaged_checkpoint_is_said_and_costs_a_cleaning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cleaning(tmp_path) as bench:
        bench.put(await bench.create("first"), "1", "2", "3")
        await bench.pause()
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nfirst 0")
    async with cleaning(tmp_path) as bench:
        await bench.create("first")
        await bench.pause()
        assert bench.clean_offsets() == {"first-0": 2}
    assert "cleaner-offset-checkpoint is damaged: compacted logs are cleaned" in caplog.text


async def test_a_checkpoint_beyond_the_end_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cleaning(tmp_path) as bench:
        bench.put(await bench.create("first"), "1", "2", "3")
        await bench.pause()
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nfirst 0 9\n")
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first")
        await bench.pause()
        await bench.pause()
        bench.put(partition, "4", "5")
        await bench.pause()
        assert bench.clean_offsets() == {"first-0": 4}
    assert caplog.text.count("cleaned up to offset 9 by its checkpoint, but it ends at 3") == 1


async def test_a_topic_created_again_is_dirty_from_its_start(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first")
        bench.put(partition, "1", "2", "3")
        await bench.pause()
        topic = TopicImage("first", UUID(int=1), (ALONE,), COMPACTED)
        await apply(bench.partitions, ImageDelta(deleted=(topic,)))
        partition = await bench.create("first")
        bench.put(partition, "1", "2", "3")
        await bench.pause()
        assert values(partition) == ["2", "3"]


async def test_a_log_that_begins_again_while_it_is_cleaned_is_dirty(tmp_path: Path) -> None:
    """As a follower's: it was cleaned, which is not noted yet, and is copied again."""
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first")
        bench.put(partition, "1", "2", "3")

        def begin_again() -> None:
            if values(partition) == ["2", "3"]:
                bench.disk.after = lambda: None
                bench.cleaner.forget(partition.topic_partition)
                partition.log.restart_at(0)
                bench.put(partition, "4", "5", "6")

        bench.disk.after = begin_again
        await bench.pause()
        await bench.pause()
        assert values(partition) == ["5", "6"]


async def test_damage_is_named_and_the_other_logs_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cleaning(tmp_path) as bench:
        bad, good = await bench.create("bad"), await bench.create("good")
        for partition in (bad, good):
            bench.put(partition, "1", "2", "3")
        path = tmp_path / "bad-0" / f"{1:020d}.log"
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        with caplog.at_level(logging.ERROR):
            await bench.pause()
            await bench.pause()
        assert values(good) == ["2", "3"]
        assert len(values(bad)) == 3
        (said,) = [record.message for record in said_by(caplog)]
        assert said == (
            "bad-0 cannot be cleaned and keeps all its records until the broker starts again: "
            f"at offset 1: {path} has no sound batch at byte 0, from offset 1 on: "
            "its checksum is wrong"
        )
        assert bench.clean_offsets() == {"good-0": 2}
        assert len(bench.cleaner.uncleanable) == 1
        await apply(
            bench.partitions,
            ImageDelta(deleted=(TopicImage("bad", UUID(int=1), (ALONE,), COMPACTED),)),
        )
        await bench.pause()
        assert not bench.cleaner.uncleanable


async def test_records_without_a_key_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first", {"cleanup.policy": "delete"})
        made = build_batch([Record(0, NOW_MS, None, b"1")])
        partition.append(made, now_ms=NOW_MS)
        bench.put(partition, "2")
        image = TopicImage("first", UUID(int=1), (ALONE,), COMPACTED)
        await apply(bench.partitions, ImageDelta(changed=(TopicDelta(image, (0,)),)))
        await bench.pause()
        assert values(partition) == ["2"]
        assert "first-0: 1 records without a key were removed" in caplog.text


async def test_the_batch_at_the_high_watermark_stays_whichever_log_is_cleaned(
    tmp_path: Path,
) -> None:
    async with cleaning(tmp_path) as bench:
        await bench.create("first")
        partition = await bench.create("second", {"cleanup.policy": "delete"})
        bench.put(partition, "1")
        partition.append(build_batch([Record(0, NOW_MS, None, b"no key")]), now_ms=NOW_MS)
        both = PartitionImage(ME, 0, (ME, OTHER), (ME, OTHER))
        image = TopicImage("second", UUID(int=2), (both,), COMPACTED)
        await apply(bench.partitions, ImageDelta(changed=(TopicDelta(image, (0,)),)))
        bench.put(partition, "2", "3")
        assert (partition.state.high_watermark, partition.log.log_end_offset) == (2, 4)
        await bench.pause()
        assert bench.clean_offsets() == {"second-0": 2}
        data = bytes(partition.log.read(0, 1 << 20, upper_bound=2))
        found = [(header.base_offset, header.record_count) for _, header in iter_headers(data)]
        assert found == [(0, 1), (1, 0)]  # Emptied, not removed.


async def test_the_rate_is_kept(tmp_path: Path) -> None:
    async with cleaning(tmp_path, io_max_bytes_per_second="1000") as bench:
        partition = await bench.create("first")
        bench.put(partition, *["x" * 1000] * 5)
        await bench.pause()
        # About 4.3 kB are read for the keys, and 4.3 kB more to be copied.
        begun_ms = bench.clock.now_ms()
        while not bench.cleaner.cleanings_count:
            await bench.clock.advance(100)
        assert 8_000 < bench.clock.now_ms() - begun_ms < 12_000


async def test_a_log_that_is_moved_is_not_cleaned(tmp_path: Path) -> None:
    """Its copy would bring back what was removed, below an offset that counts as clean."""
    async with cleaning(tmp_path, io_max_bytes_per_second="1000") as bench:
        partition = await bench.create("first")
        bench.put(partition, *["x" * 1000] * 5)
        await bench.pause()
        assert bench.cleaner.in_progress == {partition.log}
        pausing = asyncio.create_task(bench.cleaner.pause(partition.topic_partition))
        while not pausing.done():
            await bench.clock.advance(100)
        assert not bench.cleaner.in_progress
        bench.disk.works_count = 0
        await bench.pause()
        assert bench.disk.works_count < 10  # It is not chosen again and again meanwhile.
        for _ in range(5):
            await bench.pause()
        assert len(values(partition)) == 5
        assert bench.clean_offsets() == {}
        names = bench.disk.list(partition.log.directory)
        assert not [name for name in names if name.endswith(".cleaned")]
        bench.cleaner.resume(partition.topic_partition)
        for _ in range(5):
            await bench.pause()
        assert len(values(partition)) == 2


async def test_a_log_that_failed_is_left_alone_until_its_directory_goes_off_line(
    tmp_path: Path,
) -> None:
    """A sync may have failed in the executor, and the loop not know of it yet."""
    async with cleaning(tmp_path) as bench:
        bad, good = await bench.create("bad"), await bench.create("good")
        for partition in (bad, good):
            bench.put(partition, "1", "2", "3")
            partition.log.flush()
        bad.log.fail(StorageFailure("fsync", bad.log.directory, "for the test"))
        await bench.pause()
        assert bench.disk.works_count < 50  # It is not tried again and again.
        assert (values(bad), values(good)) == (["1", "2", "3"], ["2", "3"])
        assert bench.clean_offsets() == {"good-0": 2}


async def test_no_step_is_long(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first", {"segment.ms": "10000"})
        bench.put(partition, *[f"{number}" * 1000 for number in range(999)])
        bench.clock.at_ms += 100_000
        bench.put(partition, "the active segment")
        bench.disk.works_count = 0
        await bench.pause()
        assert bench.cleaner.cleanings_count == 1
        # Of 999 records each is compared twice, 128 in a step.
        assert bench.disk.works_count > 15


async def test_a_step_over_what_is_not_compared_is_bounded_in_bytes(tmp_path: Path) -> None:
    async with cleaning(tmp_path) as bench:
        partition = await bench.create("first", {"segment.ms": "10000"})
        bench.put(partition, *["x" * 500_000] * 16)
        bench.clock.at_ms += 100_000
        bench.put(partition, "the active segment")
        bench.disk.works_count = 0
        await bench.pause()
        assert bench.cleaner.cleanings_count == 1
        # 8 MB are read twice, three batches in a step.
        assert bench.disk.works_count > 12


async def test_a_disk_that_fails_ends_the_upkeep(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {})
    task = asyncio.create_task(bench.partitions.run())
    partition = await bench.create("first")
    bench.put(partition, "1", "2", "3")

    def fail(*_: object, **__: object) -> None:
        raise StorageFailure("fsync", "x", "no")

    bench.disk.sync_dir = fail  # type: ignore[method-assign]
    await bench.pause()
    with pytest.raises(StorageFailure):
        await task
    bench.partitions.close()
    bench.logs.abandon()


@pytest.mark.parametrize("operation", ["read the checkpoint", "choose", "clean", "note"])
async def test_a_log_directory_that_fails_keeps_no_log_of_another_from_being_cleaned(
    tmp_path: Path, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D12: the cleaner is the first that meets the failure, and nothing stops the broker."""
    a, b = tmp_path / "a", tmp_path / "b"
    async with cleaning(a, b) as bench:
        bad = await bench.create("bad", {"max.compaction.lag.ms": "1"})
        good = await bench.create("good")
        assert Path(good.log.directory).parent == b
        bench.put(bad, "1", "2", "3", "4", "5")
        bench.put(good, "1", "2", "3")
        failing = {
            "read the checkpoint": ("read", f"{a}/cleaner-offset-checkpoint"),
            "choose": ("open", f"{bad.log.directory}/{0:020d}.log"),
            "clean": ("open", f"{bad.log.directory}/{0:020d}.log.cleaned"),
            "note": ("write_atomic", f"{a}/cleaner-offset-checkpoint"),
        }[operation]
        real = getattr(bench.disk, failing[0])

        def fails(path: str, *args: Any, **options: Any) -> Any:
            if path == failing[1]:
                raise StorageFailure(failing[0], path, "for the test")
            return real(path, *args, **options)

        monkeypatch.setattr(bench.disk, failing[0], fails)
        for _ in range(3):
            await bench.pause()
        assert [folder.directory for folder in bench.logs.online] == [str(b)]
        assert values(good) == ["2", "3"]


async def test_a_topic_may_be_deleted_while_it_is_cleaned(tmp_path: Path) -> None:
    async with cleaning(tmp_path, io_max_bytes_per_second="100") as bench:
        partition = await bench.create("first")
        bench.put(partition, *["x" * 90] * 5)
        await bench.pause()
        topic = TopicImage("first", UUID(int=1), (ALONE,), COMPACTED)
        await apply(bench.partitions, ImageDelta(deleted=(topic,)))
        for _ in range(20):
            await bench.clock.advance(1000)
        assert bench.cleaner.cleanings_count == 0
        assert not [name for name in bench.disk.list(str(tmp_path)) if name == "first-0"]

"""Loading a coordinator: in turns, from a log as compaction leaves it, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from oncelog.broker.coordination import loading
from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator import CoordinatorRecord, RecordContext, Step, UnknownKind
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.pending import Pending, unchanged
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.disk import Lane, StorageFailure, SystemDisk
from oncelog.storage import Origin
from tests.support.logged import said_by
from tests.unit.broker.coordination.test_runtime import Bench, Memory, Put
from tests.unit.broker.support import NOW_MS, HandLoop, make_partition
from tests.unit.coordinator.support import AnyShard, processor_of

T = TypeVar("T")


class WatchedDisk(SystemDisk):
    """Counts what the executor is asked for, and may do something between the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[Lane] = []
        self.between: Callable[[], None] = lambda: None

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        self.lanes.append(lane)
        result = work()
        self.between()
        return result


def partition_of(folder: Path, keys: list[bytes], value: bytes = b"v") -> Partition:
    partition = make_partition(folder, HandLoop(), topic="__internal")
    for key in keys:
        data = build_batch([Record(0, NOW_MS, key, value)])
        assert partition.append(data, now_ms=NOW_MS).error is ErrorCode.none
    return partition


async def load(partition: Partition, disk: WatchedDisk, machine: AnyShard | None = None) -> int:
    """Load; returns how many turns of the loop others had meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await loading.load(processor_of(machine or Memory()), partition, disk, NOW_MS)
    task.cancel()
    return turns


async def test_a_long_log_is_read_off_the_loop_and_taken_in_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [b"%d" % number for number in range(100)]
    partition, disk, machine = partition_of(tmp_path, keys), WatchedDisk(), Memory()
    monkeypatch.setattr(loading, "COORDINATOR_LOAD_BYTES", partition.log.size_bytes // 4)
    monkeypatch.setattr(loading, "LOAD_RECORDS_PER_TURN_COUNT_MAX", 10)
    monkeypatch.setattr(loading, "LOAD_APPLIED_PER_TURN_COUNT_MAX", 10)
    turns = await load(partition, disk, machine)
    assert machine.applied == keys
    assert len(disk.lanes) >= 4
    assert set(disk.lanes) == {Lane.READ}
    assert turns >= 4 + 10  # A run of plain batches is taken in at once.


async def test_what_is_read_at_once_is_taken_in_to_its_end_and_no_part_of_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, disk, machine = partition_of(tmp_path, [b"a"]), WatchedDisk(), Memory()
    for producer_id in (5, 6, 7):
        partition.append_marker(
            producer_id, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0
        )
    monkeypatch.setattr(loading, "LOAD_RECORDS_PER_TURN_COUNT_MAX", 1)
    await load(partition, disk, machine)
    assert [marker.producer_id for marker in machine.markers] == [5, 6, 7]
    assert len(disk.lanes) == 1


async def test_each_kind_of_record_that_is_not_known_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Older(Memory):
        def replay(self, step: Step, context: RecordContext) -> None:
            assert isinstance(step, CoordinatorRecord)
            raise UnknownKind(step.key)

    keys = [b"\0\7a", b"\0\7b", b"\0\x08a"]
    await load(partition_of(tmp_path, keys), WatchedDisk(), Older())
    lines = [record.getMessage() for record in said_by(caplog)]
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        "records of type 7 are ignored, as at offset 0",
        "records of type 8 are ignored, as at offset 2",
    ]


async def test_a_load_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = partition_of(tmp_path, [b"a", b"b", b"a"])
    with caplog.at_level(logging.INFO):
        await load(partition, WatchedDisk())
    (line,) = caplog.messages
    assert line == (
        f"{partition.topic_partition} is loaded: 3 records up to offset 3, of which 2 counted"
    )


async def test_a_stretch_is_bounded_by_records_and_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is the memory of a load."""
    partition = partition_of(tmp_path, [b"a", b"b"] * 10)
    monkeypatch.setattr(loading, "COORDINATOR_LOAD_BYTES", 1)
    for limit, applied_count in (("RECORDS_COUNT", 20), ("BYTES", 20), ("", 2)):
        with monkeypatch.context() as patch:
            if limit:
                patch.setattr(loading, f"LOAD_STRETCH_{limit}_MAX", 1)
            machine = Memory()
            await load(partition, WatchedDisk(), machine)
            assert len(machine.applied) == applied_count
            assert machine.applied[-2:] == [b"a", b"b"]


async def test_a_marker_that_comes_while_loading_is_not_missed(tmp_path: Path) -> None:
    """INV-6: whether it comes between two reads or while the last stretch is applied."""
    partition, disk, machine = partition_of(tmp_path, [b"a"]), WatchedDisk(), Memory()
    coming = [5, 6]

    def append_marker() -> None:
        if coming:
            partition.append_marker(
                coming.pop(), 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0
            )

    disk.between = append_marker
    await load(partition, disk, machine)
    assert [marker.producer_id for marker in machine.markers] == [6, 5]


async def test_a_log_that_compaction_thinned_is_loaded_to_its_end(tmp_path: Path) -> None:
    """Gaps between batches, batches without records, and nothing behind the last one."""
    partition = make_partition(tmp_path, HandLoop(), topic="__internal")
    for offset in (3, 40, 90):
        record = Record(offset, NOW_MS, b"%d" % offset, b"v")
        data = build_batch([record], base_offset=offset)
        partition.log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    machine = Memory()
    await load(partition, WatchedDisk(), machine)
    assert machine.applied == [b"3", b"40", b"90"]


async def test_the_time_that_a_load_took_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    disk = WatchedDisk()
    bench.disk = disk

    def pass_time() -> None:
        bench.clock.at_ms += 40

    disk.between = pass_time
    runtime = bench.make_runtime()
    bench.follow(runtime)
    await runtime.loaded()
    assert list(runtime.load_times_ms) == [40]


async def test_a_failing_disk_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D12: it is the folder that goes off line, and nothing is to be repaired."""
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    failure = StorageFailure("read", "somewhere", "it broke")
    told: list[StorageFailure] = []
    bench.partition.on_failure = told.append

    class Failing(SystemDisk):
        async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
            raise failure

    bench.disk = Failing()
    runtime = bench.make_runtime()
    bench.follow(runtime)
    await runtime.loaded()
    assert told == [failure]
    answer = runtime.ask("id", Put("id"), unchanged, unchanged)
    assert isinstance(answer, Pending)
    assert answer.result is ErrorCode.not_coordinator
    assert said_by(caplog) == []


async def test_an_unloaded_partition_is_tried_again_under_the_next_leadership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))

    class Puzzled(Memory):
        def replay(self, *_: object) -> None:
            raise ProtocolError(ErrorCode.corrupt_message, "what is this")

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "replay", Puzzled.replay)
        bench.elect_again()
        await bench.runtime.loaded()
    assert bench.ask(Put("id")).result is ErrorCode.not_coordinator
    bench.elect_again(epoch=2)
    await bench.runtime.loaded()
    assert bench.ask(Put("id", b"b")).result == b"b"


async def test_a_record_from_the_future_counts_as_written_now(tmp_path: Path) -> None:
    """The wall clock was set back: an interval that began later than now would never end."""

    class Dated(Memory):
        def __init__(self) -> None:
            super().__init__()
            self.dated_ms: list[int] = []

        def replay(self, step: Step, context: RecordContext) -> None:
            self.dated_ms.append(context.timestamp_ms)

    shard = Dated()
    partition = make_partition(tmp_path, HandLoop(), topic="__internal")
    for key, timestamp_ms in ((b"a", NOW_MS - 7), (b"b", NOW_MS + 7)):
        data = build_batch([Record(0, timestamp_ms, key, b"v")])
        assert partition.append(data, now_ms=NOW_MS).error is ErrorCode.none
    await load(partition, WatchedDisk(), shard)
    assert shard.dated_ms == [NOW_MS - 7, NOW_MS]

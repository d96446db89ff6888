"""What compaction replaces is kept as it was written, and judged by the outcome of transactions."""

from pathlib import Path

from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import BatchHeader, iter_headers, read_header
from oncelog.protocol.record import Record, build_batch, control_batch, iter_records
from oncelog.runtime import Disk
from oncelog.simulation.archive import Archive
from oncelog.simulation.compacted import keyed_records, removable
from oncelog.simulation.final import KeyedRecord
from oncelog.simulation.watch import BrokerWatch, WatchedDisk
from tests.support.machine import Machine
from tests.unit.storage.cleaner.context import CompactedLog

T0 = TopicPartition("t", 0)


def watched(machine: Machine) -> tuple[CompactedLog, Archive]:
    archive = Archive(machine.whole.peek, machine.whole.names)
    disk: Disk = WatchedDisk(machine.disk, BrokerWatch(archive))
    return CompactedLog(Path("/data/t-0"), disk), archive


def test_batches_are_kept_as_they_were_first_written() -> None:
    ctx, archive = watched(Machine())
    for value in "12":
        ctx.put(("a", value), ("b", value), producer=1)
        ctx.seal()
    ctx.put(("a", "3"))
    ctx.seal()
    written = {header.base_offset: data for header, data in batches(ctx.all_bytes())}
    ctx.clean()
    assert archive.swaps_count == 1
    assert ctx.headers()[0].base_offset == 3
    assert dict(archive.of(T0)) == {base: written[base] for base in (0, 2, 3, 5, 6)}
    ctx.put(("b", "3"))
    ctx.seal()
    ctx.clean()
    assert archive.of(T0)[3] == written[3] != batches(ctx.all_bytes())[0][1]
    assert archive.partitions() == {"t-0"}


def batches(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    return [
        (header, data[position : position + header.length])
        for position, header in iter_headers(data)
    ]


def test_retention_is_no_compaction() -> None:
    ctx, archive = watched(Machine())
    ctx.put(("a", "1"))
    ctx.seal()
    ctx.log.delete_records(1)
    assert ctx.log.delete_old_segments(ctx.now_ms, 2) == 1
    assert not archive.of(T0)
    assert archive.swaps_count == 0


def test_a_deleted_topic_is_forgotten() -> None:
    machine = Machine()
    ctx, archive = watched(machine)
    ctx.put(("a", "1"))
    ctx.seal()
    ctx.clean()
    assert archive.of(T0)
    archive.renaming("/data/t-0", "/data/t-0.123-delete", recovering=False)
    assert not archive.of(T0)


def rows(*data: bytearray) -> list[tuple[BatchHeader, Record]]:
    return [
        (header, record)
        for batch in data
        for header in [read_header(batch)]
        for record in iter_records(batch, 0, header)
    ]


def test_records_are_known_by_key_outcome_and_whether_they_are_left() -> None:
    def written(offset: int, value: bytes | None, producer: int = -1) -> bytearray:
        return build_batch(
            [Record(0, 0, b"k", value)],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer >= 0,
        )

    log = [
        written(0, b"1", 1),
        written(1, b"2", 2),
        control_batch(True, 1, 0, 0, 0, base_offset=2),
        control_batch(False, 2, 0, 0, 0, base_offset=3),
        written(4, None),
        written(5, b"3", 1),
    ]
    records = keyed_records(rows(*log), rows(*log[2:]))
    assert records == (
        KeyedRecord(0, b"k", False, "committed", True),
        KeyedRecord(1, b"k", False, "aborted", True),
        KeyedRecord(4, b"k", True, "committed", False),
        KeyedRecord(5, b"k", False, "", False),
    )
    assert removable(records) == {0, 1}
    # Nobody has overwritten what was aborted.
    assert [removable(records[number : number + 1]) for number in (0, 1)] == [set(), {1}]

"""A follower's log: batches as its leader wrote them, truncations, beginnings elsewhere.

After each step, and after a death at each file operation with two starts behind it, the log is a
beginning of one of the histories that it went through, and its state is what the simulation's
oracle makes of the bytes alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.runtime.disk import StorageFailure
from oncelog.simulation.agreement import partitions
from oncelog.simulation.agreement.partitions import Shown
from oncelog.simulation.oracle.history import RawLog
from oncelog.simulation.scheduler import ProcessDied
from oncelog.storage import AppendResult, LogConfig, LogManager, Origin, PartitionLog
from oncelog.storage.files import (
    CLEAN_OFFSETS_NAME,
    HIGH_WATERMARKS_NAME,
    RECOVERY_POINTS_NAME,
)
from oncelog.storage.log_cleaning import LogChanged
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, read_all
from tests.unit.storage.test_threads_and_kills import GatedDisk

PARTITION = TopicPartition("flights", 0)
PATH = f"/data/{PARTITION}"
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=1, retention_ms=-1)


class Leader:
    """Makes batches as a leader of some epochs has them in its log."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.batches: list[bytes] = []
        self.end = 0
        self.epoch = 0
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def copy(self, end: int) -> Leader:
        """Another leader, whose log agrees below `end`."""
        other = Leader(self.rng.randrange(1 << 30))
        for data in self.batches:
            _, header = next(iter_headers(data))
            if header.next_offset <= end:
                other.batches.append(data)
                other.end = header.next_offset
                other._note(data)
        other.epoch = self.epoch + 1
        return other

    def write(self, count: int) -> Leader:
        for _ in range(count):
            producer = self.rng.randrange(5)
            if producer in self._open and self.rng.random() < 0.5:
                commit = self.rng.random() < 0.5
                self._add(control_batch(commit, producer, 0, 0, NOW_MS))
                continue
            is_transactional = producer > 1
            records = [
                Record(i, NOW_MS + i, b"k%d" % self.rng.randrange(9), self.rng.randbytes(20))
                for i in range(self.rng.randint(1, 3))
            ]
            self._add(
                build_batch(
                    records,
                    producer_id=producer or -1,
                    producer_epoch=0 if producer else -1,
                    base_sequence=self._sequences.get(producer, 0) if producer else -1,
                    transactional=is_transactional,
                )
            )
        return self

    def _add(self, data: bytes | bytearray, gap: int = 0) -> None:
        data = bytearray(data)
        data[:8] = (self.end + gap).to_bytes(8, "big")
        data[12:16] = self.epoch.to_bytes(4, "big")
        self.batches.append(bytes(data))
        self._note(data)

    def _note(self, data: bytes | bytearray) -> None:
        _, header = next(iter_headers(data))
        self.end = header.next_offset
        if header.is_control:
            self._open.discard(header.producer_id)
        elif header.producer_id > 0:
            self._sequences[header.producer_id] = header.last_sequence + 1
            if header.is_transactional:
                self._open.add(header.producer_id)


class Follower:
    """A machine with one replica on it, and the histories that its log went through."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.machine = Machine()
        self.config = config
        self.histories: list[tuple[int, bytes]] = [(0, b"")]
        """Where each began, and its bytes; the log is a beginning of one of the last two."""
        self.durable_end = 0
        self.manager: LogManager
        self.log: PartitionLog

    def start(self) -> None:
        self.manager = open_logs("/data", disk=self.machine.disk, config=self.config)
        found = self.manager.get(PARTITION)
        if found is None:
            found = self.manager.create(PARTITION, UUID(int=1), self.config, NOW_MS)
            self.histories = [(0, b"")]
        self.log = found

    def append(self, data: bytes) -> AppendResult:
        return self.log.append(
            memoryview(data), leader_epoch=-1, now_ms=NOW_MS, origin=Origin.REPLICATION
        )

    def take(self, batches: Iterable[bytes]) -> None:
        start, held = self.histories[-1]
        data = b"".join(batches)
        self.histories[-1] = (start, held + data)
        assert self.append(data).error is ErrorCode.none

    def flush(self) -> None:
        self.log.flush()
        self.manager.checkpoint()
        self.durable_end = self.log.log_end_offset
        del self.histories[:-1]

    def truncate(self, offset: int) -> None:
        start, held = self.histories[-1]
        kept = b"".join(
            held[place : place + header.length]
            for place, header in iter_headers(held)
            if header.next_offset <= offset
        )
        self.histories.append((start, kept))
        self.durable_end = min(self.durable_end, end_of(start, kept))
        self.log.truncate_to(
            offset, NOW_MS, partial(self.manager.note_truncation, PARTITION, offset)
        )

    def restart_at(self, offset: int) -> None:
        self.histories.append((offset, b""))
        self.durable_end = 0
        self.log.restart_at(
            offset, NOW_MS, partial(self.manager.note_truncation, PARTITION, offset)
        )

    def check(self) -> None:
        """Compare the log with its histories, and its state with what its bytes imply."""
        log = self.log
        data = read_all(log)
        fits = [
            (start, held)
            for start, held in (*self.histories[-2:], (log.log_end_offset, b""))
            if held.startswith(data) and (data or log.log_end_offset == start or not held)
        ]
        assert fits, (self.histories, log.log_start_offset, log.log_end_offset)
        assert log.log_end_offset >= self.durable_end
        assert log.recovery_point <= log.log_end_offset
        self.histories = [(*fits[0][:1], data)]
        raw = RawLog()
        raw.read(
            self.machine.whole.names(PATH),
            lambda name: self.machine.whole.peek(f"{PATH}/{name}") or b"",
        )
        shown = Shown(first_offset=raw.first_offset)
        assert not list(partitions.producers(raw.state, log, shown))
        assert not list(partitions.leader_epochs(raw.state, log, shown))
        everywhere = [*pairwise(range(log.log_start_offset, log.log_end_offset + 1))]
        everywhere.append((log.log_start_offset, log.log_end_offset))
        assert not list(partitions.aborted_transactions(raw.state, log, everywhere, shown))


def end_of(start: int, data: bytes) -> int:
    return max([start, *(header.next_offset for _, header in iter_headers(data))])


def followed(count: int = 12, seed: int = 1) -> tuple[Follower, Leader]:
    """A follower with all that its leader has written."""
    follower, leader = Follower(), Leader(seed).write(count)
    follower.start()
    follower.take(leader.batches)
    return follower, leader


def test_batches_of_a_leader_stay_byte_for_byte_as_they_came() -> None:
    follower, leader = followed()
    assert read_all(follower.log) == b"".join(leader.batches)
    assert follower.log.log_end_offset == leader.end
    follower.check()


def test_a_leaders_gaps_of_compaction_are_taken() -> None:
    follower, leader = followed(3)
    leader._add(build_batch([Record(0, NOW_MS, b"k", b"v")]), gap=7)
    follower.take(leader.batches[3:])
    follower.check()


@pytest.mark.parametrize("harm", ["crc", "below the end", "cut off", "not rising"])
def test_a_broken_answer_of_a_leader_changes_nothing(harm: str) -> None:
    follower, leader = followed(3)
    more = leader.write(2).batches[-2:]
    end = follower.log.log_end_offset
    data = {
        "crc": more[0][:-1] + bytes([more[0][-1] ^ 1]),
        "below the end": leader.batches[0],
        "cut off": more[0][:-1],
        "not rising": more[1] + more[0],
    }[harm]
    assert follower.append(data).error is ErrorCode.corrupt_message
    assert follower.log.log_end_offset == end
    follower.check()


def test_a_follower_judges_no_sequence_and_no_epoch_of_a_producer() -> None:
    """Its leader has decided; where it restarted with less state, a second opinion would differ."""
    follower, leader = followed(1)
    for sequence, epoch in ((7, 3), (2, 3), (0, 1)):
        leader._add(
            build_batch(
                [Record(0, NOW_MS, b"k", b"v")],
                producer_id=9,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
    for data in leader.batches[1:]:
        follower.take([data])
    assert read_all(follower.log) == b"".join(leader.batches)


def test_a_leader_that_follows_again_knows_where_each_epoch_began() -> None:
    """The scan of its start ended where it began to lead; what it appended itself is behind."""
    follower, leader = followed(3)
    follower.machine.restart()
    follower.start()
    follower.log.begin_epoch(1)
    records = build_batch([Record(0, NOW_MS, b"k", b"v")])
    led = follower.log.append(records, leader_epoch=1, now_ms=NOW_MS)
    leader.epoch = 1
    leader._add(records)
    follower.histories = [(0, b"".join(leader.batches))]
    leader.epoch = 2
    follower.take(leader.write(1).batches[-1:])
    assert follower.log.epochs.entries() == [(0, 0), (1, led.base_offset), (2, led.last_offset + 1)]
    follower.check()


def test_an_epoch_that_wrote_nothing_does_not_name_records_of_an_earlier_one() -> None:
    """Its successor was not told of it in time, and had more of the leader before."""
    follower, leader = followed(3)
    end = leader.end
    follower.log.begin_epoch(2)
    leader.epoch = 1
    follower.take(leader.write(1).batches[-1:])
    assert follower.log.epochs.entries() == [(0, 0), (1, end)]
    follower.check()


@pytest.mark.parametrize("seed", range(8))
def test_the_state_after_each_truncation_is_what_the_bytes_imply(seed: int) -> None:
    follower, leader = followed(14, seed)
    rng = random.Random(seed)
    for _ in range(4):
        follower.truncate(rng.randint(0, follower.log.log_end_offset))
        follower.check()
        leader = leader.copy(follower.log.log_end_offset).write(5)
        start = len(leader.batches) - 5
        follower.take(leader.batches[start:])
        follower.check()
    follower.machine.restart()
    follower.start()
    follower.check()


def test_a_truncation_brings_back_no_producer_that_has_expired() -> None:
    follower, leader = followed(1)
    for batch in leader.write(40).batches[1:]:
        follower.take([batch])
    log, later_ms = follower.log, NOW_MS + CONFIG.producer_id_expiration_ms
    assert any(e.transaction_first_offset < 0 for e in log.producers.entries())
    log.truncate_to(log.segment_base_offsets[-1], later_ms)
    assert all(e.transaction_first_offset >= 0 for e in log.producers.entries())


def test_a_truncation_lowers_the_checkpoints_before_it_removes_records() -> None:
    follower, leader = followed()
    follower.flush()
    folder = follower.manager.folders[0]
    folder.write_high_watermarks({PARTITION: leader.end, TopicPartition("other", 0): 5})
    folder.offsets.write(CLEAN_OFFSETS_NAME, {PARTITION: leader.end})
    seen: list[tuple[int, int, int, int]] = []

    def note() -> None:
        follower.manager.note_truncation(PARTITION, 4)
        points = folder.offsets.read_quietly(RECOVERY_POINTS_NAME)
        marks = folder.offsets.read_quietly(HIGH_WATERMARKS_NAME)
        cleaned = folder.offsets.read_quietly(CLEAN_OFFSETS_NAME)[PARTITION]
        seen.append((points[PARTITION], marks[PARTITION], cleaned, follower.log.log_end_offset))
        assert marks[TopicPartition("other", 0)] == 5

    follower.log.truncate_to(4, NOW_MS, note)
    end = follower.log.log_end_offset
    assert seen == [(end, 4, 4, leader.end)]
    assert end <= 4
    assert follower.log.recovery_point == end


def test_a_log_that_starts_anew_keeps_nothing_of_before() -> None:
    follower, _leader = followed()
    follower.flush()
    follower.restart_at(100)
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 100)
    assert log.latest_epoch == -1
    assert log.producers.entries() == []
    assert log.aborted_transactions(0, 200) == []
    names = follower.machine.whole.names(PATH)
    assert [name for name in names if not name.startswith(("leader", "partition", "oncelog"))] == [
        f"{100:020d}.log"
    ]
    later = Leader(5)
    later.end, later.epoch = 100, 4
    follower.take(later.write(6).batches)
    follower.check()
    follower.machine.lose_power(1, rate=0.0)
    follower.durable_end = 100
    follower.start()
    follower.check()
    assert follower.log.log_start_offset == 100


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_log_cut_below_its_start_hides_none_of_what_comes_then(begins_anew: bool) -> None:
    """An older checkpoint would have the next start take new records for deleted ones."""
    follower, leader = followed()
    follower.flush()
    follower.log.delete_records(8)
    follower.manager.checkpoint()
    if begins_anew:
        follower.restart_at(0)
        other = Leader(7).write(3)
    else:
        follower.truncate(4)
        other = leader.copy(follower.log.log_end_offset).write(3)
    start = follower.log.log_start_offset
    follower.take(other.batches[-3:])
    follower.log.flush()
    follower.machine.lose_power(1, rate=0.0)
    follower.start()
    assert follower.log.log_end_offset == other.end
    assert follower.log.log_start_offset == start


def test_an_empty_log_takes_a_batch_around_its_leaders_log_start() -> None:
    """The leader's records were deleted up to the middle of a batch."""
    follower = Follower()
    follower.start()
    follower.restart_at(5)
    data = bytearray(build_batch([Record(i, NOW_MS, b"k", b"%d" % i) for i in range(5)]))
    data[:8] = (3).to_bytes(8, "big")
    assert follower.append(bytes(data)).error is ErrorCode.none
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset) == (5, 8)
    assert bytes(log.read(5, 1000, upper_bound=8)) == data
    assert follower.append(bytes(data)).error is ErrorCode.corrupt_message
    log.flush()
    follower.manager.checkpoint()
    follower.machine.lose_power(1, rate=0.0)
    follower.start()
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (5, 8)


def test_a_truncation_during_a_sync_leaves_the_recovery_point_in_the_log(tmp_path: Path) -> None:
    """INV-9: by one above the end, new records would count as synced."""
    disk = GatedDisk()
    log = PartitionLog.open(disk, f"{tmp_path}/flights-0", PARTITION, CONFIG, NOW_MS)
    log.append(bytearray(b"".join(Leader().write(6).batches)), leader_epoch=-1, now_ms=NOW_MS,
               origin=Origin.REPLICATION)  # fmt: skip
    sync = threading.Thread(target=log.flush)
    sync.start()
    assert disk.begun.wait(30)
    cut = threading.Thread(target=log.truncate_to, args=(2,))
    cut.start()
    cut.join(0.05)
    disk.gate.set()
    for thread in (sync, cut):
        thread.join()
    assert log.recovery_point <= log.log_end_offset <= 2


def test_a_cleaning_that_began_before_a_cut_replaces_nothing() -> None:
    """Else it would bring the old records of a segment back in the place of the new ones."""
    follower, leader = followed(1)
    for data in leader.write(24).batches[1:]:
        follower.take([data])
    sealed = follower.log.cleaning.sealed_segments()
    follower.truncate(sealed[-1].base_offset + 1)
    other = leader.copy(follower.log.log_end_offset)
    held_count = len(other.batches)
    for data in other.write(12).batches[held_count:]:
        follower.take([data])
    assert len(follower.log.segment_base_offsets) > len(sealed)
    with pytest.raises(LogChanged):
        follower.log.cleaning.require_segments(sealed)


def test_a_closed_log_is_not_truncated() -> None:
    follower, leader = followed()
    follower.manager.close()
    with pytest.raises(StorageFailure, match="closed"):
        follower.log.truncate_to(0)
    with pytest.raises(StorageFailure, match="closed"):
        follower.log.restart_at(0)
    follower.start()
    assert follower.manager.folders[0].was_clean
    assert follower.log.log_end_offset == leader.end


def live(follower: Follower) -> None:
    """The script of a follower's life."""
    follower.start()
    first = Leader(3).write(10)
    follower.take(first.batches)
    follower.flush()
    follower.take(first.write(4).batches[10:])
    follower.truncate(first.end - 5)
    second = first.copy(follower.log.log_end_offset)
    count = len(second.batches)
    follower.take(second.write(6).batches[count:])
    follower.truncate(4)
    follower.flush()
    follower.restart_at(second.end + 10)
    third = Leader(4)
    third.end, third.epoch = second.end + 10, 7
    follower.take(third.write(8).batches)
    follower.flush()
    follower.restart_at(3)
    fourth = Leader(6)
    fourth.end, fourth.epoch = 3, 8
    follower.take(fourth.write(4).batches)
    follower.manager.close()


def operations_count() -> int:
    follower = Follower()
    live(follower)
    return follower.machine.disk.changes_count


def survive(operation: int, rate: float | None) -> None:
    follower = Follower()
    machine = follower.machine
    moment = ("before", "torn")[operation % 2]
    machine.whole.arm_kill(machine.process, after_operations=operation, moment=moment)  # type: ignore[arg-type]
    with pytest.raises(ProcessDied):
        live(follower)
    for turn in range(3):
        if rate is None:
            machine.restart()
        else:
            machine.lose_power(operation + turn, rate=rate)
        follower.start()
        follower.check()
        follower.durable_end = follower.log.log_end_offset


@pytest.mark.parametrize("rate", [None, 0.0, 0.5, 1.0])
def test_a_followers_log_survives_a_death_at_some_operations(rate: float | None) -> None:
    first = {None: 1, 0.0: 2, 0.5: 3, 1.0: 4}[rate]
    for operation in range(first, operations_count(), 7):
        survive(operation, rate)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rate", [None, 0.0, 0.5, 1.0])
def test_a_followers_log_survives_a_death_at_every_operation(rate: float | None) -> None:
    for operation in range(1, operations_count()):
        survive(operation, rate)

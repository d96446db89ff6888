"""A log's life, ended at each file operation, with and without the power, over two more starts.

The life is a script of appends, transactions that end both ways, rolls, deletions of records,
retention, a truncation and stops in good order, on the simulated disk. After each start the log has
to be a prefix of what was appended, long enough for what was promised, with the transactions that
this prefix implies (INV-1, INV-3, INV-9).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from oncelog.simulation.disk import FaultKind
from oncelog.simulation.scheduler import ProcessDied
from oncelog.storage import AppendResult, LogConfig, LogManager, PartitionLog, StorageFailure
from oncelog.storage.replay import end_marker_of
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch, read_all

PARTITION = TopicPartition("flights", 0)
PLAIN = 9
"""An idempotent producer without transactions; the others have one after the other."""


class Entry(NamedTuple):
    """What stands at one offset: a record, or a marker (`commit` is not None)."""

    producer: int
    value: bytes = b""
    commit: bool | None = None


class Life:
    """A machine with one log on it, and what was done to that log."""

    def __init__(self, machine: Machine, *, flushed: bool) -> None:
        self.machine = machine
        self.flushed = flushed
        self.config = LogConfig(
            segment_bytes=330,
            index_interval_bytes=1,
            flush_messages=1 if flushed else 2**63 - 1,
            retention_ms=-1,
        )
        self.entries: list[Entry] = []
        self.before_truncation: list[Entry] | None = None
        self.acked_count = 0
        self.durable_count = 0
        self.deleted = 0
        self.epoch = 0
        self.manager: LogManager
        self.log: PartitionLog | None

    # ---- what happens to it ----

    def start(self) -> None:
        self.manager = open_logs("/data", disk=self.machine.disk, config=self.config)
        self.log = self.manager.get(PARTITION)

    def create(self) -> None:
        self.log = self.manager.create(PARTITION, UUID(int=1), self.config, NOW_MS)

    def write(self, producer: int = PLAIN) -> None:
        value = b"%d" % random.Random(len(self.entries)).randrange(10**9)
        sequence = sum(e.producer == producer and e.commit is None for e in self.entries)
        self.entries.append(Entry(producer, value))
        data = batch(
            producer=producer,
            epoch=0,
            sequence=sequence,
            transactional=producer != PLAIN,
            value=value,
        )
        self._appended(self.held.append(data, leader_epoch=self.epoch, now_ms=NOW_MS))

    def end(self, producer: int, *, commit: bool) -> None:
        self.entries.append(Entry(producer, commit=commit))
        self._appended(
            self.held.append_marker(
                producer,
                0,
                0,
                commit,
                leader_epoch=self.epoch,
                now_ms=NOW_MS,
                transaction_version=0,
            )
        )

    def _appended(self, result: AppendResult) -> None:
        assert result.error is ErrorCode.none
        assert result.last_offset == len(self.entries) - 1
        self.acked_count = len(self.entries)
        if self.flushed:
            self.durable_count = self.acked_count

    def flush(self) -> None:
        self.held.flush()
        self.manager.checkpoint()
        self.durable_count = len(self.entries)
        self.before_truncation = None

    def delete_records(self, offset: int) -> None:
        self.held.delete_records(offset)
        self.manager.checkpoint()
        self.deleted = offset

    def truncate(self, count: int) -> None:
        """Those entries go that no transaction needs; a leader of a new epoch would ask for it."""
        end = len(self.entries) - count
        self.before_truncation = list(self.entries)
        del self.entries[end:]
        self.acked_count = self.durable_count = min(self.durable_count, end)
        self.held.truncate_to(end, NOW_MS)
        self.epoch += 1

    def stop(self) -> None:
        self.manager.close()
        self.acked_count = self.durable_count = len(self.entries)
        self.before_truncation = None

    @property
    def held(self) -> PartitionLog:
        assert self.log is not None
        return self.log

    # ---- what it must be then ----

    def check(self, required_count: int) -> None:
        if self.log is None:
            assert required_count == 0
            self.create()
            self.entries = []
        log = self.held
        start, end = log.log_start_offset, log.log_end_offset
        assert end >= required_count
        assert self.deleted <= start <= max(self.deleted, end)
        found = list(contents(log))
        candidates = [self.entries, self.before_truncation or self.entries]
        fitting = [each for each in candidates if found == expected(each[:end], start)]
        assert fitting, (found, self.entries)
        self.entries = fitting[0][:end]
        self.before_truncation = None
        assert list(committed(log)) == expected_committed(self.entries, start)
        plain = [offset for offset, e in enumerate(self.entries) if e.producer == PLAIN]
        if plain and plain[-1] >= start:
            producer = log.producers.entry(PLAIN)
            assert producer is not None
            assert producer.last_sequence == len(plain) - 1
        self.acked_count = self.durable_count = end


def contents(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    data = read_all(log)
    for position, header in iter_headers(data):
        for record in iter_records(data, position, header):
            if record.offset >= log.log_start_offset:
                yield record.offset, b"" if header.is_control else record.value or b""


def expected(entries: list[Entry], start: int) -> list[tuple[int, bytes]]:
    return [(offset, e.value) for offset, e in enumerate(entries) if offset >= start]


def committed(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """As a consumer reads with read_committed: up to the last stable offset, without aborted."""
    stable = log.last_stable_offset(log.log_end_offset)
    aborted = sorted(
        log.aborted_transactions(log.log_start_offset, stable), key=lambda each: each.first_offset
    )
    data, open_aborted = read_all(log), set()
    for position, header in iter_headers(data):
        if header.base_offset >= stable:
            return
        while aborted and aborted[0].first_offset <= header.last_offset:
            open_aborted.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = end_marker_of(data, position, header)
            if marker is not None and not marker.commit:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            for record in iter_records(data, position, header):
                if record.offset >= log.log_start_offset:
                    yield record.offset, record.value or b""


def expected_committed(entries: list[Entry], start: int) -> list[tuple[int, bytes]]:
    open_at: dict[int, list[int]] = {}
    shown = []
    for offset, entry in enumerate(entries):
        if entry.commit is None:
            if entry.producer == PLAIN:
                shown.append(offset)
            else:
                open_at.setdefault(entry.producer, []).append(offset)
        else:
            records = open_at.pop(entry.producer, [])
            shown += records if entry.commit else []
    stable = min((offsets[0] for offsets in open_at.values()), default=len(entries))
    return [(offset, entries[offset].value) for offset in sorted(shown) if start <= offset < stable]


def live(life: Life) -> None:
    """The script."""
    life.start()
    life.create()
    for producer, commit in ((1, False), (2, True), (3, False)):
        life.write(producer)
        life.write()
        life.write(producer)
        life.end(producer, commit=commit)
    life.flush()
    life.write(4)
    life.write(5)
    life.end(4, commit=False)
    life.delete_records(5)
    life.held.delete_old_segments(NOW_MS, life.held.log_end_offset)
    for _ in range(4):
        life.write()
    life.truncate(3)
    life.flush()
    life.write()
    life.stop()
    life.start()
    life.end(5, commit=False)
    for _ in range(4):
        life.write()
    life.write(6)
    life.end(6, commit=False)
    life.manager.checkpoint()
    life.write()
    life.stop()


def count_operations(*, flushed: bool) -> int:
    machine = Machine()
    before = machine.disk.changes_count
    live(Life(machine, flushed=flushed))
    return machine.disk.changes_count - before


def die_at(operation: int, *, flushed: bool) -> Life:
    life = Life(Machine(), flushed=flushed)
    machine = life.machine
    moment = ("before", "torn")[operation % 2]
    machine.whole.arm_kill(machine.process, after_operations=operation, moment=moment)  # type: ignore[arg-type]
    with pytest.raises(ProcessDied):
        live(life)
    return life


def end_life(life: Life, rate: float | None, seed: int) -> int:
    """Kill the process, or (with a rate) take the power; returns what must be left."""
    if rate is None:
        life.machine.restart()
        return life.acked_count
    life.machine.lose_power(seed, rate=rate)
    return life.durable_count


def die_in_recovery(life: Life, rate: float | None, operation: int) -> int:
    """The first start dies as well, at the latest once it is over; returns what must be left."""
    machine = life.machine
    machine.whole.arm_kill(machine.process, after_operations=1 + operation % 17, moment="after")
    with contextlib.suppress(ProcessDied):
        life.start()
    if machine.process.alive:
        machine.whole.disarm_kill(machine.process)
        machine.process.kill("killed")
    return end_life(life, rate, operation + 3)


def survive(operation: int, rates: tuple[float | None, float | None], *, flushed: bool) -> None:
    life = die_at(operation, flushed=flushed)
    end_life(life, rates[0], operation)
    required = die_in_recovery(life, rates[1], operation)
    life.start()
    life.check(required)
    # What it found is durable, whatever the mode (INV-3: and what follows from it).
    life.write()
    if operation % 3:
        required = end_life(life, rates[1], operation + 1)
    else:
        life.stop()
        required = end_life(life, rates[1], operation + 1)
    life.start()
    life.check(required)
    reported = life.held.recovery
    assert operation % 3 or not reported.unclean, reported.reasons
    life.machine.lose_power(operation + 2, rate=0.0)
    required = len(life.entries)
    life.start()
    life.check(required)


RATES: list[tuple[float | None, float | None]] = [
    (None, None),
    (None, 0.0),
    (0.0, 0.0),
    (0.5, 0.3),
    (0.0, 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unflushed"])
def test_a_log_survives_a_death_at_some_operations(flushed: bool) -> None:
    for operation in range(1, count_operations(flushed=flushed) + 1, 9):
        survive(operation, RATES[operation % len(RATES)], flushed=flushed)


def life_before_a_failed_sync(count: int, seed: int, *, flushed: bool) -> Life:
    """So many records are written; the next sync of a `.log` fails."""
    life = Life(Machine(), flushed=flushed)
    life.start()
    life.create()
    for _ in range(count):
        life.write()
    faults = life.machine.whole.faults
    faults.fail(FaultKind.FSYNC, random.Random(seed), matches=lambda path: path.endswith(".log"))
    return life


@pytest.mark.parametrize("seed", range(6))
def test_what_a_start_sees_after_a_failed_fsync_reaches_the_disk(seed: int) -> None:
    """The system may show bytes that it will never write by itself."""
    life = life_before_a_failed_sync(9, seed, flushed=False)
    with pytest.raises(StorageFailure):
        life.held.flush()
    life.machine.restart()
    life.start()
    life.check(9)
    for _ in range(2):
        life.machine.lose_power(seed, rate=0.0)
        life.start()
        life.check(9)


def test_a_truncation_that_could_not_be_synced_is_lasting_after_the_next_start() -> None:
    """Neither the bytes nor the end of the file would reach the disk by themselves."""
    life = life_before_a_failed_sync(3, 0, flushed=True)
    life.held.recovery_point = 0
    life.manager.checkpoint()
    with pytest.raises(StorageFailure):
        life.held.truncate_to(0)
    life.machine.restart()
    life.start()
    assert life.held.log_end_offset == 0
    for _ in range(2):
        life.machine.lose_power(0, rate=0.0)
        life.start()
        assert life.held.log_end_offset == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unflushed"])
def test_a_log_survives_a_death_at_every_operation(
    flushed: bool, rates: tuple[float | None, float | None]
) -> None:
    for operation in range(1, count_operations(flushed=flushed) + 1):
        survive(operation, rates, flushed=flushed)

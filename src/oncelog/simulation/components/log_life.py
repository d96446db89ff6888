"""Simulates logs in two folders: what is appended, cut, cleaned, moved, killed and opened again.

A broker of a run has one folder, never truncates a log, and loses an index seldom. Here two small
logs, one of them compacted, are told what a broker would tell them, in any order. A list of batches
holds what must be in each (`Truth`); after every step its files are compared with that list, and
everything that the log says with what `oracle` and `log_checks` work out from the files.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.runtime.clock import Clock
from oncelog.simulation.agreement import partitions
from oncelog.simulation.agreement.folders import folder as files_of
from oncelog.simulation.agreement.partitions import Shown
from oncelog.simulation.components import log_checks
from oncelog.simulation.disk import SimulatedDisk
from oncelog.simulation.oracle.batches import RawBatch, batches_in
from oncelog.simulation.oracle.history import RawLog
from oncelog.storage import LogConfig, LogManager, PartitionLog

__all__ = ["COMPACTED", "FOLDERS", "PLAIN", "LogFolders", "Truth"]

FOLDERS: Final = ("/one", "/two")
PLAIN, COMPACTED = TopicPartition("plain", 0), TopicPartition("compacted", 0)
START_MS: Final = 1_700_000_000_000
NONE: Final = -1
KEYS: Final = (b"a", b"b", b"c", b"d")


class _LogProcess:
    """A process: what a simulated disk has to know of it, and its clock."""

    def __init__(self, number: int, life: LogFolders) -> None:
        self.name = f"process-{number}"
        self.alive = True
        self.clock: Clock = life

    def kill(self, cause: str) -> None:
        self.alive = False


@dataclass(slots=True)
class Truth:
    """What one log must hold."""

    topic_id: TopicId
    batches: list[RawBatch] = field(default_factory=list)
    """All that is in its files, and before it what retention took."""
    start: int = 0
    highest_start: int = 0
    durable_end: int = 0
    forgotten_below: int = 0
    """Of producers' batches below it only the last may be known."""
    clean_offset: int = 0
    committed_end: int = 0
    """All below it was committed when the cleaner ran: no replica truncates there."""
    restarts_at: set[int] = field(default_factory=set)
    was_dirty: bool = False
    in_doubt: list[RawBatch] = field(default_factory=list)
    """What an append that was interrupted may have added."""
    start_max: int = 0
    """Where an interrupted deletion may have moved the start to."""
    cut_to: int | None = None
    """Where an interrupted truncation cuts."""
    cut: list[RawBatch] = field(default_factory=list)
    """What an interrupted truncation cut, and a loss of power brings back until the next sync."""
    is_cleaning: bool = False
    passed_over_below: int = 0
    """Where the log began at a cleaning, which left what was before it as it was.

    A loss of power may move the start back, for the checkpoint of starts is not synced here.
    """

    @property
    def end(self) -> int:
        """Return the offset behind the last batch."""
        return self.batches[-1].last_offset + 1 if self.batches else 0


class LogFolders:
    """Two folders, the process that has them open, and what must be in them. Also its clock."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.wrong: list[str] = []
        self._disk = SimulatedDisk(random.Random(rng.random()))
        self._time_ms = START_MS
        self._owners = count()
        self._ids = count()
        self._topic_ids = count(1)
        self._epoch = 0
        self._producers: dict[int, int] = {}
        """The epoch of each producer at its coordinator."""
        size = rng.choice((200, 500, 900))
        interval = rng.choice((0, 100, 300))
        self._configs = {
            PLAIN.topic: LogConfig(
                segment_bytes=size,
                segment_ms=rng.choice((3_000, 60_000)),
                index_interval_bytes=interval,
                retention_ms=rng.choice((-1, 5_000, 60_000)),
                retention_bytes=rng.choice((-1, -1, 700, 1_500)),
                flush_messages=rng.choice((1, 5, 1 << 40)),
            ),
            COMPACTED.topic: LogConfig(
                segment_bytes=size,
                segment_ms=rng.choice((3_000, 60_000)),
                index_interval_bytes=interval,
                cleanup_policy=frozenset({"compact"}),
                delete_retention_ms=rng.choice((0, 2_000, 60_000)),
            ),
        }
        self._truths = {each: Truth(TopicId(int=next(self._topic_ids))) for each in self._names}
        self._raw: dict[TopicPartition, RawLog] = {}
        self._watermarks: dict[TopicPartition, int] = {}
        """The highest that each log was asked for; from a checkpoint after a start."""
        self._manager: LogManager | None = None

    @property
    def _names(self) -> tuple[TopicPartition, ...]:
        return PLAIN, COMPACTED

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._time_ms

    def monotonic_ms(self) -> float:
        """Return the same."""
        return float(self._time_ms)

    async def sleep(self, delay_ms: float) -> None:
        """Let the time pass."""
        self._time_ms += round(delay_ms)

    # --- the process

    @property
    def _logs(self) -> LogManager:
        if self._manager is None:
            raise RuntimeError("no process runs")
        return self._manager

    def _log(self, partition: TopicPartition) -> PartitionLog:
        found = self._logs.get(partition)
        if found is None:
            raise RuntimeError(f"{partition} has no log")
        return found

    def open(self) -> None:
        """Start a process, which opens the folders and makes the logs that are missing."""
        self._owner = _LogProcess(next(self._owners), self)
        self._view = self._disk.of(self._owner)
        manager = LogManager.take(self._view, FOLDERS, node_id=1)
        cluster_id = manager.cluster_id or f"{next(self._ids):022d}"
        manager.claim(cluster_id, 1, lambda: f"{next(self._ids):022d}")
        manager.finish_moves()
        manager.open_logs(lambda topic: self._configs[topic], self._time_ms)
        self._manager = manager
        self._raw.clear()
        self._watermarks = dict.fromkeys(self._names, 0) | manager.read_high_watermarks()
        known = self._watermarks[COMPACTED], self._truths[COMPACTED].committed_end
        self._watermarks[COMPACTED] = max(known)  # Below it the cleaner may have thinned the log.
        for partition, truth in self._truths.items():
            config = self._configs[partition.topic]
            if manager.topic_id(partition) not in (None, truth.topic_id):
                manager.delete(partition)  # A loss of power took the rename.
            manager.create(partition, truth.topic_id, config, self._time_ms)

    # --- comparing

    def _path(self, partition: TopicPartition) -> str:
        folder = self._logs.folder_of(partition)
        return "" if folder is None else folder.path_of(partition)

    def _read(self, partition: TopicPartition) -> RawLog:
        raw = self._raw.setdefault(partition, RawLog())
        path = self._path(partition)
        raw.read(self._disk.names(path), lambda name: self._disk.peek(f"{path}/{name}") or b"")
        return raw

    def _wrong(self, partition: TopicPartition, texts: Iterable[str]) -> None:
        self.wrong += [f"{partition}: {text}" for text in texts]

    def _same(self, partition: TopicPartition, what: str, held: object, wanted: object) -> None:
        if held != wanted:
            self.wrong.append(f"{partition}: {what} is {held}, not {wanted}")

    def _look(self, partition: TopicPartition) -> None:
        """Compare one log with what it must hold, and what it says with its files."""
        log, truth, raw = self._log(partition), self._truths[partition], self._read(partition)
        first, is_compacted = raw.first_offset, log.config.is_compacted
        there = [batch.data for batch in raw.batches()]
        due = [batch.data for batch in truth.batches if batch.last_offset >= first]
        if there != due:
            self._wrong(partition, [f"{len(there)} batches are there, of {len(due)}"])
            return
        bases = [int(name.removesuffix(".log")) for name in raw.segments]
        self._same(partition, "the end", log.log_end_offset, max(truth.end, bases[-1]))
        self._same(partition, "the start", log.log_start_offset, truth.start)
        self._same(partition, "segments", log.segment_base_offsets, bases)
        self._same(partition, "the size", log.size_bytes, sum(map(len, there)))
        truth.highest_start = max(truth.highest_start, truth.start)
        shown = Shown(
            first_offset=first,
            is_thinned=is_compacted,
            epochs_from=truth.highest_start,
            batches_from=truth.forgotten_below,
        )
        end = log.log_end_offset
        span = range(truth.start, end)
        ranges = [(at, self._rng.randint(at + 1, end)) for at in self._some(span, 6)]
        self._wrong(partition, partitions.producers(raw.state, log, shown))
        self._wrong(partition, partitions.leader_epochs(raw.state, log, shown))
        self._wrong(partition, partitions.aborted_transactions(raw.state, log, ranges, shown))
        self._wrong(partition, log_checks.reads(raw, log, self._rng, 3))
        self._wrong(partition, log_checks.lookups(raw, log, self._rng, 2))
        for watermark in self._next_watermarks(partition, end):
            held = log.last_stable_offset(watermark)
            self._wrong(
                partition,
                partitions.last_stable_offset(raw.state, held, watermark, truth.start, shown),
            )
        self._wrong(
            partition,
            log_checks.names(
                self._disk.names(self._path(partition)),
                raw,
                restarts_at=truth.restarts_at,
                was_dirty=truth.was_dirty,
                is_thinned=is_compacted,
            ),
        )

    def _some(self, among: range, size: int) -> list[int]:
        return self._rng.sample(among, min(size, len(among)))

    def _next_watermarks(self, partition: TopicPartition, end: int) -> list[int]:
        """Some high watermarks that follow the log's end at a distance; they never go back."""
        known = self._watermark(partition)
        last = self._rng.randint(known, end)
        self._watermarks[partition] = last
        return sorted({known, *self._some(range(known, last + 1), 3), last})

    def _watermark(self, partition: TopicPartition) -> int:
        log = self._log(partition)
        known = self._watermarks.get(partition, log.log_end_offset)
        return max(min(known, log.log_end_offset), log.log_start_offset)

    def _look_at_files(self, partition: TopicPartition, *, was_closed: bool) -> None:
        path, truth = self._where(partition), self._truths[partition]
        self._wrong(
            partition,
            files_of(
                self._disk.names(path),
                lambda name: self._disk.peek(f"{path}/{name}") or b"",
                was_closed=was_closed,
                is_thinned=partition is COMPACTED,
                log_start=truth.highest_start,
            ),
        )

    def _where(self, partition: TopicPartition) -> str:
        """The folder of a log; there must be one."""
        found = [
            f"{each}/{partition}" for each in FOLDERS if str(partition) in self._disk.names(each)
        ]
        self._same(partition, "the count of its folders", len(found), 1)
        return found[0] if found else ""

    # --- what is appended

    def _append(self, partition: TopicPartition) -> None:
        rng, log, raw = self._rng, self._log(partition), self._read(partition)
        producer_id = rng.choice((0, 0, 1, 2, 3))
        known = raw.state.producers.get(producer_id)
        transactional = producer_id > 0 and rng.random() < 0.7
        if known is not None and known.open_from >= 0:
            transactional = True
        epoch = max(self._producers.get(producer_id, 0), known.epoch if known else 0)
        held = log.producers.entry(producer_id)
        if producer_id and (held is None) != (known is None):
            return  # Retention took what it wrote.
        sequence = 0
        if known is not None and known.epoch == epoch and known.batches:
            sequence = known.batches[-1].last_sequence + 1
        elif known is not None and known.epoch == epoch and held is not None and held.batches:
            return
        age_ms = rng.choice((0, 0, 0, 500, 4_000))
        records = [
            Record(
                index,
                self._time_ms - age_ms + rng.choice((0, 0, 7, -3)),
                rng.choice(KEYS),
                None if rng.random() < 0.2 else bytes(rng.choice((5, 40, 120))),
            )
            for index in range(rng.choice((1, 1, 2, 5)))
        ]
        data = build_batch(
            records,
            producer_id=producer_id or NONE,
            producer_epoch=epoch if producer_id else NONE,
            base_sequence=sequence if producer_id else NONE,
            transactional=transactional,
        )
        if len(data) <= log.config.segment_bytes:
            self._take(partition, data)
            if producer_id and rng.random() < 0.2:
                self._repeat(partition, data)

    def _take(self, partition: TopicPartition, data: bytearray) -> None:
        """Append one batch, which must be taken and begin a new file where it has to."""
        log, truth, raw = self._log(partition), self._truths[partition], self._read(partition)
        end = log.log_end_offset
        wanted = struct.pack(">q", end) + data[8:12] + struct.pack(">i", self._epoch) + data[16:]
        batch = next(batches_in(bytes(wanted)))
        rolls = log_checks.rolls(raw, log.config, len(data), batch.max_timestamp_ms)
        files_count = len(log.segment_base_offsets)
        truth.in_doubt = [batch]
        result = log.append(bytearray(data), leader_epoch=self._epoch, now_ms=self._time_ms)
        self._same(partition, "the error", result.error, ErrorCode.none)
        self._same(partition, "its offsets", result[1:3], (end, batch.last_offset))
        truth.in_doubt = []
        truth.batches.append(batch)
        self._note_synced(partition)
        if rolls is not None:
            added = len(log.segment_base_offsets) - files_count
            self._same(partition, "whether a file begins", added, int(rolls))

    def _note_synced(self, partition: TopicPartition) -> None:
        log, truth = self._log(partition), self._truths[partition]
        unsynced = log.log_end_offset - log.recovery_point
        if unsynced >= log.config.flush_messages:
            self._wrong(partition, [f"{unsynced} records are not flushed"])
        truth.durable_end = max(truth.durable_end, log.recovery_point)
        truth.cut = [batch for batch in truth.cut if batch.base_offset >= truth.durable_end]

    def _repeat(self, partition: TopicPartition, data: bytearray) -> None:
        """Append the last batch again: it is known as a duplicate."""
        last = self._truths[partition].batches[-1]
        result = self._log(partition).append(
            bytearray(data), leader_epoch=self._epoch, now_ms=self._time_ms
        )
        self._same(partition, "a duplicate", result.duplicate, True)
        self._same(partition, "its offsets", result[1:3], (last.base_offset, last.last_offset))

    def _end(self, partition: TopicPartition) -> None:
        """End the transactions of one producer or of all, in any order.

        Of all, because only then several markers stand above a high watermark.
        """
        for producer_id in self._rng.sample((1, 2, 3), self._rng.choice((1, 1, 3))):
            self._end_of(producer_id, partition)

    def _end_of(self, producer_id: int, partition: TopicPartition) -> None:
        """End the transaction of a producer in this log; under TV2 with the next epoch."""
        rng, log, raw = self._rng, self._log(partition), self._read(partition)
        known = raw.state.producers.get(producer_id)
        if known is None or log.producers.entry(producer_id) is None:
            return
        bumps = rng.random() < 0.5
        epoch = max(self._producers.get(producer_id, 0), known.epoch) + bumps
        self._producers[producer_id] = epoch
        commit, truth, end = rng.random() < 0.5, self._truths[partition], log.log_end_offset
        ends = (producer_id, epoch, max(known.coordinator_epoch, 0))
        wanted = control_batch(
            commit, *ends, self._time_ms, base_offset=end, leader_epoch=self._epoch
        )
        truth.in_doubt = list(batches_in(bytes(wanted)))
        result = log.append_marker(
            *ends,
            commit,
            leader_epoch=self._epoch,
            now_ms=self._time_ms,
            transaction_version=2 if bumps else 1,
        )
        self._same(partition, "the error", result.error, ErrorCode.none)
        truth.batches += truth.in_doubt
        truth.in_doubt = []
        self._note_synced(partition)

"""Check one partition's folder: its logs, and every other file of it against them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

from oncelog.cli.log.check_indexes import IndexChecks, check_aborted, read_file
from oncelog.cli.log.findings import NOTE, Finding, error, note
from oncelog.cli.log.kinds import (
    LOG_STARTS_NAME,
    FileKind,
    base_offset,
    is_passing,
    kind_of,
    partition_of,
)
from oncelog.cli.log.reading import Damage, IntactBatch
from oncelog.cli.log.survey import Survey, SurveyedSegment, Watcher
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.record import iter_records
from oncelog.runtime.disk import SystemDisk
from oncelog.storage.checkpoints import parse_epochs, parse_offsets, parse_partition_metadata
from oncelog.storage.files import (
    BATCHES_SUFFIX,
    LEADER_EPOCHS_NAME,
    PARTITION_METADATA_NAME,
    SNAPSHOT_SUFFIX,
)
from oncelog.storage.formats import UnknownFormat, refuse_other_formats
from oncelog.storage.producer_snapshot import parse_batches, parse_snapshot
from oncelog.storage.producer_state import ProducerEntry
from oncelog.storage.segment_register import parse_register

__all__ = ["PartitionCheck", "log_start_of", "noted_offset"]


class PartitionCheck:
    """Checks a folder once. `was_closed`: the broker stopped in order, so all files are due.

    `in_use`: a broker is running, so the last batch may be partly written.
    """

    def __init__(self, folder: str, *, was_closed: bool, in_use: bool = False) -> None:
        self._log_start = log_start_of(folder)
        self.survey = Survey(folder)
        self._folder = folder
        self._was_closed = was_closed
        self._in_use = in_use
        self._epochs: list[tuple[int, int]] = []
        self._record_findings: list[Finding] = []
        self._path = ""
        self._snapshots_seen: set[int] = set()
        self.is_unknown = False
        """Whether the log has records of a format that is not read: nothing else is judged."""

    def run(self, met: Callable[[SurveyedSegment], None] | None = None) -> Iterator[Finding]:
        """All findings, segment by segment, then those of the folder.

        `met` is told of each segment that holds damage.
        """
        if not self.survey.bases:
            yield error(self._folder, "", "no .log file")
            return
        try:
            refuse_other_formats(SystemDisk(), self._folder)
        except UnknownFormat as found:
            yield self._unknown(found.path, found.reason)
            return
        checks: dict[int, IndexChecks] = {}

        def watch(segment: SurveyedSegment) -> list[Watcher]:
            self._path = segment.path
            made = IndexChecks(segment, was_closed=self._was_closed)
            checks[segment.base_offset] = made
            return [self._watch_epoch, self._watch_records, *made.watchers()]

        yield from self._check_snapshot(self.survey.start_offset)
        previous_end = self.survey.start_offset
        for segment in self.survey.segments(watch):
            if segment.base_offset < previous_end:
                text = f"begins before the end {previous_end} of the segment before it"
                yield error(segment.path, f"offset {segment.base_offset}", text)
            previous_end = segment.end_offset
            for damage in segment.damages:
                if damage.is_unknown:
                    yield self._unknown(segment.path, damage.reason)
                    return
            if segment.damages and met is not None:
                met(segment)
            yield from (self._damage(segment, damage) for damage in segment.damages)
            yield from self._record_findings
            self._record_findings.clear()
            yield from checks.pop(segment.base_offset).findings()
            yield from check_aborted(segment, self.survey, was_closed=self._was_closed)
            yield from self._check_snapshot(segment.end_offset)
        yield from self._check_epochs()
        yield from self._check_folder()

    def _unknown(self, path: str, reason: str) -> Finding:
        self.is_unknown = True
        return error(path, "", reason)

    # ---- batches

    def _damage(self, segment: SurveyedSegment, damage: Damage) -> Finding:
        if damage.is_batch:
            return error(segment.path, f"offset {damage.first_offset}", damage.reason)
        where = f"byte {damage.position}"
        text = f"{damage.size} bytes are no batch: {damage.reason}"
        is_tail = segment.is_active and damage is segment.damages[-1]
        is_tail = is_tail and damage.position + damage.size == segment.size
        if is_tail and self._in_use:
            return note(segment.path, where, f"{text}; it may be an append in progress")
        if is_tail and not self._was_closed:
            return note(segment.path, where, f"{text}; the next start cuts it off")
        return error(segment.path, where, text)

    def _watch_epoch(self, batch: IntactBatch) -> None:
        epoch = batch.header.leader_epoch
        latest = self._epochs[-1][0] if self._epochs else -1
        if epoch > latest:
            self._epochs.append((epoch, batch.header.base_offset))
        elif epoch < latest and batch.header.record_count:
            where = f"offset {batch.header.base_offset}"
            text = f"leader epoch {epoch} after {latest}"
            self._record_findings.append(error(self._path, where, text))

    def _watch_records(self, batch: IntactBatch) -> None:
        """Parse the records of a batch: they must agree with its header."""
        header = batch.header
        where = f"offset {header.base_offset}"
        last, newest = header.base_offset - 1, -1
        try:
            for record in iter_records(batch.data, 0, header):
                if not last < record.offset <= header.last_offset:
                    text = f"a record of offset {record.offset} after {last}"
                    self._record_findings.append(error(self._path, where, text))
                    return
                last, newest = record.offset, max(newest, record.timestamp)
        except ProtocolError as problem:
            text = f"the batch cannot be opened: {problem.message}"
            self._record_findings.append(error(self._path, where, text))
            return
        if newest > header.max_timestamp:
            text = f"a record of time {newest} in a batch whose newest is {header.max_timestamp}"
            self._record_findings.append(error(self._path, where, text))

    # ---- producers

    def _check_snapshot(self, offset: int) -> Iterator[Finding]:
        """Check the snapshot of the moment before `offset`, if there is one.

        It is compared with the log only if no earlier record was lost. Expired producers may be
        missing from it, but its entries must agree with the log.
        """
        self._snapshots_seen.add(offset)
        prefix = os.path.join(self._folder, f"{offset:020d}")
        path = prefix + SNAPSHOT_SUFFIX
        data = read_file(path)
        if data is None:
            return
        entries = parse_snapshot(data)
        if entries is None:
            yield error(path, "", f"{len(data)} bytes with a wrong CRC or version")
            return
        if self.survey.is_whole and not self.survey.is_thinned:
            yield from self._compare(path, entries)
        cached = parse_batches(read_file(prefix + BATCHES_SUFFIX) or None)
        if cached is None and os.path.exists(prefix + BATCHES_SUFFIX):
            yield error(prefix + BATCHES_SUFFIX, "", "a wrong CRC or version")

    def _compare(self, path: str, entries: list[ProducerEntry]) -> Iterator[Finding]:
        known = self.survey.state.producers
        for entry in entries:
            implied = known.entry(entry.producer_id)
            if implied is None:
                continue
            said, found = _state_of(entry), _state_of(implied)
            if said != found:
                where = f"producer {entry.producer_id}"
                yield error(path, where, f"says {said}, the log {found}")
        named = {entry.producer_id for entry in entries}
        for producer_id in known.undecided.values():
            if producer_id not in named:
                text = "misses a producer with an open transaction"
                yield error(path, f"producer {producer_id}", text)

    def _check_snapshot_alone(self, path: str) -> Iterator[Finding]:
        if parse_snapshot(read_file(path)) is None:
            yield error(path, "", "a wrong CRC or version")

    # ---- the folder

    @property
    def _due_from(self) -> float:
        """Epochs that begin here or later need not be noted: the next start reads the batches.

        They are noted at a flush, at the end of a segment, and by a stop in order.
        """
        return math.inf if self._was_closed else self.survey.bases[-1]

    def _check_epochs(self) -> Iterator[Finding]:
        path = os.path.join(self._folder, LEADER_EPOCHS_NAME)
        data = read_file(path)
        entries = parse_epochs(data)
        if entries is None:
            if data is not None:
                yield error(path, "", f"{len(data)} bytes that do not parse")
            elif any(start < self._due_from for _, start in self._epochs):
                yield error(path, "", "missing")
            return
        starts = dict(entries)
        ends = [*(start for _, start in self._epochs[1:]), self.survey.end_offset]
        for (epoch, start), end in zip(self._epochs, ends, strict=False):
            said = starts.get(epoch)
            where = f"epoch {epoch}"
            if said is None and end > self._log_start:
                if start >= self._due_from and epoch > max(starts, default=-1):
                    continue
                yield error(path, where, f"missing; it begins at offset {start} in the log")
            elif said is not None and said > max(start, self._log_start):
                yield error(path, where, f"begins at {said}, in the log at {start}")
        if entries and entries[-1][1] > self.survey.end_offset:
            text = f"begins at {entries[-1][1]}, beyond the log's end {self.survey.end_offset}"
            finding = error(path, f"epoch {entries[-1][0]}", text)
            yield finding._replace(severity=NOTE) if self._in_use else finding

    def _check_folder(self) -> Iterator[Finding]:
        path = os.path.join(self._folder, PARTITION_METADATA_NAME)
        data = read_file(path)
        if data is None:
            yield error(path, "", "missing: nothing says which topic the folder is of")
        elif parse_partition_metadata(data) is None:
            yield error(path, "", f"{len(data)} bytes that name no topic id")
        bases = set(self.survey.bases)
        for name in sorted(os.listdir(self._folder)):
            path = os.path.join(self._folder, name)
            kind = kind_of(name)
            if is_passing(name):
                yield note(path, "", "set aside, or on its way out")
            elif kind is None:
                yield note(path, "", "no file of a partition")
            elif kind in (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.ABORTED):
                if base_offset(name) not in bases:
                    yield note(path, "", "no .log file of that offset")
            elif kind is FileKind.REGISTER and None in parse_register(read_file(path) or b""):
                yield error(path, "", "a damaged record; the next start does without it")
            elif kind is FileKind.SNAPSHOT and base_offset(name) not in self._snapshots_seen:
                yield from self._check_snapshot_alone(path)


def log_start_of(folder: str) -> int:
    """Where the log starts by the checkpoint beside the folder: records may have been deleted."""
    return noted_offset(folder, LOG_STARTS_NAME)


def noted_offset(folder: str, checkpoint_name: str) -> int:
    """Return a partition's offset in a checkpoint beside its folder; 0 without one."""
    folder = os.path.abspath(folder)
    path = os.path.join(os.path.dirname(folder), checkpoint_name)
    partition = partition_of(folder)
    offsets = parse_offsets(read_file(path)) or {}
    return offsets.get(TopicPartition(*partition), 0) if partition else 0


def _state_of(entry: ProducerEntry) -> dict[str, int]:
    """What a snapshot and the log must agree on."""
    batches = entry.batches
    return {
        "epoch": entry.epoch,
        "last sequence": entry.last_sequence,
        "last offset": batches[-1].last_offset if batches else -1,
        "open since": entry.transaction_first_offset,
    }

"""Reads a partition's log from the first batch to the last, and derives its state.

Each segment is read once. What it implies (producers, aborted transactions, leader epochs) is built
by the same code that the broker uses when it recovers. Others watch the batches go by, so that no
segment needs more memory than its indexes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from oncelog.cli.log.decoding import is_internal, why_unreadable
from oncelog.cli.log.kinds import partition_of, segments_in
from oncelog.cli.log.reading import Damage, IntactBatch, read_log
from oncelog.core.errors import ProtocolError
from oncelog.protocol.record import iter_records
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.files import LOG_SUFFIX, SNAPSHOT_SUFFIX
from oncelog.storage.producer_snapshot import parse_snapshot
from oncelog.storage.producer_state import EndedTransactions, ProducerEntry
from oncelog.storage.replay import DerivedState

__all__ = ["Survey", "SurveyedSegment", "Watcher"]

Watcher = Callable[[IntactBatch], None]


@dataclass(slots=True)
class SurveyedSegment:
    """The contents of one `.log` file."""

    base_offset: int
    path: str
    is_active: bool
    size: int = 0
    batches_count: int = 0
    end_offset: int = 0
    """After the last sound batch."""
    max_timestamp_ms: int = -1
    damages: list[Damage] = field(default_factory=list)
    open_producers: list[dict[int, ProducerEntry]] = field(default_factory=list)
    """Of each damage: the producers whose transactions were open in front of it, as of then."""
    aborted: list[AbortedTxn] = field(default_factory=list)

    def beside(self, suffix: str) -> str:
        """Path of another file of this segment."""
        return self.path.removesuffix(LOG_SUFFIX) + suffix


class Survey:
    """One partition's folder. `state` is as of the segment that was surveyed last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._topic = (partition_of(folder) or ("", 0))[0]
        self.bases = segments_in(folder)
        self.state = DerivedState()
        self.is_whole = True
        """False once damage was met: from there on the state may lack what the damage took."""
        self.is_thinned = False
        """Whether offsets are missing, as after compaction: then the state has gaps too."""
        self.end_offset = 0
        self._load_first_snapshot()

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment, 0 when there is none."""
        return self.bases[0] if self.bases else 0

    def segments(
        self, watch: Callable[[SurveyedSegment], Sequence[Watcher]]
    ) -> Iterator[SurveyedSegment]:
        """Survey segment by segment. `watch` says, before each, who sees its batches."""
        for base in self.bases:
            path = os.path.join(self.folder, f"{base:020d}{LOG_SUFFIX}")
            segment = SurveyedSegment(base, path, base == self.bases[-1], end_offset=base)
            self._survey(segment, watch(segment))
            yield segment

    def _survey(self, segment: SurveyedSegment, watchers: Sequence[Watcher]) -> None:
        segment.size = os.path.getsize(segment.path)
        state = self.state
        for stretch in read_log(segment.path, segment.base_offset):
            found = stretch if isinstance(stretch, Damage) else self._judged(stretch)
            if isinstance(found, Damage):
                segment.damages.append(found)
                segment.open_producers.append(self._open_producers())
                self.is_whole = False
                continue
            header = found.header
            is_full = header.record_count == header.last_offset_delta + 1
            self.is_thinned |= not is_full or header.base_offset != segment.end_offset
            segment.batches_count += 1
            segment.end_offset = header.next_offset
            segment.max_timestamp_ms = max(segment.max_timestamp_ms, header.max_timestamp)
            aborted_count = len(state.aborted)
            state.apply(header, found.data, 0, header.max_timestamp, note_aborted=True)
            if len(state.aborted) != aborted_count:
                segment.aborted += state.aborted.between(header.base_offset, header.next_offset)
            for watcher in watchers:
                watcher(found)
        self.end_offset = segment.end_offset
        # What is above no high watermark is of no interest here, and would only grow.
        state.producers.unreplicated.clear()
        state.aborted.truncate_from_start(segment.end_offset)

    def _judged(self, batch: IntactBatch) -> IntactBatch | Damage:
        """A batch of an internal topic counts as damage if its coordinator cannot load it."""
        header = batch.header
        if header.is_control or not is_internal(self._topic):
            return batch
        try:
            for record in iter_records(batch.data, 0, header):
                reason = why_unreadable(self._topic, record)
                if reason is not None:
                    text = f"its coordinator cannot read the record at {record.offset}: {reason}"
                    place = (batch.position, header.length, text)
                    offsets = (header.base_offset, header.next_offset, header.leader_epoch)
                    return Damage(*place, *offsets, is_last=False, is_batch=True)
        except ProtocolError:
            pass  # Records that are none are said by who opens the batch.
        return batch

    def _open_producers(self) -> dict[int, ProducerEntry]:
        producers = self.state.producers
        found = {}
        for producer_id in producers.undecided.values():
            entry = producers.entry(producer_id)
            if entry is not None:
                found[producer_id] = ProducerEntry(
                    producer_id,
                    entry.epoch,
                    entry.coordinator_epoch,
                    entry.last_timestamp_ms,
                    entry.transaction_first_offset,
                    entry.batches,
                )
        return found

    def _load_first_snapshot(self) -> None:
        """Take up what was known of producers before the first segment that is left."""
        if not self.bases or self.bases[0] == 0:
            return
        path = os.path.join(self.folder, f"{self.bases[0]:020d}{SNAPSHOT_SUFFIX}")
        try:
            with open(path, "rb") as file:
                entries = parse_snapshot(file.read())
        except FileNotFoundError:
            entries = None
        self.state.producers.load(entries or [], EndedTransactions(self.bases[0], {}))

"""Scans one segment batch by batch, as recovery does above the recovery point and after damage.

It rebuilds the segment's indexes and the state that follows from its batches. The first bad batch
above the recovery point ends the log; below it batches are synced, so damage becomes a place whose
offsets are an error, and what follows is kept (INV-9).
"""

from dataclasses import dataclass

from oncelog.runtime.disk import Disk
from oncelog.storage.batch_reader import BatchReader, note_run
from oncelog.storage.config import LogConfig
from oncelog.storage.files import CUT_SUFFIX
from oncelog.storage.formats import require_known
from oncelog.storage.header_walk import DamagedPlace
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.recovery_report import RecoveryReport
from oncelog.storage.replay import DerivedState
from oncelog.storage.segment import Segment
from oncelog.storage.segment_register import SealedSegment
from oncelog.storage.state_files import StateFiles

__all__ = ["SegmentScan"]


@dataclass(slots=True)
class SegmentScan:
    """Scans segments of one log. `segments` are all of it, in order."""

    disk: Disk
    config: LogConfig
    now_ms: int
    files: StateFiles
    segments: list[Segment]
    report: RecoveryReport
    is_ours: bool
    """Whether Oncelog wrote to the folder, and not only Apache Kafka."""
    has_cut: bool = False
    """Whether bytes were cut off: then the file has to be synced."""

    def run(self, slot: int, state: DerivedState, floor: int | None) -> bool:
        """Check one segment batch by batch and rebuild its index; return whether it had to be cut.

        A bad batch at or above `floor` is cut off; without `floor` none is.
        """
        segments = self.segments
        segment = segments[slot]
        expected = segment.base_offset
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
        sealed = self.files.register.get(segment.base_offset)
        reader = self._reader(segment, following, sealed, floor)
        known = self.files.read_aborted(segment, sealed) or [] if sealed is not None else []
        is_whole = sealed is not None and sealed.is_of(segment.size, following)
        may_have_gaps = self.config.is_compacted or is_whole
        segment.start_indexes()
        position, was_plain, interval = 0, False, self.config.index_interval_bytes
        while position < segment.size:
            if was_plain:
                was_plain = False
                room = interval - segment.bytes_since_index_entry
                run = reader.plain_run(position, expected, state.epochs.latest, room)
                if run is not None:
                    note_run(segment, run, position)
                    state.apply_run(run.next_offset)
                    self.report.scanned(run.end_position - position)
                    position, expected = run.end_position, run.next_offset
                    continue
            sound = reader.sound_at(position, expected)
            if sound is not None:
                header = sound.header
                if header.base_offset > expected and not may_have_gaps:
                    self.report.skipped(segment.path, expected, header.base_offset)
                placed = PlacedBatch(
                    0, header.length, header.base_offset, header.last_offset, header.max_timestamp
                )
                segment.note(placed, position, interval)
                state.apply(header, sound.buffer, sound.place, self.now_ms, note_aborted=True)
                position += header.length
                expected = header.next_offset
                was_plain = header.producer_id < 0
                self.report.scanned(header.length)
                continue
            require_known(segment.file, segment.size, position, expected)
            if floor is not None and self._ends_at(reader, position, expected, floor, following):
                self._cut(segment, position, expected, floor)
                return expected != following
            end, offset = reader.behind(position, expected)
            if offset is None:
                offset = following or max(expected, floor or 0)
            self._note_damage(segment, DamagedPlace(position, end, expected, offset))
            state.end_lost(known, expected, offset, self.now_ms)
            position, expected = end, offset
        if following is not None and expected < following:
            if self._may_end_at(segment, expected, following, floor):
                segment.end_offset = following
            elif floor is None:
                self.note_gap(segment, expected)
                state.end_lost(known, expected, following, self.now_ms)
        if segment.damaged:
            state.correct_aborted(known, segment.base_offset, segment.end_offset)
        return False

    def _reader(
        self,
        segment: Segment,
        following: int | None,
        sealed: SealedSegment | None,
        floor: int | None,
    ) -> BatchReader:
        certain_end = (floor or 0) if following is None else following
        if following is None and sealed is not None and sealed.size == segment.size:
            certain_end = sealed.end_offset
        return BatchReader(
            segment.file.pread,
            segment.size,
            segment.base_offset,
            following,
            compact=self.config.is_compacted,
            certain_end=certain_end,
        )

    def _may_end_at(
        self, segment: Segment, end_offset: int, following: int, floor: int | None
    ) -> bool:
        """Whether no record is lost between a segment's last batch and the next segment.

        Compaction may have removed the last batches. Above `floor` a loss of power may have too:
        there the register must confirm the segment. A log of Apache Kafka has none, and is trusted.
        """
        register = self.files.register
        if register.was_whole(segment.base_offset, segment.size, following):
            return True
        is_synced = floor is None or end_offset < floor
        return self.config.is_compacted and (is_synced or not self.is_ours)

    def _ends_at(
        self, reader: BatchReader, position: int, expected: int, floor: int, following: int | None
    ) -> bool:
        """Whether a bad place is the end of its segment."""
        if expected >= floor or expected == following:
            return True
        return following is None and reader.is_torn_at(position, expected)

    def _cut(self, segment: Segment, position: int, expected: int, floor: int) -> None:
        size = segment.size - position
        why = "no sound batch begins there"
        if expected < floor:
            # Below the recovery point, so the segment was complete when it was synced.
            kept_as = f"{segment.path}.{position}{CUT_SUFFIX}"
            self.disk.write_atomic(kept_as, segment.file.pread(size, position), sync=False)
            why = f"the file ends within a batch; the bytes are kept as {kept_as}"
        segment.file.truncate(position)
        segment.size = position
        self.has_cut = True
        self.report.cut(segment.path, position, expected, size, why)

    def note_gap(self, segment: Segment, end_offset: int) -> None:
        """Record that the offsets from `end_offset` to the next segment are in no file."""
        following = self.segments[self.segments.index(segment) + 1].base_offset
        self._note_damage(segment, DamagedPlace(segment.size, segment.size, end_offset, following))

    def _note_damage(self, segment: Segment, place: DamagedPlace) -> None:
        segment.note_damage(place)
        self.report.damaged(segment.path, place)

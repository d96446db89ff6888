"""Opens a partition's folder after a crash or a clean stop (INV-9).

Everything below the recovery point was synced, and no batch of it is removed:

- an index file that is missing or differs from its sealed state is rebuilt from its own segment,
  without reading another one;
- damage, or a segment that is missing or too short, remains: its offsets are an error
  (`CorruptBatch`), and the batches after it are served.

Above it a power loss may have destroyed any byte. Every batch from the segment of the recovery
point on is read and its CRC checked; the first bad one ends the log there, and later segments are
renamed. After a clean stop only files that differ from their closed state are scanned.

Rebuilt files are written back, and they and the batches accepted above the recovery point are
synced, before the log counts as recovered: the next start may trust them (INV-3). Each irregularity
is logged once (`recovery_report`).
"""

from dataclasses import dataclass

from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.checkpoints import parse_epochs
from oncelog.storage.config import LogConfig
from oncelog.storage.files import FAILED_SYNC_NAME, LEADER_EPOCHS_NAME
from oncelog.storage.formats import refuse_other_formats
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.recovery_files import (
    believed_end,
    find_segments,
    has_our_files,
    rewrite,
    set_segment_aside,
)
from oncelog.storage.recovery_report import RecoveryReport
from oncelog.storage.replay import DerivedState, may_hold_marker, replay_headers
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment import Segment
from oncelog.storage.segment_register import SealedSegment
from oncelog.storage.segment_scan import SegmentScan
from oncelog.storage.snapshots import Snapshots
from oncelog.storage.state_files import StateFiles

__all__ = ["Recovered", "RecoveryReport", "recover"]


@dataclass(slots=True)
class Recovered:
    """A recovered log: its segments, the active one last, and the state derived from them.

    All of it survives a loss of power.
    """

    segments: list[Segment]
    state: DerivedState
    snapshots: Snapshots
    files: StateFiles
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport
    changed: bool
    """Whether the next clean stop has anything to write."""


def recover(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    partition: str,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int | None = None,
    rescan: bool = False,
) -> Recovered:
    """Open the folder. `clean`: the log was closed cleanly and not written since.

    With `rescan` every segment is read, and all files that follow from it are written. For
    `high_watermark` see `PartitionLog.open`. Raises `StorageFailure`; of these `UnknownFormat`
    means that no `.log` file has changed.
    """
    recovery = _Recovery(disk, directory, config, now_ms, partition, high_watermark)
    try:
        return recovery.run(clean, recovery_point, log_start_offset, rescan)
    except StorageFailure as failure:
        recovery.files.note_failed_sync(failure)
        for segment in recovery.segments:
            segment.close()
        raise


class _Recovery:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        now_ms: int,
        partition: str,
        high_watermark: int | None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._high_watermark = high_watermark
        self._report = RecoveryReport(partition)
        self.files = StateFiles(disk, directory)
        refuse_other_formats(disk, directory, self.files.register)
        self.segments = find_segments(disk, directory, self._report)
        self._snapshots = Snapshots(disk, directory, self._report.warn)
        self._scan = SegmentScan(
            disk,
            config,
            now_ms,
            self.files,
            self.segments,
            self._report,
            is_ours=has_our_files(disk, directory),
        )
        epochs = parse_epochs(disk.read(f"{directory}/{LEADER_EPOCHS_NAME}"))
        self._epochs_known = epochs is not None
        self._has_found_epochs = False
        self._state = DerivedState(LeaderEpochs(epochs))
        self._rebuilt: dict[int, list[AbortedTxn]] = {}
        self._has_moved = False
        """Whether something was set aside, forgotten or written again: sync it all."""

    def run(
        self, clean: bool, recovery_point: int, log_start_offset: int, rescan: bool
    ) -> Recovered:
        segments = self.segments
        failed_path = f"{self._directory}/{FAILED_SYNC_NAME}"
        must_rewrite = self._disk.exists(failed_path)
        self._report.sync_had_failed = must_rewrite
        clean = clean and not must_rewrite
        is_new = not segments and not recovery_point
        if not segments:
            segments.append(Segment(self._disk, self._directory, log_start_offset))
            segments[0].create()
        self._report.was_closed = clean or is_new
        floor = closed_at = recovery_point
        if clean:
            active = self.files.register.get(segments[-1].base_offset)
            closed_at = max(recovery_point, active.end_offset if active is not None else 0)
            floor = max(closed_at, segments[-1].base_offset)
        first = len(segments) if is_new else self._first_to_scan(clean, recovery_point)
        if rescan:
            first = 0
            self._has_moved = True
        aborted = [self._take_up(slot) for slot in range(first)]
        if not clean and self._lacks_epochs(log_start_offset):
            self._find_epochs(segments[:first])
        self._replay(first)
        for entries in aborted:
            for entry in entries:
                self._state.aborted.append(entry)
        self._scan_all(first, floor)
        self._state.end_scan()
        end = segments[-1].end_offset
        if first < len(segments) and end < closed_at:
            self._report.lost_tail = True
            self._report.warn(f"the log ends at offset {end}, but {closed_at} was synced")
        start = self._start(log_start_offset, end, clean)
        # A snapshot beyond the end belongs to lost records; the next start would trust it.
        self._has_moved |= any(offset > end for offset in self._snapshots.offsets)
        kept = {segment.base_offset for segment in segments}
        if first == len(segments):  # A scan does not read the one at the end: it may be torn.
            kept.add(end)
        self._snapshots.keep_only(kept)
        self._state.epochs.truncate_from_end(end)
        if self.files.register.keep_only(segment.base_offset for segment in segments):
            self.files.register.write()
            self._has_moved = True
        if not is_new:
            self._write_back(first, recovery_point, must_rewrite)
        if must_rewrite:
            self._disk.remove(failed_path)
        for segment in segments:
            segment.begun_ms = self._now_ms  # Of all: a truncation may make any the active one.
        for segment in segments[:-1]:
            segment.release()
        changed = not clean or first < len(segments) or bool(self._rebuilt)
        return Recovered(
            segments, self._state, self._snapshots, self.files, start, end, self._report, changed
        )

    def _start(self, log_start_offset: int, end: int, clean: bool) -> int:
        """Return the log start offset; `log_start_offset` is the checkpoint's.

        One beyond the end is wrong after a clean stop, and trusting it would let retention delete
        everything (D14). Otherwise the end may have been lost.
        """
        first = self.segments[0].base_offset
        if log_start_offset > end:
            start = first if clean else end
            self._report.warn(
                f"the checkpoint lets it start at offset {log_start_offset}, beyond its end {end}; "
                f"it starts at {start}"
            )
            return start
        return max(log_start_offset, first)

    # ---- what is trusted ----

    def _lacks_epochs(self, log_start_offset: int) -> bool:
        """Whether the log begins before all epochs that are noted.

        Retention had forgotten those of segments whose removal was then lost with the power.
        """
        noted = self._state.epochs.entries()
        return bool(noted) and noted[0][1] > max(log_start_offset, self.segments[0].base_offset)

    def _find_epochs(self, segments: list[Segment]) -> None:
        """Add the epochs of segments that are not scanned."""
        noted = self._state.epochs.entries()
        found, _ = self._replayed(segments, self.segments[0].base_offset)
        for epoch, start_offset in noted:
            found.epochs.assign(epoch, start_offset)
        self._state = DerivedState(found.epochs)
        self._has_found_epochs = True

    def _first_to_scan(self, clean: bool, recovery_point: int) -> int:
        segments = self.segments
        last = len(segments) - 1
        if clean:
            return last + 1 if self._resume_active(recovery_point) else last
        for slot, segment in enumerate(segments[:last]):
            # A segment that ends there may have been sealed, unsynced, after the flush.
            if segment.end_offset >= recovery_point:
                return slot
        return last

    def _resume_active(self, recovery_point: int) -> bool:
        """Use the active segment as it was closed; False if its files have changed since."""
        active = self.segments[-1]
        sealed = self.files.register.get(active.base_offset)
        if sealed is None and not (active.size or active.base_offset or recovery_point):
            active.start_indexes()  # Nothing was ever appended, so there was nothing to close.
            return True
        try:
            if sealed is not None and self._is_as_sealed(active, sealed):
                active.resume()
                if active.end_offset == sealed.end_offset:
                    return True
        except CorruptBatch as damage:
            self._report.warn(str(damage))
        self._report.rebuilt_segments_count += 1
        self._report.warn(f"{active.path} or its index files are not as they were closed; scanning")
        return False

    def _is_as_sealed(self, segment: Segment, sealed: SealedSegment) -> bool:
        return (
            sealed.size == segment.size
            and not sealed.is_damaged
            and segment.load_indexes(sealed)
            and self.files.read_aborted(segment, sealed) is not None
        )

    def _take_up(self, slot: int) -> list[AbortedTxn]:
        """Check the index files of a sealed segment, or rebuild them; returns its `.txnindex`."""
        if slot in self._rebuilt:
            return self._rebuilt[slot]
        segment = self.segments[slot]
        entries = self._trusted(segment, slot)
        if entries is None:
            self._rebuild(slot)
            return self._rebuilt[slot]
        self._release(slot)
        return entries

    def _release(self, slot: int) -> None:
        if slot < len(self.segments) - 1:
            self.segments[slot].release()

    def _trusted(self, segment: Segment, slot: int) -> list[AbortedTxn] | None:
        """Return a segment's aborted transactions; None if its index files are not its own."""
        sealed = self.files.register.get(segment.base_offset)
        is_active = slot == len(self.segments) - 1
        is_other = sealed is not None and (
            sealed.size != segment.size
            or sealed.is_damaged
            or (sealed.end_offset > segment.end_offset and not is_active)
        )
        if is_other or not segment.load_indexes(sealed):
            return None
        entries = self.files.read_aborted(segment, sealed)
        if entries is None or is_active:
            return entries
        end_offset = (
            sealed.end_offset
            if sealed
            else believed_end(segment, compact=self._config.is_compacted)
        )
        if end_offset is None:
            return None
        if end_offset < segment.end_offset:
            self._scan.note_gap(segment, end_offset)
        elif sealed is None:  # Later starts compare the files with what this one believed.
            self.files.note_sealed(segment, "")
        return entries

    # ---- rebuilding a segment below the recovery point ----

    def _rebuild(self, slot: int) -> None:
        """Rebuild the index files of one sealed segment from its own batches."""
        segment = self.segments[slot]
        self._report.rebuilt_segments_count += 1
        self._report.warn(
            f"{segment.path} or its index files are not as they were written; they are rebuilt "
            f"from its {segment.size} bytes"
        )
        state = self._state_before(slot)
        self._rebuilt[slot] = []
        self._scan.run(slot, state, None)
        self.files.seal(state, segment)
        self._rebuilt[slot] = state.aborted.between(segment.base_offset, segment.end_offset)
        self._release(slot)

    def _state_before(self, slot: int) -> DerivedState:
        """Return the producer state at the start of a segment."""
        at = self.segments[slot].base_offset
        state, loaded = self._replayed(self.segments[:slot], at)
        if loaded != at:
            self._snapshots.write(state.producers, at, sync=False)
        return state

    def _replayed(
        self, segments: list[Segment], snapshot_at_most: int
    ) -> tuple[DerivedState, int | None]:
        """Return the producer state behind some segments, and the snapshot it was replayed from."""
        while True:
            state = DerivedState()
            loaded = self._snapshots.load_newest(snapshot_at_most, state.producers)
            from_offset = self.segments[0].base_offset if loaded is None else loaded
            if self._replay_into(state, segments, from_offset) is None:
                return state, loaded

    def _replay_into(
        self, state: DerivedState, segments: list[Segment], from_offset: int
    ) -> Segment | None:
        """Apply headers from an offset on to `state`; return the first segment found damaged.

        It has been rebuilt then: the next attempt skips its damaged places. None without damage.
        """
        for slot, segment in enumerate(segments):
            if segment.end_offset <= from_offset:
                continue
            if slot not in self._rebuilt and not segment.load_indexes():
                self._rebuild(slot)
            try:
                self._report.replayed_batches_count += replay_headers(
                    [segment], from_offset, state, self._now_ms
                )
            except CorruptBatch as damage:
                if slot in self._rebuilt:
                    raise StorageFailure("read", segment.path, damage) from damage
                self._rebuild(slot)
                return segment
        return None

    def _replay(self, first: int) -> None:
        """Load the producer state at the offset where the scan begins, or at the log's end."""
        segments = self.segments
        at_most = segments[first].base_offset if first < len(segments) else segments[-1].end_offset
        known = self._state.epochs.entries()
        while True:
            self._state = DerivedState(LeaderEpochs(known))
            if first < len(segments):  # The scan rebuilds them from the history that remains.
                self._state.scan_epochs_from(at_most)
            loaded = None
            if self._epochs_known:
                loaded = self._snapshots.load_newest(at_most, self._state.producers)
            from_offset = segments[0].base_offset if loaded is None else loaded
            # Headers only: these segments are sound, but no snapshot has their producer state.
            if self._replay_into(self._state, segments[:first], from_offset) is None:
                break
        has_found = loaded is not None and self._find_unreplicated(segments[:first], loaded)
        if (has_found or loaded != at_most) and at_most > segments[0].base_offset:
            # What takes the place of a sound one must not be lost with power, and that one with it.
            is_in_place = loaded == at_most
            self._snapshots.write(self._state.producers, at_most, sync=is_in_place)

    def _find_unreplicated(self, segments: list[Segment], loaded: int) -> bool:
        """Find the transactions that have ended below a snapshot and above the high watermark.

        They are undecided until the marker is replicated (INV-7). Where the snapshot does not name
        all of them, an older one has them open; returns whether that was read.
        """
        known, producers = self._high_watermark, self._state.producers
        if known is None or known >= producers.ended().since:
            return False
        if not may_hold_marker(segments, known):
            producers.none_ended_since(known)
            return False
        state, _ = self._replayed(segments, max(known, self.segments[0].base_offset))
        producers.take_unreplicated(state.producers, loaded)
        return True

    # ---- scanning ----

    def _scan_all(self, first: int, floor: int) -> None:
        """Scan the segments from `first` on; the first bad batch above `floor` ends the log."""
        segments = self.segments
        expected = segments[first].base_offset if first < len(segments) else 0
        self._report.to_scan_bytes += sum(segment.size for segment in segments[first:])
        for slot in range(first, len(segments)):
            segment = segments[slot]
            if segment.base_offset > expected:
                if expected >= floor:
                    self._set_aside_from(slot)
                    segments[-1].resume()  # Released: the next roll would read its old indexes.
                    return
                self._scan.note_gap(segments[slot - 1], expected)
                self._seal(slot - 1)
            if slot > first:
                self._snapshots.write(self._state.producers, segment.base_offset, sync=False)
            was_cut = self._scan.run(slot, self._state, floor)
            self._seal(slot)
            if was_cut:
                self._set_aside_from(slot + 1)
                return
            expected = segment.end_offset
            self._release(slot)

    def _seal(self, slot: int) -> None:
        self.files.seal(self._state, self.segments[slot])

    def _set_aside_from(self, slot: int) -> None:
        for segment in reversed(self.segments[slot:]):
            set_segment_aside(self._disk, segment, self._report)
            self._has_moved = True
        del self.segments[slot:]

    # ---- writing back ----

    def _write_back(self, first: int, recovery_point: int, must_rewrite: bool) -> None:
        """Write back rebuilt files, and sync them and the accepted batches."""
        segments = self.segments
        state = self._state
        has_moved = self._has_moved or self._scan.has_cut
        must_note = not self._epochs_known or self._has_found_epochs or must_rewrite
        epochs_changed = state.epochs.changed or must_note
        if epochs_changed:
            self.files.write_epochs(state)
        if must_rewrite:
            self.files.register.write()
            self.files.rewrite_topic_id()
        for slot in self._rebuilt:
            if slot < len(segments):
                self.files.sync_indexes(segments[slot])
        for segment in segments[first:]:
            if must_rewrite:
                rewrite(segment, with_size=segment is segments[-1])
            if must_rewrite or has_moved or segment.end_offset > recovery_point:
                segment.kept.sync_plan()()
            if segment is not segments[-1]:
                self.files.sync_indexes(segment)
        accepted = first < len(segments) and segments[-1].end_offset > recovery_point
        if accepted or has_moved or self._rebuilt or epochs_changed:
            self.files.sync_names()

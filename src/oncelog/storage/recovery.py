"""Open what a crash, or a clean stop, left in a partition's folder (INV-9).

What may be found, and what becomes of it:

- a batch cut in the middle, or one whose CRC is wrong: cut there, and everything after it goes;
- indexes that are missing, short, or of a file that was cut: rebuilt from the log file;
- an empty last segment (a crash between roll and first append): kept, it is the active one;
- `.cleaned` and `.swap` files (a crash within a cleaning): see `swap`;
- `.deleted` and `.tmp` files (a crash within a deletion or before a rename): removed;
- index files without their `.log` (a crash within a deletion): removed;
- a snapshot above the end of the log, or a torn one: removed or passed over.

After a clean stop nothing is scanned. Otherwise every batch from the segment of the recovery point
on is read and its CRC checked. A killed process loses nothing that it had written; only a loss of
power can cut more than the last write.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.core.limits import INT32_MAX, RECOVERY_READ_SIZE_BYTES
from oncelog.protocol.batch import HEADER_SIZE, BatchHeader, check_crc
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTransaction, parse_aborted
from oncelog.storage.checkpoints import parse_epochs
from oncelog.storage.config import LogConfig
from oncelog.storage.files import (
    ABORTED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS_NAME,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    base_offset_of,
)
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.replay import DerivedState, replay_headers
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment import Segment, parse_header
from oncelog.storage.snapshots import Snapshots
from oncelog.storage.swap import finish_swaps

__all__ = ["Recovered", "RecoveryReport", "recover", "remove_segment_files"]

_LEFTOVERS = (DELETED_SUFFIX, ".tmp")


@dataclass(slots=True)
class RecoveryReport:
    """What opening the log had to do; for one line in the broker's log."""

    scanned_bytes: int = 0
    replayed_batches_count: int = 0
    cut_bytes: int = 0
    removed_segments_count: int = 0
    reasons: list[str] = field(default_factory=list)

    @property
    def has_lost_records(self) -> bool:
        """Whether the log may end, or have a gap, where records were: offsets are given again."""
        return self.cut_bytes > 0 or self.removed_segments_count > 0


@dataclass(slots=True)
class Recovered:
    """A partition's log as found: sealed segments, then the active one.

    And what follows from them.
    """

    segments: list[Segment]
    state: DerivedState
    snapshots: Snapshots
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport


def remove_segment_files(disk: Disk, prefix: str) -> None:
    """Delete a segment.

    The `.log` goes first, through a rename: half of a deletion is finished at the next start.
    """
    for suffix in SEGMENT_SUFFIXES:
        if disk.exists(prefix + suffix):
            disk.rename(prefix + suffix, prefix + suffix + DELETED_SUFFIX)
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(prefix + suffix + DELETED_SUFFIX)


def recover(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> Recovered:
    """Open the folder.

    `clean` says that the log was closed in order and nothing wrote to it since.
    """
    return _Recovery(disk, directory, config, now_ms).run(clean, recovery_point, log_start_offset)


class _Recovery:
    def __init__(self, disk: Disk, directory: str, config: LogConfig, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._report = RecoveryReport()
        self._segments = self._find_segments()
        self._snapshots = Snapshots(disk, directory)
        epochs = parse_epochs(disk.read(f"{directory}/{LEADER_EPOCHS_NAME}"))
        self._epochs_known = epochs is not None
        self._state = DerivedState(LeaderEpochs(epochs))

    def run(self, clean: bool, recovery_point: int, log_start_offset: int) -> Recovered:
        segments = self._segments
        if not segments:
            segments.append(self._new_segment(log_start_offset))
        scan_from = self._first_to_scan(clean, recovery_point)
        if scan_from == len(segments) and not self._resume_active():
            scan_from -= 1
        aborted = self._load_aborted(scan_from)
        scan_from = len(aborted)
        replay_from = self._load_snapshot(scan_from)
        for entries in aborted:
            for entry in entries:
                self._state.aborted.append(entry)
        # Headers only: these segments are sound, but no snapshot may say what they imply.
        self._report.replayed_batches_count = replay_headers(
            segments[:scan_from], replay_from, self._state, self._now_ms
        )
        self._scan_all(scan_from)
        end = segments[-1].end_offset
        start = min(max(log_start_offset, segments[0].base_offset), end)
        self._snapshots.remove(above=end)
        self._snapshots.keep_only({segment.base_offset for segment in segments} | {end})
        self._state.epochs.truncate_from_end(end)
        for segment in segments[:-1]:
            segment.release()
        return Recovered(segments, self._state, self._snapshots, start, end, self._report)

    def _find_segments(self) -> list[Segment]:
        finish_swaps(self._disk, self._directory)
        names = self._disk.list(self._directory)
        for name in names:
            if name.endswith(_LEFTOVERS):
                self._disk.remove(f"{self._directory}/{name}")
        found = (base_offset_of(name, LOG_SUFFIX) for name in names)
        bases = sorted(offset for offset in found if offset is not None)
        for suffix in SEGMENT_SUFFIXES[1:]:
            for name in names:
                offset = base_offset_of(name, suffix)
                if offset is not None and offset not in bases:
                    self._disk.remove(f"{self._directory}/{name}")
        segments = [Segment(self._disk, self._directory, base) for base in bases]
        for segment, following in zip(segments, [*bases, None][1:], strict=True):
            segment.size = segment.file.size()
            if following is not None:
                segment.end_offset = following
                segment.release()
        return segments

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._disk, self._directory, base_offset)
        segment.create()
        segment.write_indexes()
        return segment

    def _first_to_scan(self, clean: bool, recovery_point: int) -> int:
        segments = self._segments
        if not clean:
            for slot, segment in enumerate(segments):
                is_last = slot == len(segments) - 1
                # One that ends just there may have been sealed after that flush, unsynced.
                if is_last or segment.end_offset >= recovery_point:
                    break
            last = slot
        else:
            last = len(segments)
        for slot, segment in enumerate(segments[:last]):
            if not segment.load_indexes():
                self._report.reasons.append(f"index of segment {segment.base_offset} is damaged")
                return slot
            segment.release()
        return last

    def _resume_active(self) -> bool:
        active = self._segments[-1]
        try:
            active.resume()
        except (StorageFailure, CorruptBatch) as failure:
            self._report.reasons.append(str(failure))
            return False
        return True

    def _load_aborted(self, scan_from: int) -> list[list[AbortedTransaction]]:
        aborted = []
        for segment in self._segments[:scan_from]:
            entries = parse_aborted(self._disk.read(segment.prefix + ABORTED_SUFFIX))
            if entries is None:
                self._report.reasons.append(f"{segment.base_offset}{ABORTED_SUFFIX} is damaged")
                break
            aborted.append(entries)
        return aborted

    def _load_snapshot(self, scan_from: int) -> int:
        """Load producers as of the newest moment before anything that must be scanned."""
        segments = self._segments
        if not self._epochs_known:
            return segments[0].base_offset
        if scan_from < len(segments):
            at_most = segments[scan_from].base_offset
        else:
            at_most = segments[-1].end_offset
        loaded = self._snapshots.load_newest(at_most, self._state.producers)
        return segments[0].base_offset if loaded is None else loaded

    def _scan_all(self, scan_from: int) -> None:
        segments = self._segments
        expected = segments[scan_from].base_offset if scan_from < len(segments) else 0
        for slot in range(scan_from, len(segments)):
            segment = segments[slot]
            has_gap = (
                segment.base_offset > expected and "compact" not in self._config.cleanup_policy
            )
            if segment.base_offset < expected or has_gap:
                self._report.reasons.append(f"the log ends at {expected} before its next segment")
                self._remove_from(slot)
                return
            if not self._scan(segment, expected):
                self._remove_from(slot + 1)
                return
            expected = segment.end_offset

    def _scan(self, segment: Segment, expected: int) -> bool:
        """Check one segment batch by batch and index it again; False when it had to be cut."""
        segment.start_indexes()
        valid = 0
        for position, header, buffer, place in self._sound_batches(segment, expected):
            batch = PlacedBatch(
                0, header.length, header.base_offset, header.last_offset, header.max_timestamp
            )
            segment.note(batch, position, self._config.index_interval_bytes)
            self._state.apply(header, buffer, place, self._now_ms, note_aborted=True)
            valid = position + header.length
        whole = valid == segment.size
        self._report.scanned_bytes += valid
        if not whole:
            self._report.cut_bytes += segment.size - valid
            self._report.reasons.append(f"segment {segment.base_offset} is cut at byte {valid}")
            segment.file.truncate(valid)
            segment.size = valid
        segment.write_indexes()
        return whole

    def _sound_batches(
        self, segment: Segment, expected: int
    ) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Yield each batch up to the first invalid one.

        As (position in the file, header, buffer, position in the buffer).
        """
        position, size, chunk, chunk_start = 0, segment.size, b"", 0
        file = segment.file
        while position + HEADER_SIZE <= size:
            place = position - chunk_start
            if place + HEADER_SIZE > len(chunk):
                chunk, chunk_start, place = (
                    file.pread(RECOVERY_READ_SIZE_BYTES, position),
                    position,
                    0,
                )
            header = parse_header(chunk, place)
            if not _is_plausible(header, segment.base_offset, expected, size - position):
                return
            if place + header.length > len(chunk):
                length = max(RECOVERY_READ_SIZE_BYTES, header.length)
                chunk, chunk_start, place = file.pread(length, position), position, 0
            if not check_crc(chunk, place, header):
                return
            yield position, header, chunk, place
            expected = header.next_offset
            position += header.length

    def _remove_from(self, slot: int) -> None:
        for segment in reversed(self._segments[slot:]):
            self._report.removed_segments_count += 1
            self._report.cut_bytes += segment.size
            segment.close()
            remove_segment_files(self._disk, segment.prefix)
        del self._segments[slot:]


def _is_plausible(header: BatchHeader, base_offset: int, expected: int, available: int) -> bool:
    return (
        header.magic == 2
        and HEADER_SIZE <= header.length <= available
        and header.base_offset >= expected
        and header.last_offset_delta >= 0
        and header.record_count >= 0
        and header.last_offset - base_offset <= INT32_MAX
    )

"""Cleans one log, as short steps (Kafka's `Cleaner`).

First the newest offset of each key in the dirty part is stored in the offset map, as far as memory
allows. Then the segments up to there are read from the log's start and rewritten without the
records that those keys made obsolete, several small ones into one. Each group replaces its segments
before the next begins: a newer record is synced before the older one is removed.

Steps run in the executor, one at a time; between two of them the log accepts appends and reads.
Rewritten batches are checked by their CRC first. Damage ends the cleaning before any segment of its
group is replaced.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from oncelog.core.errors import OncelogError, ProtocolError
from oncelog.core.limits import CLEANER_STEP_BYTES, CLEANER_STEP_RECORDS_COUNT, INT32_MAX
from oncelog.protocol.batch import HEADER_SIZE
from oncelog.protocol.record_slices import iter_slices, unpacked
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTxn, format_aborted
from oncelog.storage.cleaner.batch_filter import BatchFilter, Buffer, CleanerStats
from oncelog.storage.cleaner.marks import Marks
from oncelog.storage.cleaner.offset_map import OffsetMap
from oncelog.storage.cleaner.reading import ReadBatch, iter_batches
from oncelog.storage.cleaner.selection import LogToClean
from oncelog.storage.cleaner.settings import CleanerSettings
from oncelog.storage.cleaner.transactions import CleanedTransactions
from oncelog.storage.config import LogConfig
from oncelog.storage.files import ABORTED_SUFFIX, CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from oncelog.storage.header_walk import parse_header
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.replay import end_marker_of
from oncelog.storage.segment import Segment
from oncelog.storage.time_index import TIME_INDEX_ENTRY_SIZE_BYTES

__all__ = ["Cleaning", "Uncleanable"]

_SLOTS_PER_RECORD = 64
"""Slots of the offset map that are read in the time that comparing one record's key takes."""


class Uncleanable(OncelogError):  # noqa: N818 - names a state of the log
    """A log that cannot be cleaned under these settings; the message says why."""


class Cleaning:
    """One cleaning. `steps` runs it; `end_offset` and `stats` are its results."""

    def __init__(
        self,
        disk: Disk,
        target: LogToClean,
        settings: CleanerSettings,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._target = target
        self._io_bytes = max(settings.io_buffer_bytes, HEADER_SIZE)
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        first, end = target.first_dirty_offset, target.first_uncleanable_offset
        self._segments = [s for s in target.log.cleaning.sealed_segments() if s.end_offset <= end]
        self._keys = OffsetMap(settings.dedupe_buffer_bytes, settings.load_factor, end - first)
        self.stats = CleanerStats()
        self.end_offset = first
        """The first offset that is dirty afterwards."""

    def steps(self) -> Generator[int, None, None]:
        """Do the work, and yield after each part how many bytes it read and wrote. Blocking.

        An `OncelogError` thrown in ends it before the next segments are replaced.

        Raises `CorruptBatch`, `ProtocolError` and `Uncleanable` if this log cannot be cleaned,
        `LogChanged` if it was closed, deleted or truncated during the cleaning, `StorageFailure`.
        """
        held = self._target.log
        if held.recovery_point < held.log_end_offset:
            # What makes a record obsolete must survive a loss of power before that record goes: the
            # newer one, and the marker of an abort, which may be in the active segment.
            held.flush()
            yield 0
        yield from self._note_keys()
        yield from self._rewrite()
        self.end_offset = self._keys.latest_offset + 1

    # ---- the offset map ----

    def _note_keys(self) -> Iterator[int]:
        start, keys = self._target.first_dirty_offset, self._keys
        # Markers before `start` are not read, so transactions that ended there are left out.
        transactions = self._transactions(from_offset=start)
        keys.latest_offset = start - 1
        step = _SegmentStep(self.stats)
        for segment in self._segments:
            if segment.end_offset <= start:
                continue
            for batch in self._batches(segment):
                self.stats.bytes_mapped += batch.header.length
                if not self._note_batch(batch, start, transactions):
                    yield step.end()
                    return
                keys.latest_offset = max(keys.latest_offset, batch.header.last_offset)
                if step.is_full_with(batch.header.length):
                    yield step.end()
            keys.latest_offset = segment.end_offset - 1
        yield step.end()

    def _note_batch(self, batch: ReadBatch, start: int, transactions: CleanedTransactions) -> bool:
        """False when the map is full: the batch is not part of this cleaning then."""
        buffer, position, header = batch
        if header.is_control:
            transactions.is_over(header, end_marker_of(buffer, position, header))
            return True
        if transactions.is_aborted(header) or header.last_offset < start:
            return True
        keys, keyless_count = self._keys, 0
        self.stats.records_compared += header.record_count
        for record in iter_slices(unpacked(buffer, position, header), header):
            if record.offset < start:
                continue
            if record.key is None:
                keyless_count += 1
            elif not keys.put(record.key, record.offset):
                if keys.latest_offset < start:
                    raise Uncleanable(
                        f"log.cleaner.dedupe.buffer.size has room for {keys.size_max} keys, "
                        f"and the batch at offset {header.base_offset} holds more"
                    )
                return False
        self.stats.records_without_key += keyless_count
        return True

    def _mark(self, marks: Marks) -> Iterator[int]:
        latest_offset = self._keys.latest_offset
        for offsets in self._keys.offsets(CLEANER_STEP_RECORDS_COUNT * _SLOTS_PER_RECORD):
            # Later ones belong to a batch of which the map holds only some keys.
            marks.add(offset for offset in offsets if offset <= latest_offset)
            yield 0

    # ---- the copy ----

    def _rewrite(self) -> Iterator[int]:
        held, keys = self._target.log, self._keys
        self.stats.keys_count = keys.size
        transactions = self._transactions()
        marks = Marks(self._target.first_dirty_offset, keys.latest_offset + 1)
        yield from self._mark(marks)
        batch_filter = BatchFilter(
            keys,
            marks,
            transactions,
            held.cleaning.last_records(),
            self._high_watermark,
            self._now_ms,
            held.config.delete_retention_ms,
            self.stats,
        )
        wanted = [s for s in self._segments if s.base_offset <= keys.latest_offset]
        for group in grouped(wanted, held.config):
            cleaned = Segment(self._disk, held.directory, group[0].base_offset)
            cleaned.begun_ms = group[0].begun_ms
            try:
                yield from self._write_group(group, cleaned, batch_filter)
                aborted = transactions.take_kept()
                self._seal(cleaned, aborted, group[-1])
                held.cleaning.replace_segments(group, cleaned, aborted)
            except OncelogError:
                if held.cleaning.is_open:
                    self._discard(cleaned)
                raise
            yield 0

    def _write_group(
        self, group: list[Segment], cleaned: Segment, batch_filter: BatchFilter
    ) -> Iterator[int]:
        writer = _Writer(cleaned, self._target.log.config, self._io_bytes)
        step = _SegmentStep(self.stats)
        for segment in group:
            for buffer, position, header in self._batches(segment):
                self.stats.bytes_read += header.length
                size = header.length
                kept = batch_filter.keep(buffer, position, header)
                if kept is not None:
                    size += len(kept)
                    writer.add(kept)
                if step.is_full_with(size):
                    yield step.end()
        writer.write()
        cleaned.end_offset = group[-1].end_offset
        self.stats.bytes_written += cleaned.size
        yield step.end()

    def _seal(self, cleaned: Segment, aborted: list[AbortedTxn], newest: Segment) -> None:
        """Sync the files; the last sync makes their names durable as well.

        Without timestamps a segment is as old as its file, so the new one is as old as `newest`.
        """
        with self._looking_at(newest):
            modified_ms = self._disk.modified_ms(newest.path)
        self._disk.set_modified_ms(cleaned.kept.path, modified_ms)
        cleaned.kept.sync_plan()()
        cleaned.write_indexes(sync=True, state=CLEANED_SUFFIX)
        # Also when it is empty: `swap` uses it to find the segment of an index.
        path = cleaned.prefix + ABORTED_SUFFIX + CLEANED_SUFFIX
        self._disk.write_atomic(path, format_aborted(aborted), sync=True)

    def _discard(self, cleaned: Segment) -> None:
        cleaned.close()
        for suffix in (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX):
            self._disk.remove(cleaned.prefix + suffix + CLEANED_SUFFIX)

    def _transactions(self, from_offset: int = 0) -> CleanedTransactions:
        return CleanedTransactions(self._target.log.cleaning.aborted_from(from_offset))

    def _batches(self, segment: Segment) -> Iterator[ReadBatch]:
        with self._looking_at(segment):
            yield from iter_batches(self._disk, segment, self._io_bytes)

    @contextmanager
    def _looking_at(self, segment: Segment) -> Iterator[None]:
        """Blame the log where the segment was removed meanwhile, or others have its name now."""
        try:
            yield
        except (StorageFailure, ProtocolError):
            self._target.log.cleaning.require_segments([segment])
            raise


class _SegmentStep:
    """The work of the current step: bytes, and records whose keys were compared."""

    __slots__ = ("_compared_before", "_size", "_stats")

    def __init__(self, stats: CleanerStats) -> None:
        self._stats = stats
        self._size = 0
        self._compared_before = stats.records_compared

    def is_full_with(self, size: int) -> bool:
        """Count a batch of `size` bytes; whether that was enough for one step."""
        self._size += size
        compared = self._stats.records_compared - self._compared_before
        return self._size >= CLEANER_STEP_BYTES or compared >= CLEANER_STEP_RECORDS_COUNT

    def end(self) -> int:
        """Begin the next step; returns the bytes of this one."""
        size, self._size = self._size, 0
        self._compared_before = self._stats.records_compared
        return size


class _Writer:
    """Gathers batches and writes them to the cleaned segment, a buffer at a time."""

    __slots__ = ("_buffer", "_config", "_placed", "_segment", "_size_max")

    def __init__(self, segment: Segment, config: LogConfig, size_max: int) -> None:
        segment.create(CLEANED_SUFFIX)
        self._segment = segment
        self._config = config
        self._size_max = size_max
        self._buffer = bytearray()
        self._placed: list[PlacedBatch] = []

    def add(self, batch: Buffer) -> None:
        """Take one batch."""
        if self._segment.size + len(self._buffer) + len(batch) > INT32_MAX:
            raise Uncleanable(f"the segment {self._segment.path} would grow beyond 2 GiB")
        header = parse_header(batch, 0)
        self._placed.append(
            PlacedBatch(
                len(self._buffer),
                header.length,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )
        self._buffer += batch
        if len(self._buffer) >= self._size_max:
            self.write()

    def write(self) -> None:
        """Write what was gathered."""
        if self._placed:
            self._segment.append(self._buffer, self._placed, self._config)
            self._buffer = bytearray()
            self._placed = []


def grouped(segments: list[Segment], config: LogConfig) -> list[list[Segment]]:
    """Neighbours that fit into one segment together: by size, by its indexes, by its offsets."""
    entries_count_max = config.segment_index_bytes // TIME_INDEX_ENTRY_SIZE_BYTES - 1
    size_max = min(
        config.segment_bytes, entries_count_max * max(config.index_interval_bytes, HEADER_SIZE)
    )
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if (
            groups
            and size + segment.size <= size_max
            and segment.end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        ):
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups

"""One file of a partition's log, with its indexes.

A segment contains whole batches in offset order. The last one of a log is active and takes appends;
the others are sealed. Index files are written when a segment is sealed and when the log closes;
until then the arrays in memory are the index, and recovery can rebuild them from the log file
(INV-9). It knows no producers and no transactions.

Reads at the tail use the exact positions of the most recent batches, all others the sparse index
and a short header walk. Neither parses records (D4).

Threads: the owner's lock covers everything but `read_indexed`, `has_batch_at` and `find_timestamp`,
which the executor may use at any time: arrays only grow at their end meanwhile, and readers keep
their files open.
"""

import threading
from collections.abc import Iterator

from oncelog.core.crc import crc32c
from oncelog.core.limits import INT32_MAX, RECENT_BATCHES_COUNT_MAX, TAIL_READ_BYTES_MAX
from oncelog.protocol.batch import HEADER_SIZE, BatchHeader
from oncelog.runtime.disk import Disk, DiskFile, NotCached, StorageFailure
from oncelog.storage.config import LogConfig
from oncelog.storage.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_prefix
from oncelog.storage.header_walk import (
    PREFIX,
    DamagedPlace,
    sound_end,
    walk_headers,
)
from oncelog.storage.kept_file import KeptFile, Pread
from oncelog.storage.offset_index import OFFSET_INDEX_ENTRY_SIZE_BYTES, OffsetIndex
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.recent_batches import RecentBatches
from oncelog.storage.reindex import reindex
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment_register import SealedSegment
from oncelog.storage.time_index import TIME_INDEX_ENTRY_SIZE_BYTES, TimeIndex

__all__ = ["Segment"]

_LENGTH_MIN = HEADER_SIZE - PREFIX.size
_NO_TIMESTAMP = -1
_TAKING = threading.Lock()  # Held by a thread that has read index files, and takes them.

Buffer = bytes | bytearray | memoryview
Read = bytes | bytearray | memoryview


class Segment:
    """A `.log` file and its two indexes. Positions and sizes are bytes in the `.log` file."""

    __slots__ = (
        "_disk",
        "_offset_index",
        "_recent",
        "_time_index",
        "base_offset",
        "begun_ms",
        "bytes_since_index_entry",
        "damaged",
        "end_offset",
        "first_timestamp_ms",
        "indexes_on_disk",
        "kept",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "prefix",
        "size",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self.prefix = file_prefix(directory, base_offset)
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.begun_ms = 0
        """Wall time in ms of the first append, or of the start that found the segment."""
        self.damaged: list[DamagedPlace] = []
        """Places that are known to hold no sound batch, in order."""
        self.first_timestamp_ms = _NO_TIMESTAMP
        self.max_timestamp_ms = _NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_index_entry = 0
        self.indexes_on_disk = False
        self.kept = KeptFile(disk, self.path)
        """The `.log` file."""
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.forget_recent()

    @property
    def path(self) -> str:
        """The `.log` file."""
        return self.prefix + LOG_SUFFIX

    @property
    def file(self) -> DiskFile:
        """The `.log` file, open."""
        return self.kept.file

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor or indexes in memory."""
        return self.kept.held is not None or self._offset_index is not None

    def create(self, state: str = "") -> None:
        """Create the empty file; `state` is appended to its name until `take_name`."""
        self.kept.path = self.path + state
        # A crash may have left a file of this name that recovery did not accept.
        self.kept.create().truncate(0)
        self.start_indexes()

    def start_indexes(self) -> None:
        """Begin with empty indexes: a new segment, or one that recovery is about to scan."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self.bytes_since_index_entry = 0
        self.indexes_on_disk = False
        self.end_offset = self.base_offset
        self.first_timestamp_ms = self.max_timestamp_ms = _NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.damaged.clear()
        self.forget_recent()

    def load_indexes(self, sealed: SealedSegment | None = None) -> bool:
        """Read a sealed segment's index files; False when they must be rebuilt.

        They are not its own then, or not those that it was `sealed` with. A time index without
        entries is one of records without timestamps.
        """
        return self._offset_index is not None or self._load_indexes(sealed) is not None

    def _load_indexes(
        self, sealed: SealedSegment | None = None
    ) -> tuple[OffsetIndex, TimeIndex] | None:
        offsets = self._disk.read(self.prefix + INDEX_SUFFIX)
        times = self._disk.read(self.prefix + TIME_INDEX_SUFFIX)
        if offsets is None or times is None:
            return None
        if sealed is not None and (
            crc32c(offsets) != sealed.index_crc or crc32c(times) != sealed.time_index_crc
        ):
            return None
        offset_index = OffsetIndex.from_bytes(self.base_offset, offsets, self.size)
        time_index = TimeIndex.from_bytes(self.base_offset, times)
        if offset_index is None or time_index is None:
            return None
        with _TAKING:
            if self._offset_index is not None and self._time_index is not None:
                return self._offset_index, self._time_index  # Perhaps truncated meanwhile.
            self._offset_index, self._time_index = offset_index, time_index
            self.max_timestamp_ms, self.max_timestamp_offset = time_index.last_entry()
            self.indexes_on_disk = True
        return offset_index, time_index

    def release(self) -> None:
        """Drop descriptor and indexes of a sealed segment.

        The descriptor closes with its last reader; it stays while a flush needs it.
        """
        self.kept.release()
        if self.indexes_on_disk:
            self._offset_index = self._time_index = None
        self.forget_recent()

    def close(self) -> None:
        """Close the file as well where it has unsynced bytes: it is deleted, or was flushed."""
        self.kept.close()

    def write_indexes(self, *, sync: bool = False, state: str = "") -> tuple[int, int]:
        """Write both index files whole and return their CRCs; `state` as in `create`.

        The time index ends with the largest timestamp, as Kafka's does.
        """
        offset_index, time_index = self._indexes()
        if self.size:
            time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        offsets, times = offset_index.to_bytes(), time_index.to_bytes()
        offset_path, time_path = self.index_paths()
        self._disk.write_atomic(offset_path + state, offsets, sync=sync)
        self._disk.write_atomic(time_path + state, times, sync=sync)
        self.indexes_on_disk = not state
        return crc32c(offsets), crc32c(times)

    def take_name(self) -> None:
        """Record that the files have their final names; they can be reopened now."""
        self.kept.path = self.path
        self.indexes_on_disk = True

    def fits(self, batch: PlacedBatch, size: int, config: LogConfig, now_ms: int) -> bool:
        """Whether `size` bytes ending with `batch` belong here, or the log must roll first.

        A segment is as old as its first batch; if that has no timestamp (-1), as its first append.
        The conditions are those of Kafka's `LogSegment.shouldRoll`.
        """
        if self.size == 0:
            # Indexes have offsets relative to the base as int32; else one batch always fits.
            return batch.last_offset - self.base_offset <= INT32_MAX
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None:
            offset_index, time_index = self._indexes()
        # The seal adds one entry to the time index, with the largest timestamp: hence the -1 below.
        index_bytes = config.segment_index_bytes
        if self.first_timestamp_ms >= 0:
            age_ms = batch.max_timestamp_ms - self.first_timestamp_ms
        else:
            age_ms = now_ms - self.begun_ms
        return (
            self.size + size <= config.segment_bytes
            and batch.last_offset - self.base_offset <= INT32_MAX
            and age_ms <= config.segment_ms - (config.segment_jitter_ms and self.jitter_ms(config))
            and len(offset_index.offsets) < index_bytes // OFFSET_INDEX_ENTRY_SIZE_BYTES
            and len(time_index.offsets) < index_bytes // TIME_INDEX_ENTRY_SIZE_BYTES - 1
        )

    def jitter_ms(self, config: LogConfig) -> int:
        """How much earlier than `segment.ms` this segment rolls, in ms.

        Derived from its name, so that segments differ and a restart changes nothing.
        """
        jitter_ms_max = min(config.segment_jitter_ms, config.segment_ms)
        return crc32c(self.prefix.encode()) % jitter_ms_max if jitter_ms_max else 0

    def append(self, data: Buffer, batches: list[PlacedBatch], config: LogConfig) -> None:
        """Write the batches with one system call, then index them. Raises `StorageFailure`."""
        start = self.size
        kept = self.kept
        kept.unsynced = kept.written = kept.recently_used = True
        file = kept.held
        if file is None:
            file = kept.file
        file.pwrite(data, start)
        for batch in batches:
            self.note(batch, start + batch.position, config.index_interval_bytes)
        self.size = start + len(data)

    def note(self, batch: PlacedBatch, position: int, index_interval_bytes: int) -> None:
        """Index a batch that is in the file at `position`.

        After a write, and while recovery scans.
        """
        timestamp_ms, last_offset = batch.max_timestamp_ms, batch.last_offset
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp_ms = timestamp_ms
        if self.bytes_since_index_entry > index_interval_bytes:
            offset_index, time_index = self._indexes()
            offset_index.append(last_offset, position)
            time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += batch.length
        self.end_offset = last_offset + 1
        self.indexes_on_disk = False
        recent = self._recent
        recent.bases.append(batch.base_offset)
        recent.lasts.append(last_offset)
        recent.positions.append(position)
        if len(recent.bases) >= 2 * RECENT_BATCHES_COUNT_MAX:
            recent.forget_older_half()

    def note_damage(self, place: DamagedPlace) -> None:
        """Record a place without sound batches after the batches indexed so far.

        The next batch gets an index entry, so that no header walk reads the damage.
        """
        self.damaged.append(place)
        self.end_offset = place.end_offset
        self.bytes_since_index_entry = INT32_MAX
        self.forget_recent()

    def newest_ms(self) -> int:
        """The time for retention by age: the largest timestamp, else the file's last write."""
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        # Records without timestamps count as old as their file, as in Kafka (KIP-33).
        return self._disk.modified_ms(self.path)

    def read(
        self,
        offset: int,
        size_max: int,
        upper_bound: int,
        min_one: bool,
        cached_only: bool = False,
    ) -> Read:
        """Return whole batches from the one that contains `offset`, below `upper_bound`.

        At most `size_max` bytes, but with `min_one` at least the first batch. Empty when no batch
        qualifies. With `cached_only` it raises `NotCached` rather than wait for the disk.
        """
        recent = self._recent
        if offset < recent.floor:
            return self.read_indexed(offset, size_max, upper_bound, min_one, cached_only)
        end = (self.end_offset, self.size)
        start, stop = recent.span(offset, size_max, upper_bound, min_one, end)
        if start == stop:
            return b""
        kept = self.kept
        if cached_only and self.size - start > TAIL_READ_BYTES_MAX:
            return kept.reader(cached_only=True)(stop - start, start)
        kept.recently_used = True
        file = kept.held
        if file is None:
            file = kept.file
        return file.pread(stop - start, start)

    def read_indexed(
        self,
        offset: int,
        size_max: int,
        upper_bound: int,
        min_one: bool,
        cached_only: bool = False,
    ) -> Read:
        """Like `read`, by the index: valid for any offset, and in any thread."""
        pread = self._pread(cached_only)
        end = sound_end(self.damaged, offset, self.size, self.path) if self.damaged else self.size
        found = self._find(offset, pread)
        if found is None or found[1].base_offset >= upper_bound:
            return b""
        start, header = found
        size = min(size_max, end - start)
        if header.length > size:
            return pread(header.length, start) if min_one else b""
        data = pread(size, start)
        offset_index, _ = self._indexes()
        boundary = offset_index.boundary_at_or_before(start + len(data))
        if upper_bound < self.end_offset:
            boundary = min(boundary, offset_index.position_before(upper_bound))
        end, available = max(boundary - start, 0), len(data) - PREFIX.size
        while end + PREFIX.size <= len(data):
            base_offset, length = PREFIX.unpack_from(data, end)
            # An impossible length ends the read; the next read begins there and raises the error.
            if base_offset >= upper_bound or not _LENGTH_MIN <= length <= available - end:
                break
            end += PREFIX.size + length
        return data if end == len(data) else memoryview(data)[:end]

    def _pread(self, cached_only: bool) -> Pread:
        """Return the reader. With `cached_only` it neither opens a file nor loads an index."""
        if cached_only and self._offset_index is None:
            raise NotCached(self.path)
        return self.kept.reader(cached_only=cached_only)

    def has_batch_at(self, offset: int, cached_only: bool = False) -> bool:
        """Whether a batch here ends at or after `offset`.

        False in a segment that compaction thinned.
        """
        return offset < self.end_offset and self._find(offset, self._pread(cached_only)) is not None

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that ends at or after `offset`."""
        return self._find(offset, self.file.pread)

    def _find(self, offset: int, pread: Pread) -> tuple[int, BatchHeader] | None:
        indexed_offset, start = self._indexes()[0].entry_before(offset)
        for position, header in self._walk(start, indexed_offset, pread):
            if header.last_offset >= offset:
                if header.next_offset > self.end_offset:
                    # No CRC covers the base offset. If it were trusted, the batch would give a
                    # reader of `offset` no record forever.
                    why = f"it ends at {header.last_offset}, beyond the log"
                    raise CorruptBatch(self.path, position, offset, why)
                return position, header
        return None

    def find_end(self) -> int:
        """Return the end of the last batch, by its header. Raises `CorruptBatch`."""
        end_offset = self.base_offset
        for _, header in self.walk(self._indexes()[0].boundary_at_or_before(self.size)):
            end_offset = header.next_offset
        return end_offset

    def find_timestamp(
        self, timestamp_ms: int, cached_only: bool = False
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Batches, in order, that may hold the first record at or after `timestamp_ms`."""
        pread = self._pread(cached_only)
        offset_index, time_index = self._indexes()
        position = offset_index.position_before(time_index.offset_before(timestamp_ms))
        found = self._walk(position, 0, pread)
        return (one for one in found if one[1].max_timestamp >= timestamp_ms)

    def walk(self, position: int, offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from a batch boundary on, reading ahead in small chunks and skipping records.

        Raises `CorruptBatch` where no batch can begin; `offset` is one of the batch at `position`
        if that is known.
        """
        return self._walk(position, offset, self.file.pread)

    def _walk(self, position: int, offset: int, pread: Pread) -> Iterator[tuple[int, BatchHeader]]:
        return walk_headers(
            pread,
            self.path,
            self.size,
            self.damaged,
            position=position,
            offset=max(offset, self.base_offset),
            base_offset=self.base_offset,
        )

    def read_batch(self, position: int, header: BatchHeader, cached_only: bool = False) -> Read:
        """Return one whole batch."""
        return self._pread(cached_only)(header.length, position)

    def truncate(self, offset: int) -> None:
        """Cut off the batch that holds `offset` and all after it."""
        found = self.find(offset)
        size, end_offset = (
            (found[0], found[1].base_offset) if found else (self.size, self.end_offset)
        )
        self.damaged = [place for place in self.damaged if place.end_position <= size]
        while self.damaged and self.damaged[-1].end_position == size:
            size = self.damaged.pop().position  # Lost offsets at the end can be appended again.
        self.kept.unsynced = self.kept.written = True
        self.file.truncate(size)
        offset_index, time_index = self._indexes()
        offset_index.truncate(size)
        time_index.truncate(end_offset)
        self.size, self.end_offset = size, end_offset
        self.indexes_on_disk = False
        self.max_timestamp_ms, self.max_timestamp_offset = time_index.last_entry()
        self.forget_recent()
        start = offset_index.boundary_at_or_before(size)
        self.bytes_since_index_entry = size - start
        self.resume(start)

    def resume(self, position: int | None = None) -> None:
        """Make a loaded segment the active one: find its end and its largest timestamp again."""
        if not self.load_indexes():
            raise StorageFailure("read", self.prefix + INDEX_SUFFIX, "missing or damaged")
        offset_index, time_index = self._indexes()
        self.max_timestamp_ms, self.max_timestamp_offset = time_index.last_entry()
        start = offset_index.boundary_at_or_before(self.size) if position is None else position
        self.bytes_since_index_entry = self.size - start
        self.end_offset = self.damaged[-1].end_offset if self.damaged else self.base_offset
        for _, header in self.walk(start):
            self.end_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        first = next(self.walk(0), None)
        self.first_timestamp_ms = first[1].max_timestamp if first else _NO_TIMESTAMP
        self.forget_recent()

    def index_paths(self) -> tuple[str, str]:
        """The two index files."""
        return self.prefix + INDEX_SUFFIX, self.prefix + TIME_INDEX_SUFFIX

    def index_sizes(self) -> tuple[int, int]:
        """(entries of the offset index, entries of the time index)."""
        offset_index, time_index = self._indexes()
        return len(offset_index), len(time_index)

    def _indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        # Taken once: another thread may release them at any moment.
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is not None and time_index is not None:
            return offset_index, time_index
        loaded = self._load_indexes()
        if loaded is None:
            loaded = reindex(self.path, self.base_offset, self.walk(0))
            self._offset_index, self._time_index = loaded
            self.indexes_on_disk = False
        return loaded

    def forget_recent(self) -> None:
        """Find batches by the index again: not all that were noted are in the order of the file."""
        self._recent = RecentBatches(self.end_offset)

"""Reads a `.log` file from front to back and distinguishes sound batches from damage.

A batch is sound if its header is plausible at its position and its CRC is right. The CRC does not
cover offset and leader epoch, so an offset that jumps is accepted only if the next batch continues
from it. At the end of the file the next segment confirms the jump, whatever the topic's policy: in
a segment that was never compacted the last batch ends where the next segment begins, so an offset
that is too large would end beyond it. Without a next segment a jump is accepted on a compacted
topic only, and not over an offset where a batch is known to have ended.

Behind damage offsets have to jump: there it suffices that the next batch does not contradict, or,
without one, that the jump is no longer than the damage allows. A batch that was found by searching
may have lost its first bytes to the damage, so in a log without other gaps the next batch has to
continue from it. Recovery decides what to do with damage, and `oncelog log verify` finds the same.
"""

from typing import NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.limits import INT32_MAX, RECOVERY_READ_SIZE_BYTES
from oncelog.protocol.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    BatchHeader,
    check_crc,
)
from oncelog.storage.header_walk import parse_header
from oncelog.storage.kept_file import Pread
from oncelog.storage.segment import Segment

__all__ = ["BatchReader", "PlainRun", "SoundBatch", "note_run"]

_MAGIC_BYTE = bytes([MAGIC])
_MAGIC_POSITION = 16
_HIGH_BYTES = 4
_unpack_header = HEADER.unpack_from


class SoundBatch(NamedTuple):
    """A batch, and where it begins in `buffer`."""

    header: BatchHeader
    buffer: bytes | bytearray
    place: int


class PlainRun(NamedTuple):
    """Sound batches that follow each other, without a producer and of known leader epochs.

    `max_timestamp_offset` is the last offset of the first batch that has the largest timestamp.
    """

    end_position: int
    next_offset: int
    max_timestamp_ms: int
    max_timestamp_offset: int


class BatchReader:
    """Reads the `.log` file of one segment, of `size` bytes.

    `limit` is where the next segment begins, if there is one. `compact`: offsets may be missing.
    `certain_end`: the recovery point or the register proves that a batch ended at this offset.
    Without `limit` and with `INT64_MAX` as `certain_end` an offset at the end is believed, which
    suits a reader that knows nothing but the file.
    """

    __slots__ = (
        "_base_offset",
        "_certain_end",
        "_chunk",
        "_chunk_start",
        "_compact",
        "_is_sealed",
        "_limit",
        "_pread",
        "size",
    )

    def __init__(
        self,
        pread: Pread,
        size: int,
        base_offset: int,
        limit: int | None,
        *,
        compact: bool,
        certain_end: int,
    ) -> None:
        self._pread = pread
        self._base_offset = base_offset
        self._limit = base_offset + INT32_MAX + 1 if limit is None else limit
        self._is_sealed = limit is not None
        self._compact = compact
        self._certain_end = certain_end
        self._chunk: bytes | bytearray = b""
        self._chunk_start = 0
        self.size = size

    def sound_at(self, position: int, expected: int) -> SoundBatch | None:
        """The sound batch at `position`, at offset `expected` or after a legal gap."""
        header = self.header_at(position)
        if header is None or not self.is_plausible(header, expected, self.size - position):
            return None
        if header.base_offset > expected and not self._goes_on(position, header, expected):
            return None
        place = self._load(position, header.length)
        if not check_crc(self._chunk, place, header):
            return None
        return SoundBatch(header, self._chunk, place)

    def plain_run(
        self, position: int, expected: int, latest_epoch: int, room_bytes: int
    ) -> PlainRun | None:
        """Return the run of plain batches from `position` on: sound ones that need only positions.

        Offsets continue from `expected`, no batch begins more than `room_bytes` further on, where
        the next index entry is due, and all are in the bytes read. A batch that is damaged, or not
        plain, ends the run; None if the run is empty. Coordinators write logs of small batches: a
        run needs no header object and no further calls for each of them.
        """
        place = first = self._load(position, HEADER_SIZE)
        buffer = self._chunk
        last_start = min(first + room_bytes, len(buffer) - HEADER_SIZE)
        next_offset, limit = expected, self._limit
        max_ms, max_offset = -1, expected
        with memoryview(buffer) as view:
            while place <= last_start:
                base, size, epoch, magic, crc, _, delta, _, latest_ms, producer, _, _, count = (
                    _unpack_header(buffer, place)
                )
                end = place + LENGTH_PREFIX_SIZE + size
                if (
                    base != next_offset
                    or producer >= 0
                    or epoch > latest_epoch
                    or magic != MAGIC
                    or delta < 0
                    or count < 0
                    or base + delta >= limit
                    or not place + HEADER_SIZE <= end <= len(buffer)
                    or crc32c(view[place + CRC_START : end]) != crc
                ):
                    break
                next_offset = base + delta + 1
                if latest_ms > max_ms:
                    max_ms, max_offset = latest_ms, next_offset - 1
                place = end
        if place == first:
            return None
        return PlainRun(position + place - first, next_offset, max_ms, max_offset)

    def fault_at(self, position: int, expected: int) -> str:
        """Why `sound_at` finds no batch there, for a person."""
        header = self.header_at(position)
        if header is None:
            return f"{self.size - position} bytes are too few for a batch"
        if header.magic != MAGIC:
            return "no batch header"
        if header.length < HEADER_SIZE:
            return f"a batch of {header.length} bytes"
        if header.length > self.size - position:
            return f"a batch of {header.length} bytes is cut after {self.size - position}"
        count, delta = header.record_count, header.last_offset_delta
        if delta < 0 or not 0 <= count <= delta + 1:
            return f"{count} records with last offset delta {delta}"
        if header.base_offset < expected:
            return f"offset {header.base_offset} comes after {expected - 1}"
        if header.next_offset > self._limit:
            return f"offset {header.last_offset} is too far from the segment's first"
        if not self._has_sound_crc(position, header):
            return "the CRC is wrong"
        return f"offset {header.base_offset} does not fit between its neighbours"

    def is_torn_at(self, position: int, expected: int) -> bool:
        """Whether the file ends within the batch at `position`, where offset `expected` is due.

        If a sound batch follows within the file, the length is damaged.
        """
        header = self.header_at(position)
        may_be_torn = header is None or (
            header.magic == MAGIC
            and self._base_offset <= header.base_offset < self._limit
            and header.length > self.size - position
        )
        return may_be_torn and self._search(position, expected)[1] is None

    def behind(self, position: int, expected: int) -> tuple[int, int | None]:
        """Return (end, offset) of the damage at `position`, where offset `expected` was due.

        `offset` is the base offset of the sound batch that follows the damage. It is None when
        none does: then no CRC confirms an offset.
        """
        header = self.header_at(position)
        if header is not None and header.magic == MAGIC and header.length >= HEADER_SIZE:
            end = position + header.length
            if end == self.size and self.is_plausible(header, expected, header.length):
                return end, None
            offset = self._offset_after_damage(position, end, expected)
            if offset is not None:
                return end, offset
        return self._search(position, expected)

    def _search(self, damage: int, expected: int) -> tuple[int, int | None]:
        """The next sound batch behind position `damage`, wherever it begins."""
        position = damage + 1
        highs = {
            (offset >> 32).to_bytes(_HIGH_BYTES, "big") for offset in (expected, self._limit - 1)
        }
        while position + HEADER_SIZE <= self.size:
            chunk = self._pread(RECOVERY_READ_SIZE_BYTES, position)
            if len(chunk) < HEADER_SIZE:
                break
            found = chunk.find(_MAGIC_BYTE, _MAGIC_POSITION)
            while found >= 0:
                start = found - _MAGIC_POSITION
                if chunk[start : start + _HIGH_BYTES] in highs:
                    offset = self._offset_after_damage(damage, position + start, expected)
                    if offset is not None and not self._precedes_lone_gap(position + start):
                        return position + start, offset
                found = chunk.find(_MAGIC_BYTE, found + 1)
            position += len(chunk) - _MAGIC_POSITION
        return self.size, None

    def _offset_after_damage(self, damage: int, position: int, expected: int) -> int | None:
        """Return the base offset of the sound batch at `position`, behind the damage at `damage`.

        None if there is none, or its offset cannot be believed: the batch after it contradicts,
        or none confirms it and the offset is beyond all that is known to have been there.
        """
        header = self.header_at(position)
        if header is None or not self.is_plausible(header, expected, self.size - position):
            return None
        if not self._has_sound_crc(position, header):
            return None
        following = self._following(position, header)
        if following is not None and following.base_offset < header.next_offset:
            end = position + header.length
            if following.base_offset >= expected or self._is_sound(end, following):
                return None
        elif following is not None:
            return header.base_offset
        # A record takes at least a byte, unless it is compressed: then this batch is lost too.
        known_end = max(self._certain_end, expected + position - damage)
        return header.base_offset if header.base_offset <= known_end else None

    def _precedes_lone_gap(self, position: int) -> bool:
        """Whether offsets are missing behind the batch at `position`, but not behind the next one.

        Only compaction leaves gaps, and then there are others. Here the batch begins within the
        damage, whose bytes stand where its offset was.
        """
        header = self.header_at(position)
        following = None if header is None else self._following(position, header)
        if header is None or following is None or self._compact:
            return False
        end = position + header.length
        if following.base_offset == header.next_offset or not self._is_sound(end, following):
            return False
        after = self._following(end, following)
        return after is None or after.base_offset == following.next_offset

    def _is_sound(self, position: int, header: BatchHeader) -> bool:
        is_plausible = self.is_plausible(header, self._base_offset, self.size - position)
        return is_plausible and self._has_sound_crc(position, header)

    def _has_sound_crc(self, position: int, header: BatchHeader) -> bool:
        place = self._load(position, header.length)
        return check_crc(self._chunk, place, header)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header there, whatever it says; None where the file is too short for one."""
        if position + HEADER_SIZE > self.size:
            return None
        place = self._load(position, HEADER_SIZE)
        if place + HEADER_SIZE > len(self._chunk):
            return None
        return parse_header(self._chunk, place)

    def is_plausible(self, header: BatchHeader, expected: int, available: int) -> bool:
        """Whether a batch may have this header, of those from offset `expected` on."""
        return (
            header.magic == MAGIC
            and HEADER_SIZE <= header.length <= available
            and header.base_offset >= expected
            and header.last_offset_delta >= 0
            and header.record_count >= 0
            and header.next_offset <= self._limit
        )

    def _goes_on(self, position: int, header: BatchHeader, expected: int) -> bool:
        """Whether the header after a batch whose offset jumps agrees with the jump."""
        following = self._following(position, header)
        if following is None and self._is_sealed:
            return True  # It ends at or before the next segment: see `is_plausible`.
        if following is None:
            return self._compact and not expected < self._certain_end < header.next_offset
        return not expected <= following.base_offset < header.next_offset

    def _following(self, position: int, header: BatchHeader) -> BatchHeader | None:
        """Return the header after the batch at `position`, whatever it says; None at the end."""
        end = position + header.length
        if end + HEADER_SIZE > self.size:
            return None
        return parse_header(self._pread(HEADER_SIZE, end), 0)

    def _load(self, position: int, size: int) -> int:
        """Read `size` bytes from `position` on; return where in the chunk they begin."""
        place = position - self._chunk_start
        if place < 0 or place + size > len(self._chunk):
            self._chunk = self._pread(max(RECOVERY_READ_SIZE_BYTES, size), position)
            self._chunk_start = position
            return 0
        return place


def note_run(segment: Segment, run: PlainRun, position: int) -> None:
    """Note the batches of a run that recovery found at `position`, as `Segment.note` each of them.

    None of them gets an index entry.
    """
    if run.max_timestamp_ms > segment.max_timestamp_ms:
        segment.max_timestamp_ms = run.max_timestamp_ms
        segment.max_timestamp_offset = run.max_timestamp_offset
    segment.bytes_since_index_entry += run.end_position - position
    segment.end_offset = run.next_offset
    segment.forget_recent()

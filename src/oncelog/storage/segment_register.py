"""Records each sealed segment's files, so that a start can trust them.

Kafka's index files have no checksum, and a `.txnindex` exists only if a transaction was aborted, so
a missing, cut or damaged one cannot be detected. Hence each seal adds a short record to one file of
ours beside the segments, which Kafka ignores. A start compares: a file that differs is rebuilt from
its own segment (INV-3), and the others are trusted without reading the log.

A segment without a record (Kafka sealed it, or the record itself is damaged) is trusted as Kafka
trusts it. That is safe: a record is synced together with the files it describes, before the
recovery point passes them. The start that trusts it records it, so that later ones see a change.
This module knows no batches.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.integers import integers
from oncelog.core.limits import REGISTER_DEAD_RECORDS_COUNT_MAX
from oncelog.runtime.disk import Disk
from oncelog.storage.files import REGISTER_NAME

__all__ = ["SealedSegment", "SegmentRegister", "parse_register"]

_RECORD = integers(">hqqqIII?")
_CRC = integers(">I")
_SIZE_BYTES = _RECORD.size + _CRC.size
_VERSION = 1


class SealedSegment(NamedTuple):
    """One sealed segment. `end_offset` is the next one's base offset; sizes in bytes."""

    base_offset: int
    end_offset: int
    size: int
    index_crc: int
    time_index_crc: int
    aborted_crc: int
    """CRC of the `.txnindex`; that of no bytes when there is none."""
    is_damaged: bool
    """Whether the `.log` holds places without sound batches; every start looks for them again."""

    def is_of(self, size: int, end_offset: int | None) -> bool:
        """Whether a segment of that size and end offset is this one, and it was whole."""
        return (self.size, self.end_offset) == (size, end_offset) and not self.is_damaged


class SegmentRegister:
    """The file of one partition. The latest record of a base offset counts."""

    __slots__ = ("_all", "_disk", "_records", "_size", "path")

    def __init__(self, disk: Disk, directory: str, *, is_new: bool = False) -> None:
        self._disk = disk
        self.path = f"{directory}/{REGISTER_NAME}"
        data = b"" if is_new else disk.read(self.path) or b""
        self._all = {record for record in parse_register(data) if record is not None}
        self._records: dict[int, SealedSegment] = {}
        for record in parse_register(data):
            if record is not None:
                self._records[record.base_offset] = record
        # The next record overwrites a partial one at the end.
        self._size = len(data) // _SIZE_BYTES * _SIZE_BYTES

    def get(self, base_offset: int) -> SealedSegment | None:
        """The segment's record, if there is a sound one."""
        return self._records.get(base_offset)

    def was_whole(self, base_offset: int, size: int, end_offset: int) -> bool:
        """Whether a segment of that size was sealed, or cleaned, with that end offset.

        An older record counts as well: a cleaning records the new segment before it is in place.
        """
        return any(
            one.base_offset == base_offset and one.is_of(size, end_offset) for one in self._all
        )

    def add(self, sealed: SealedSegment) -> None:
        """Record a segment, unsynced: the flush that moves the recovery point past it syncs it."""
        if self._records.get(sealed.base_offset) == sealed:
            return
        count = self._size // _SIZE_BYTES
        if count > len(self._records) + REGISTER_DEAD_RECORDS_COUNT_MAX:
            self.write()
        self._records[sealed.base_offset] = sealed
        self._all.add(sealed)
        file = self._disk.open(self.path, create=True)
        file.pwrite(_format(sealed), self._size)
        file.close()
        self._size += _SIZE_BYTES

    def keep_only(self, base_offsets: Iterable[int]) -> bool:
        """Forget all other segments; return whether `write` is needed before the next append.

        It is not for segments before the first kept one, which never come back. It is for a lost
        segment: a new one may begin at its offset and must not be taken for it.
        """
        bases = set(base_offsets)
        gone = self._records.keys() - bases
        for base in gone:
            del self._records[base]
        self._all = {record for record in self._all if record.base_offset in bases}
        return any(base > min(bases, default=-1) for base in gone)

    def write(self) -> None:
        """Rewrite the file, unsynced, with one record for each segment."""
        data = b"".join(map(_format, self._records.values()))
        self._disk.write_atomic(self.path, data, sync=False)
        self._all = set(self._records.values())
        self._size = len(data)


def parse_register(data: bytes) -> list[SealedSegment | None]:
    """Return all records in the order of their seals; None for each that is damaged."""
    last = len(data) - _SIZE_BYTES
    return [_parse(data, position) for position in range(0, last + 1, _SIZE_BYTES)]


def _format(sealed: SealedSegment) -> bytes:
    body = _RECORD.pack(_VERSION, *sealed)
    return body + _CRC.pack(crc32c(body))


def _parse(data: bytes, position: int) -> SealedSegment | None:
    version, base, end, size, index_crc, time_index_crc, aborted_crc, is_damaged = (
        _RECORD.unpack_from(data, position)
    )
    body = data[position : position + _RECORD.size]
    if version != _VERSION or crc32c(body) != _CRC.unpack_from(data, position + _RECORD.size)[0]:
        return None
    return SealedSegment(base, end, size, index_crc, time_index_crc, aborted_crc, bool(is_damaged))

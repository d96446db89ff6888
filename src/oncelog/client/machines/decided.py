"""Finds the last committed value of one key in a log with many transactional writers.

A read_committed reader stops at the oldest open transaction of any producer. This one reads to the
high watermark, control batches included, and decides each record of its key by the end of that
record's own transaction. So it depends on no other producer. It is pure.
"""

from oncelog.client.machines.fetching import iter_batches
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import BatchHeader, check_crc
from oncelog.protocol.record import iter_records, read_end_marker

__all__ = ["DecidedValue"]

Buffer = bytes | bytearray | memoryview


class DecidedValue:
    """Fed with a partition's log from its start; `value` is what the key has been committed to.

    None when there is no such record, or when the last one is a tombstone.
    """

    def __init__(self, key: bytes) -> None:
        self.value: bytes | None = None
        self._key = key
        self._open: dict[int, bytes | None] = {}

    @property
    def is_undecided(self) -> bool:
        """Whether a record of the key belongs to a transaction without an end so far."""
        return bool(self._open)

    def read(self, buffer: Buffer, position: int) -> int:
        """Process the bytes of one fetch at offset `position`; return the next offset.

        A batch cut off at the end is ignored. Raises `ProtocolError` for a damaged one.
        """
        next_offset = position
        for data, start, header in iter_batches(buffer):
            if not check_crc(data, start, header):
                text = f"the batch at offset {header.base_offset} has another CRC than it says"
                raise ProtocolError(ErrorCode.corrupt_message, text)
            next_offset = max(next_offset, header.next_offset)
            # Most batches are the ends of other producers' transactions.
            is_other = header.is_control and header.producer_id not in self._open
            if header.next_offset > position and not is_other:
                self._take(data, start, header)
        return next_offset

    def _take(self, buffer: Buffer, start: int, header: BatchHeader) -> None:
        for record in iter_records(buffer, start, header):
            if header.is_control:
                end = read_end_marker(record)
                if end is not None:
                    value = self._open.pop(header.producer_id)
                    self.value = value if end.commit else self.value
            elif record.key == self._key:
                if header.is_transactional:
                    self._open[header.producer_id] = record.value
                else:
                    self.value = record.value

"""Decides which fetched batches a reader may see (INV-3), and the next offset.

A broker sends whole batches up to the last stable offset, and the aborted transactions among them.
The reader always drops control batches, and under read_committed the batches of aborted producers:
a producer counts as aborted from its transaction's first offset until its abort marker. Only
headers are parsed; batches stay bytes. Messages from before Kafka 0.11 become batches of v2.

Where a batch is damaged, what is before it is read first, as by Kafka's consumer: `BadBatch` is
raised only where it is the first.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from itertools import pairwise
from typing import NamedTuple

from oncelog.client.values import ConsumerRecord, FetchedPartition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    check_crc,
    iter_headers,
    read_header,
)
from oncelog.protocol.message_set import as_batch, message_length
from oncelog.protocol.record import iter_records, read_end_marker

__all__ = [
    "Aborted",
    "BadBatch",
    "Visible",
    "iter_batches",
    "read_records",
    "visible_batches",
]

Buffer = bytes | bytearray | memoryview


class BadBatch(ProtocolError):  # noqa: N818 - names what was found
    """A batch, or a record, that cannot be read. `offset` is the first that is lost."""

    def __init__(self, offset: int, error: ProtocolError) -> None:
        super().__init__(error.code, error.message)
        self.offset = offset


class Aborted(NamedTuple):
    """One aborted transaction of a fetch reply."""

    first_offset: int
    producer_id: int


class Visible(NamedTuple):
    """The visible bytes, the next offset, and the leader epoch before it.

    `leader_epoch` is -1 when there was no whole batch.
    """

    batches: Buffer
    next_offset: int
    leader_epoch: int = -1


def visible_batches(
    buffer: Buffer,
    position: int,
    aborted: Iterable[Aborted] | None,
    *,
    check_crcs: bool = True,
) -> Visible:
    """Filter one partition's records of a fetch reply, which starts at offset `position`.

    `aborted` is None under read_uncommitted. A batch cut off at the end is ignored. Bytes are
    copied only if a batch is dropped. With `check_crcs` a batch, marker or not, is damaged if its
    CRC is wrong. The records end before the first damaged batch; raises `BadBatch` if it is the
    first of all.
    """
    pending = list(aborted or ())
    heapify(pending)
    open_aborts: set[int] = set()
    slices: list[_Slice] = []
    next_offset, leader_epoch = position, -1
    try:
        for data, start, header in iter_batches(buffer):
            if check_crcs and not check_crc(data, start, header):
                text = f"the batch at offset {header.base_offset} has another CRC than it says"
                raise ProtocolError(ErrorCode.corrupt_message, text)
            is_abort = header.is_control and _is_abort(data, start, header)
            while pending and pending[0].first_offset <= header.last_offset:
                open_aborts.add(heappop(pending).producer_id)
            if header.next_offset > next_offset:
                next_offset, leader_epoch = header.next_offset, header.leader_epoch
            if header.is_control:
                if is_abort:
                    open_aborts.discard(header.producer_id)
            elif header.next_offset > position and not (
                header.is_transactional and header.producer_id in open_aborts
            ):
                slices.append(_Slice(data, start, start + header.length))
    except ProtocolError as error:
        if next_offset == position:
            raise BadBatch(position, error) from error
    return Visible(_join(slices), next_offset, leader_epoch)


def iter_batches(buffer: Buffer) -> Iterator[tuple[Buffer, int, BatchHeader]]:
    """Yield (buffer, start, header) of each whole batch of a fetch reply, as one of v2.

    A message of another format is converted into a buffer of its own. A batch cut off at the end is
    ignored. Raises `ProtocolError` for a damaged one.
    """
    position = 0
    while True:
        try:
            for start, header in iter_headers(buffer, position, allow_partial=True):
                yield buffer, start, header
                position = start + header.length
            return
        except ProtocolError as error:
            if error.code is not ErrorCode.unsupported_for_message_format:
                raise
        batch = as_batch(buffer, position)
        yield batch, 0, read_header(batch)
        position += message_length(buffer, position)


def read_records(
    fetched: FetchedPartition, position: int
) -> tuple[list[ConsumerRecord], BadBatch | None]:
    """Return the records from `position` on, up to the first batch that cannot be read."""
    topic, partition = fetched.topic_partition
    records: list[ConsumerRecord] = []
    next_offset = position
    try:
        for start, header in iter_headers(fetched.batches):
            stamped = header.timestamp_type == LOG_APPEND_TIME
            next_offset = max(next_offset, header.base_offset)
            for record in iter_records(fetched.batches, start, header):
                if record.offset >= position:
                    next_offset = record.offset + 1
                    records.append(
                        ConsumerRecord(
                            topic,
                            partition,
                            record.offset,
                            header.max_timestamp if stamped else record.timestamp,
                            header.timestamp_type,
                            record.key,
                            record.value,
                            tuple(record.headers),
                            header.leader_epoch,
                        )
                    )
    except ProtocolError as error:
        return records, BadBatch(next_offset, error)
    return records, None


class _Slice(NamedTuple):
    """Bytes that stay: those of the fetch reply, or a converted message."""

    buffer: Buffer
    start: int
    end: int


def _join(slices: list[_Slice]) -> Buffer:
    if not slices:
        return b""
    if all(
        one.buffer is other.buffer and one.end == other.start for one, other in pairwise(slices)
    ):
        first, last = slices[0], slices[-1]
        return memoryview(first.buffer)[first.start : last.end]
    return b"".join(memoryview(piece.buffer)[piece.start : piece.end] for piece in slices)


def _is_abort(buffer: Buffer, start: int, header: BatchHeader) -> bool:
    record = next(iter_records(buffer, start, header), None)
    if record is None:
        # Compaction may leave an empty batch where a marker stood.
        return False
    marker = read_end_marker(record)
    return marker is not None and not marker.commit

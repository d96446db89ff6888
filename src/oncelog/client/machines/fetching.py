"""Decides which fetched batches a reader may see (INV-3), and the next offset.

A broker sends whole batches up to the last stable offset, and the aborted transactions among them.
The reader always drops control batches, and under read_committed the batches of aborted producers:
a producer counts as aborted from its transaction's first offset until its abort marker. Only
headers are parsed; batches stay bytes.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import NamedTuple

from oncelog.client.values import ConsumerRecord, FetchedPartition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import LOG_APPEND_TIME, BatchHeader, check_crc, iter_headers
from oncelog.protocol.record import iter_records, read_end_marker

__all__ = ["Aborted", "Visible", "records_of", "visible_batches"]

Buffer = bytes | bytearray | memoryview


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
    copied only if a batch is dropped. With `check_crcs` the records end before the first batch,
    marker or not, whose CRC is wrong. Raises `ProtocolError` when the bytes are no batches, or
    begin with a damaged one.
    """
    pending = list(aborted or ())
    heapify(pending)
    open_aborts: set[int] = set()
    slices: list[tuple[int, int]] = []
    next_offset, leader_epoch = position, -1
    for start, header in iter_headers(buffer, allow_partial=True):
        if check_crcs and not check_crc(buffer, start, header):
            if next_offset > position:
                break
            text = f"the batch at offset {header.base_offset} has another CRC than it says"
            raise ProtocolError(ErrorCode.corrupt_message, text)
        while pending and pending[0].first_offset <= header.last_offset:
            open_aborts.add(heappop(pending).producer_id)
        if header.next_offset > next_offset:
            next_offset, leader_epoch = header.next_offset, header.leader_epoch
        if header.is_control:
            if _is_abort(buffer, start, header):
                open_aborts.discard(header.producer_id)
        elif header.next_offset > position and not (
            header.is_transactional and header.producer_id in open_aborts
        ):
            _extend(slices, start, start + header.length)
    return Visible(_join(buffer, slices), next_offset, leader_epoch)


def records_of(fetched: FetchedPartition, position: int) -> Iterator[ConsumerRecord]:
    """The records from `position` on."""
    topic, partition = fetched.topic_partition
    for start, header in iter_headers(fetched.batches):
        stamped = header.timestamp_type == LOG_APPEND_TIME
        for record in iter_records(fetched.batches, start, header):
            if record.offset >= position:
                yield ConsumerRecord(
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


def _extend(slices: list[tuple[int, int]], start: int, end: int) -> None:
    if slices and slices[-1][1] == start:
        slices[-1] = (slices[-1][0], end)
    else:
        slices.append((start, end))


def _join(buffer: Buffer, slices: list[tuple[int, int]]) -> Buffer:
    if not slices:
        return b""
    view = memoryview(buffer)
    if len(slices) == 1:
        start, end = slices[0]
        return view[start:end]
    return b"".join(view[start:end] for start, end in slices)


def _is_abort(buffer: Buffer, start: int, header: BatchHeader) -> bool:
    record = next(iter_records(buffer, start, header), None)
    if record is None:
        # Compaction may leave an empty batch where a marker stood.
        return False
    marker = read_end_marker(record)
    return marker is not None and not marker.commit

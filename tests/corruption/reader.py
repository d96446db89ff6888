"""Read everything that a broker serves, both isolation levels, with a client that checks CRCs.

Where a fetch is answered with an error, or a batch's CRC is wrong, the offset is noted and the next
one is tried, as an operator would go on who wants all that is left.
"""

from dataclasses import dataclass, field

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import BatchHeader, check_crc, iter_headers
from oncelog.protocol.messages import offset_fetch
from oncelog.protocol.record import iter_records, read_end_marker
from tests.unit.broker.context import Client
from tests.unit.broker.raw import fetch

__all__ = ["Served", "committed_offsets", "read_partition"]

STEPS_COUNT_MAX = 400
"""Fetches of one partition; its folder holds 50 batches."""

Fields = tuple[bytes | None, bytes | None, int]


@dataclass(slots=True)
class Served:
    """What one partition gives: records by offset as (key, value, time), and offsets refused."""

    records: dict[int, Fields] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    start_offset: int = -1
    end_offset: int = -1


async def read_partition(client: Client, partition: TopicPartition, isolation: int) -> Served:
    """All of a partition from its start to its end; isolation 1 is read_committed."""
    served = Served()
    offset = 0
    for _ in range(STEPS_COUNT_MAX):
        answer = await fetch(
            client,
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            isolation_level=isolation,
        )
        code = ErrorCode(answer.error)
        if code is ErrorCode.offset_out_of_range and offset < 100:
            offset += 1
            continue
        if code is not ErrorCode.none:
            served.refused[offset] = code.name
            # Whoever gives no end is asked for every offset that the folders ever had.
            if offset >= max(served.end_offset, 60):
                return served
            offset += 1
            continue
        if served.start_offset < 0:
            served.start_offset = offset
        end = answer.last_stable_offset if isolation else answer.high_watermark
        served.end_offset = max(served.end_offset, answer.high_watermark)
        if offset >= end:
            return served
        following = _take(served, bytes(answer.records or b""), offset, answer, isolation)
        offset = max(following, offset + 1)
    raise AssertionError(f"{partition} is not read to its end after {STEPS_COUNT_MAX} fetches")


def _take(served: Served, data: bytes, offset: int, answer: object, isolation: int) -> int:
    """Take the records of one answer; returns the offset to go on with."""
    aborted = sorted(
        (first, producer_id)
        for producer_id, first in getattr(answer, "aborted_transactions", None) or ()
    )
    hidden: set[int] = set()
    following = offset
    try:
        for position, header in iter_headers(data, allow_partial=True):
            if not check_crc(data, position, header):
                # Nothing that the header says can be believed, not even where it ends.
                served.refused[following] = "wrong CRC"
                return following + 1
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.pop(0)[1])
            _take_batch(served, data, position, header, offset, hidden if isolation else set())
            following = max(header.next_offset, following)
    except ProtocolError as error:
        served.refused[following] = error.message
        return following + 1
    return following


def _take_batch(
    served: Served,
    data: bytes,
    position: int,
    header: BatchHeader,
    offset: int,
    hidden: set[int],
) -> None:
    for record in iter_records(data, position, header):
        if header.is_control:
            marker = read_end_marker(record)
            if marker is not None and not marker.commit:
                hidden.discard(header.producer_id)
        elif header.producer_id not in hidden and record.offset >= offset:
            served.records[record.offset] = (record.key, record.value, record.timestamp)


async def committed_offsets(client: Client, group: str) -> dict[TopicPartition, int] | str:
    """What the group has committed, or the error."""
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    response = await client.ask(ApiKey.OFFSET_FETCH, 9, groups=(asked,), require_stable=False)
    (found,) = response.groups
    code = ErrorCode(found.error_code)
    if code is not ErrorCode.none:
        return code.name
    return {
        TopicPartition(topic.name, p.partition_index): p.committed_offset
        for topic in found.topics
        for p in topic.partitions
    }


async def described_transaction(client: Client, transactional_id: str) -> tuple[object, ...] | str:
    """State, producer id and epoch of a transactional id, or the error."""
    response = await client.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(transactional_id,)
    )
    (found,) = response.transaction_states
    code = ErrorCode(found.error_code)
    if code is not ErrorCode.none:
        return code.name
    return (found.transaction_state, found.producer_id, found.producer_epoch)

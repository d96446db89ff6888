"""Read everything that a broker serves, both isolation levels, with a client that checks CRCs.

Where a fetch is answered with an error, or a batch's CRC is wrong, the offset is noted and the next
one is tried, as an operator would go on who wants all that is left. One request asks for all
partitions, so that what is damaged in one of them must not keep the others from being answered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import BatchHeader, check_crc, iter_headers
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from oncelog.protocol.messages import offset_fetch
from oncelog.protocol.record import iter_records, read_end_marker
from tests.unit.broker.context import Client
from tests.unit.broker.raw import receive_fetch

__all__ = ["Served", "committed_offsets", "read_partition", "read_partitions"]

STEPS_COUNT_MAX = 400
"""Fetches of one partition; its folder holds 50 batches."""
SIZE_BYTES = 2**20
ANSWERS_KEPT_COUNT = 256
FETCH_VERSION = 12
"""The last one that names topics."""

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
    return (await read_partitions(client, [partition], isolation))[partition]


async def read_partitions(
    client: Client, partitions: Iterable[TopicPartition], isolation: int
) -> dict[TopicPartition, Served]:
    """As `read_partition`; a request asks for all partitions whose end is not yet reached."""
    served = {partition: Served() for partition in partitions}
    positions = dict.fromkeys(served, 0)
    for _ in range(STEPS_COUNT_MAX):
        for partition, answer in (await _fetch(client, positions, isolation)).items():
            following = _step(served[partition], answer, positions[partition], isolation)
            if following is None:
                del positions[partition]
            else:
                positions[partition] = following
        if not positions:
            return served
    raise AssertionError(f"{list(positions)} are not read after {STEPS_COUNT_MAX} fetches")


async def _fetch(
    client: Client, positions: dict[TopicPartition, int], isolation: int
) -> dict[TopicPartition, FetchPartitionResponse]:
    wanted = [
        FetchTopic(topic, None, [FetchPartition(partition, offset, SIZE_BYTES, -1, -1)])
        for (topic, partition), offset in positions.items()
    ]
    request = FetchRequest(0, 0, SIZE_BYTES, isolation, 0, -1, wanted)
    await client.send(encode_fetch_request(FETCH_VERSION, 78, "test", request))
    response = await receive_fetch(client, FETCH_VERSION)
    answers = {
        TopicPartition(str(topic.name), answer.partition): answer
        for topic in response.topics
        for answer in topic.partitions
    }
    assert answers.keys() == positions.keys()
    return answers


def _step(
    served: Served, answer: FetchPartitionResponse, offset: int, isolation: int
) -> int | None:
    """Take an answer in; returns the offset to go on with, or None when there is none."""
    code = ErrorCode(answer.error)
    if code is ErrorCode.offset_out_of_range and offset < 100:
        # The offset below the start that it names has to be out of range as well.
        return max(offset, answer.log_start_offset - 2) + 1
    if code is not ErrorCode.none:
        served.refused[offset] = code.name
        # Whoever gives no end is asked for every offset that the folders ever had.
        return None if offset >= max(served.end_offset, 60) else offset + 1
    if served.start_offset < 0:
        served.start_offset = offset
    end = answer.last_stable_offset if isolation else answer.high_watermark
    served.end_offset = max(served.end_offset, answer.high_watermark)
    if offset >= end:
        return None
    following = _take(served, answer, offset, isolation)
    return max(following, offset + 1)


def _take(served: Served, answer: FetchPartitionResponse, offset: int, isolation: int) -> int:
    """Take the records of one answer; returns the offset to go on with."""
    assert answer.records is None or isinstance(answer.records, memoryview)
    aborted = sorted(
        (first, producer_id) for producer_id, first in answer.aborted_transactions or ()
    )
    shown = _shown(bytes(answer.records or b""), offset, tuple(aborted), isolation)
    served.records.update(shown.records)
    if shown.refused:
        served.refused[shown.following] = shown.refused
        return shown.following + 1
    return shown.following


@dataclass(slots=True)
class _Shown:
    """What a consumer makes of the bytes that it was sent."""

    following: int
    """The next offset, or the one of the batch that it cannot read."""
    records: dict[int, Fields] = field(default_factory=dict)
    refused: str = ""


@lru_cache(maxsize=ANSWERS_KEPT_COUNT)
def _shown(
    data: bytes, offset: int, aborted: tuple[tuple[int, int], ...], isolation: int
) -> _Shown:
    """Read an answer; nothing but the arguments counts, so equal ones need not be read again."""
    shown = _Shown(offset)
    hidden: set[int] = set()
    waiting = list(aborted)
    try:
        for position, header in iter_headers(data, allow_partial=True):
            if not check_crc(data, position, header):
                # Nothing that the header says can be believed, not even where it ends.
                shown.refused = "wrong CRC"
                return shown
            while waiting and waiting[0][0] <= header.last_offset:
                hidden.add(waiting.pop(0)[1])
            _take_batch(shown, data, position, header, offset, hidden if isolation else set())
            shown.following = max(header.next_offset, shown.following)
    except ProtocolError as error:
        shown.refused = error.message
    return shown


def _take_batch(
    shown: _Shown,
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
            shown.records[record.offset] = (record.key, record.value, record.timestamp)


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

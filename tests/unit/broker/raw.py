"""Produce and Fetch over a raw connection, in any version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.codec import parse_response_header
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.produce import (
    ProducePartitionResponse,
    encode_produce_request,
    parse_produce_response,
)
from oncelog.protocol.record import iter_records
from tests.unit.broker.context import READ_TIMEOUT_S, Client

TOPIC = "t"


async def send_produce(
    client: Client,
    version: int,
    records: bytes | bytearray,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    topic: str = TOPIC,
    topic_id: UUID | None = None,
    partition: int = 0,
    timeout_ms: int = 5000,
) -> None:
    frame = encode_produce_request(
        version,
        77,
        "test",
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topics=[(topic, topic_id, [(partition, records)])],
    )
    await client.send(b"".join(frame))


async def receive_produce(client: Client, version: int) -> ProducePartitionResponse:
    frame = await client.receive()
    assert frame is not None
    _, offset = parse_response_header(ApiKey.PRODUCE, version, frame)
    (topic,) = parse_produce_response(frame, version, offset).topics
    (partition,) = topic.partitions
    return partition


async def produce(
    client: Client, version: int, records: bytes | bytearray, **options: Any
) -> ProducePartitionResponse:
    await send_produce(client, version, records, **options)
    return await receive_produce(client, version)


async def send_fetch(
    client: Client,
    version: int = 12,
    *,
    offset: int = 0,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 2**20,
    partition_max_bytes: int = 2**20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
    topic: str = TOPIC,
    topic_id: UUID | None = None,
    partition: int = 0,
    more: Sequence[FetchTopic] = (),
) -> None:
    asked = FetchPartition(partition, offset, partition_max_bytes, leader_epoch, last_fetched_epoch)
    request = FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        [FetchTopic(topic, topic_id, [asked]), *more],
    )
    frame = encode_fetch_request(version, 78, "test", request)
    await client.send(bytes(frame) if isinstance(frame, (bytes, bytearray)) else b"".join(frame))


async def receive_fetch(client: Client, version: int = 12) -> FetchResponse:
    frame = await client.receive()
    assert frame is not None
    _, offset = parse_response_header(ApiKey.FETCH, version, frame)
    return parse_fetch_response(frame, version, offset)


async def fetch(client: Client, version: int = 12, **options: Any) -> Any:
    """The only partition of the answer."""
    await send_fetch(client, version, **options)
    return (await receive_fetch(client, version)).topics[0].partitions[0]


def values(records: Any) -> list[bytes | None]:
    """The values in fetched batches, control batches left out."""
    buffer = bytes(records or b"")
    return [
        record.value
        for position, header in iter_headers(buffer)
        if not header.is_control
        for record in iter_records(buffer, position, header)
    ]


def error_of(response: Any) -> ErrorCode:
    return ErrorCode(response.error)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the broker in it has come so far."""
    async with asyncio.timeout(READ_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - the broker has no event for a test to wait for
            await asyncio.sleep(0)


async def init_producer(client: Client, transactional_id: str | None, **fields: Any) -> Any:
    return await client.ask(
        ApiKey.INIT_PRODUCER_ID,
        fields.pop("version", 4),
        transactional_id=transactional_id,
        producer_id=fields.pop("producer_id", NO_PRODUCER_ID),
        producer_epoch=fields.pop("producer_epoch", NO_PRODUCER_EPOCH),
        **fields,
    )


async def add_partition(
    client: Client,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    topic: str = TOPIC,
    version: int = 3,
) -> Any:
    """Add the first partition of a topic to a transaction."""
    wanted = add_partitions.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=(add_partitions.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
    )
    return await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=(wanted,))

"""Uses one partition as a register: a record per key, written and read in transactions.

For drivers of distributed jobs with a small state in a compacted topic (INV-10): the record is part
of the job's own transaction, and other producers' open transactions do not hide it.
"""

import asyncio
from collections.abc import Callable
from uuid import UUID

from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ConnectionLostError,
    FatalError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.fetching import fetch_from
from oncelog.client.machines.decided import DecidedValue
from oncelog.client.offsets import READ_UNCOMMITTED, list_offsets
from oncelog.client.requests import EARLIEST, LATEST, produce_version_max
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import FetchPartition
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.framed import DisconnectedError

__all__ = ["ProducerStamp", "committed_value", "produce_first"]

FETCH_SIZE_BYTES = 1024 * 1024
FETCH_WAIT_MS = 100
ACKS_ALL = -1


class ProducerStamp:
    """Under whose transaction a record is written, and which protocol it speaks."""

    __slots__ = ("producer_epoch", "producer_id", "transactional_id", "version")

    def __init__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, version: int
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.version = version


async def produce_first(
    cluster: Cluster,
    topic_partition: TopicPartition,
    record: Record,
    stamp: ProducerStamp,
    timeout_ms: float,
) -> None:
    """Write one record as the first of its producer epoch in this partition, acks=all.

    It has sequence 0, so a repeated request is a duplicate that the broker recognises (INV-2).
    Under TV1 the partition must be in the transaction already. Raises `RetriableError` after
    `timeout_ms`, then the outcome is unknown.
    """
    batch = build_batch(
        [record],
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=0,
        transactional=True,
    )

    async def call() -> None:
        node_id = await cluster.leader(topic_partition)
        topic_id = cluster.metadata.topic_id(topic_partition.topic)
        try:
            connection = await cluster.connection(node_id)
            code = await _produce(cluster, connection, topic_partition, topic_id, batch, stamp)
        except (DisconnectedError, ConnectionLostError) as error:
            cluster.metadata.mark_stale(topic_partition.topic)
            raise ConnectionLostError(f"{topic_partition}: {error}") from error
        except ProtocolError as error:
            raise FatalError(error.code, error.message) from error
        if code is not ErrorCode.none:
            cluster.metadata.mark_stale(topic_partition.topic)
            raise classify(code, Operation.TRANSACTIONAL_PRODUCE, str(topic_partition))

    await cluster.retrying(call, timeout_ms)


async def _produce(
    cluster: Cluster,
    connection: Connection,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    batch: bytearray,
    stamp: ProducerStamp,
) -> ErrorCode:
    at_most = produce_version_max([topic_id], is_tv1=stamp.version < 2)
    version = connection.version_for(ApiKey.PRODUCE, at_most)
    buffers = encode_produce_request(
        version,
        connection.next_correlation_id(),
        connection.client_id,
        transactional_id=stamp.transactional_id,
        acks=ACKS_ALL,
        timeout_ms=int(cluster.request_timeout_ms),
        topics=[(topic_partition.topic, topic_id, [(topic_partition.partition, batch)])],
    )
    answer: asyncio.Future[memoryview] = connection.submit(ApiKey.PRODUCE, version, buffers)
    response = parse_produce_response(await answer, version, 0)
    connection.throttled(response.throttle_ms)
    codes = [ErrorCode(p.error) for topic in response.topics for p in topic.partitions]
    return codes[0] if codes else ErrorCode.network_exception


async def committed_value(
    cluster: Cluster,
    topic_partition: TopicPartition,
    key: bytes,
    timeout_ms: float,
    *,
    is_final: bool = True,
    on_progress: Callable[[], None] = lambda: None,
) -> bytes | None:
    """Return the value of the last committed record of `key`, None when there is none.

    Reads from the log's start to the high watermark, and calls `on_progress` after each fetch: a
    log that compaction has not reached may take longer than any single answer. With `is_final` it
    waits up to `timeout_ms` for a record of an open transaction, then raises `RetriableError`: call
    it after InitProducerId, which ended all of the caller's own.
    """

    async def call() -> bytes | None:
        begins = await list_offsets(
            cluster, {topic_partition: EARLIEST}, READ_UNCOMMITTED, timeout_ms
        )
        ends = await list_offsets(cluster, {topic_partition: LATEST}, READ_UNCOMMITTED, timeout_ms)
        offset, decided = begins[topic_partition].offset, DecidedValue(key)
        while offset < ends[topic_partition].offset:
            offset = await _read_on(cluster, topic_partition, offset, decided)
            on_progress()
        if is_final and decided.is_undecided:
            text = f"a record in {topic_partition} belongs to a transaction that has not ended"
            raise RetriableError(ErrorCode.concurrent_transactions, text)
        return decided.value

    return await cluster.retrying(call, timeout_ms)


async def _read_on(
    cluster: Cluster, topic_partition: TopicPartition, offset: int, decided: DecidedValue
) -> int:
    node_id = await cluster.leader(topic_partition)
    wanted = {topic_partition: FetchPartition(topic_partition.partition, offset, FETCH_SIZE_BYTES)}
    ((_, answer),) = await fetch_from(
        cluster, node_id, wanted, READ_UNCOMMITTED, FETCH_WAIT_MS, FETCH_SIZE_BYTES
    )
    code = ErrorCode(answer.error)
    if code is ErrorCode.offset_out_of_range:
        # The log's start moved while it was read: begin again.
        raise RetriableError(code, f"{topic_partition} at offset {offset}")
    if code is not ErrorCode.none:
        cluster.metadata.mark_stale(topic_partition.topic)
        raise classify(code, Operation.FETCH, f"{topic_partition} at offset {offset}")
    records = answer.records if isinstance(answer.records, bytes | memoryview) else b""
    try:
        next_offset = decided.read(records, offset)
    except ProtocolError as error:
        text = f"{topic_partition} from offset {offset} on: {error.message}"
        raise FatalError(error.code, text) from error
    if next_offset <= offset:
        raise RetriableError(ErrorCode.unknown_server_error, f"{topic_partition} brings nothing")
    return next_offset

"""Handles Produce (0), versions 3-13: appends batches to partitions' logs.

Versions 0 to 2 are announced for librdkafka only (KAFKA-18659). The partition's log checks and
appends each batch without parsing its records (D4). acks=0 gets no reply, and an error closes the
connection, as in Kafka. acks=-1 waits for the high watermark, acks=1 for a sync where one is due;
both hold back replies only (D13). The coordinator verifies the first batch of a transaction in each
partition, which holds back later requests; under TV2 (version 12 on) that adds the partition.

There is no task, and no work per record except where `storage.validation` requires it; then the
reply names the records at fault (KIP-467). Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oncelog.broker.apis.responses import absent, leader_endpoints
from oncelog.broker.coordination.verification import TransactionSupportedOperation, verify_and
from oncelog.broker.net.request import Buffers, Request
from oncelog.broker.partitions.delayed import DelayedProduce, OnReached
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import Pending
from oncelog.protocol.batch import CODEC_MASK, BatchHeader, read_header
from oncelog.protocol.produce import (
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResponse,
    encode_produce_response,
    parse_produce_request,
)

if TYPE_CHECKING:
    from uuid import UUID

    from oncelog.broker.apis.context import Context
    from oncelog.broker.partitions.manager import PartitionManager
    from oncelog.storage import AppendResult

__all__ = ["TopicLabel", "handle", "is_transactional", "refuse_all"]

Answer: TypeAlias = "Buffers | Pending[Buffers | None] | None"

_TRANSACTIONAL_BIT = 0x10
_ATTRIBUTES_LOW_BYTE = 22
_ZSTD = 4
_HEADER_SIZE = 61

_ZSTD_SINCE = 7
"""Batches of older versions may not be compressed with ZStandard (KIP-110)."""

_TV2_SINCE = 12

_new = tuple.__new__
"""It takes half the time of a named tuple's own constructor."""

_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
    }
)
"""Errors of the log that Kafka answers without its start (ReplicaManager, appendRecordsToLeader).

With the others a producer learns it: after UNKNOWN_PRODUCER_ID Java's retries until it does.
"""

NOTHING_REFUSED: Mapping[TopicPartition, ErrorCode] = {}
NONE_VERIFIED: frozenset[Partition] = frozenset()

TopicLabel: TypeAlias = "tuple[str | None, UUID | None]"
"""A topic as the request names it: by name or id."""

NONE_DENIED: frozenset[TopicLabel] = frozenset()

Look: TypeAlias = Callable[[ProduceRequest], "Set[TopicLabel] | None"]
"""Asks to which topics the client may not write; None: it may not use the transactional id."""


class Waiting(NamedTuple):
    """A partition that was appended to, and the event that its outcome waits for."""

    topic_slot: int
    slot: int
    """The index of its answer in the reply."""
    on_reached: OnReached
    end_offset: int


def handle(context: Context, request: Request[memoryview], look: Look | None = None) -> Answer:
    """Append, and reply now, later or never (see the module).

    `look` returns the topics that are refused, None if all are; a broker without an authorizer does
    not ask.
    """
    produce = parse_produce_request(request.body, request.version)
    denied: Set[TopicLabel] = NONE_DENIED
    if look is not None:
        found = look(produce)
        if found is None:
            return refuse_all(request, produce, ErrorCode.transactional_id_authorization_failed)
        denied = found
    if produce.acks not in (-1, 1, 0):
        return refuse_all(request, produce, ErrorCode.invalid_required_acks)
    if produce.transactional_id is not None:
        return _verify(context, request, produce, denied)
    return _append(context, request, produce, NOTHING_REFUSED, NONE_VERIFIED, denied)


def _verify(
    context: Context,
    request: Request[memoryview],
    produce: ProduceRequest,
    denied: Set[TopicLabel],
) -> Answer:
    """Verify the batches that open a transaction in their partition, then append.

    A request has one producer (Kafka's rule).
    """
    transactional: list[tuple[Partition, BatchHeader]] = []
    found: set[Partition] = set()
    for topic in produce.topics:
        if denied and topic[:2] in denied:
            continue
        name = topic.name if topic.name is not None else _name_of(context, topic.topic_id)
        for index, records in topic.partitions:
            partition = None if name is None else context.partitions.get(name, index)
            if partition is None or records is None:
                continue
            found.add(partition)
            try:
                header = read_header(records)
            except ProtocolError:
                continue  # The log refuses it with a more precise error.
            if header.is_transactional:
                transactional.append((partition, header))
    if not transactional:
        return _append(context, request, produce, NOTHING_REFUSED, NONE_VERIFIED, denied)
    verified = frozenset(found)
    producers = {(header.producer_id, header.producer_epoch) for _, header in transactional}
    if len(producers) > 1:
        return refuse_all(request, produce, ErrorCode.invalid_producer_id_mapping)
    producer_id, producer_epoch = producers.pop()
    version = request.version
    support = (
        TransactionSupportedOperation.ADD
        if version >= _TV2_SINCE
        else TransactionSupportedOperation.VERIFY
        if version == 11
        else TransactionSupportedOperation.VERIFY_OLD
    )
    verifies = context.config.get_bool("transaction.partition.verification.enable")
    if support is not TransactionSupportedOperation.ADD and not verifies:
        return _append(context, request, produce, NOTHING_REFUSED, verified, denied)
    return verify_and(
        context.transaction_coordinators,
        context.meters.verifications,
        transactional_id=produce.transactional_id or "",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        batches=[(partition, header.base_sequence) for partition, header in transactional],
        support=support,
        then=lambda verdict: _append(context, request, produce, verdict, verified, denied),
    )


def _append(
    context: Context,
    request: Request[memoryview],
    produce: ProduceRequest,
    refused: Mapping[TopicPartition, ErrorCode],
    verified: frozenset[Partition],
    denied: Set[TopicLabel],
) -> Answer:
    """Append every partition's batch in the order of the request, and reply.

    Transactional batches are for the partitions in `verified` alone, those that were there when the
    coordinator was asked.
    """
    acks, partitions = produce.acks, context.partitions
    now_ms = context.clock.now_ms()
    topics: list[ProduceTopicResponse] = []
    waiting: list[Waiting] | None = None
    failed = False
    # Under TV2 every transaction starts with a new epoch and sequence 0; the log enforces that
    # (KAFKA-18202).
    protocol = 2 if verified and request.version >= _TV2_SINCE else 0
    for topic in produce.topics:
        if denied and topic[:2] in denied:
            failed = True
            topics.append(_all_refused(request, topic, ErrorCode.topic_authorization_failed))
            continue
        name = topic.name if topic.name is not None else _name_of(context, topic.topic_id)
        outcomes: list[ProducePartitionResponse] = []
        for index, records in topic.partitions:
            partition = None if name is None else partitions.get(name, index)
            error = _check(partition, records, acks, request.version, refused, verified)
            if error is not ErrorCode.none or partitions.refused.lowest:
                label = (topic.name or topic.topic_id, index)
                error = _ordered(partitions, partition, label, records, error)
            if error is not ErrorCode.none:
                failed = True
                outcomes.append(_told(request, _refusal(context, name, index, error)))
                continue
            assert partition is not None
            assert records is not None
            result = partition.append(records, now_ms=now_ms, transaction_version=protocol)
            if result.error is not ErrorCode.none:
                failed = True
                outcomes.append(_told(request, _refused(index, result)))
                continue
            is_far = partition.state.high_watermark <= result.last_offset
            if is_far if acks == -1 else partition.is_syncing:
                on_reached = partition.on_replicated if acks == -1 else partition.on_synced
                waiting = waiting or []
                place = Waiting(len(topics), len(outcomes), on_reached, result.last_offset + 1)
                waiting.append(place)
            offsets = (result.base_offset, result.log_append_time_ms, result.log_start_offset)
            outcomes.append(_new(ProducePartitionResponse, (index, 0, *offsets, None, (), None)))
        topics.append(_new(ProduceTopicResponse, (topic.name, topic.topic_id, outcomes)))
    if acks == 0:
        if failed:
            request.connection.fail("a produce with acks=0 failed")
        return None
    if waiting is not None:
        return _wait(context, request, produce.timeout_ms, topics, waiting)
    nodes: Sequence[NodeEndpoint] = ()
    if failed:
        nodes = leader_endpoints(context.image, request.connection.listener, topics)
    version, correlation_id = request.version, request.correlation_id
    return encode_produce_response(version, correlation_id, topics, node_endpoints=nodes)


def _check(
    partition: Partition | None,
    records: memoryview | None,
    acks: int,
    version: int,
    refused: Mapping[TopicPartition, ErrorCode],
    verified: frozenset[Partition],
) -> ErrorCode:
    """Return the error that keeps a batch from its log, before the log's own checks."""
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if version < _ZSTD_SINCE and _is_zstd(records):
        return ErrorCode.unsupported_compression_type
    if refused and partition.topic_partition in refused:
        return refused[partition.topic_partition]
    state = partition.state
    if not state.is_leader:
        return state.leader_error()
    if acks == -1 and not state.has_enough_replicas:
        return ErrorCode.not_enough_replicas
    if partition.is_internal:
        return ErrorCode.invalid_topic_exception
    if records is None or len(records) < _HEADER_SIZE:
        return ErrorCode.invalid_record
    if partition not in verified and records[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_BIT:
        # Without verification this transaction would hang (KIP-890), or the marker of the next one
        # would decide it (INV-3). A partition that was made meanwhile is verified at the retry.
        return ErrorCode.unknown_topic_or_partition if verified else ErrorCode.invalid_txn_state
    return ErrorCode.none


def _ordered(
    partitions: PartitionManager,
    partition: Partition | None,
    label: tuple[str | UUID | None, int],
    records: memoryview | None,
    error: ErrorCode,
) -> ErrorCode:
    """Return the error of a batch, once its order among refused ones is known (INV-2)."""
    now_ms = partitions.clock.monotonic_ms()
    if error is not ErrorCode.none:
        partitions.refused.note(label, records, error, now_ms)
        return error
    assert partition is not None
    assert records is not None
    return partitions.refused.check(label, records, partition.log.producers, now_ms)


def is_transactional(records: memoryview | None) -> bool:
    """Whether a batch says that it is part of a transaction."""
    return (
        records is not None
        and len(records) >= _HEADER_SIZE
        and bool(records[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_BIT)
    )


def _is_zstd(records: memoryview | None) -> bool:
    """Whether a batch says that it is compressed with ZStandard."""
    return (
        records is not None
        and len(records) >= _HEADER_SIZE
        and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == _ZSTD
    )


def _told(
    request: Request[memoryview], refusal: ProducePartitionResponse
) -> ProducePartitionResponse:
    return refusal._replace(error=request.meter.told(ErrorCode(refusal.error)))


def _refusal(
    context: Context, name: str | None, index: int, error: ErrorCode
) -> ProducePartitionResponse:
    """Answer for a batch that did not reach its log, naming the leader if need be (KIP-951)."""
    if name is None:
        return ProducePartitionResponse(index, ErrorCode.unknown_topic_id)
    if error in (ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower):
        error = absent(context.image, context.broker_id, name, index)
        image = context.image.partition(name, index)
        if image is None:
            return ProducePartitionResponse(index, error)
        leader = (image.leader, image.leader_epoch)
        return ProducePartitionResponse(index, error, current_leader=leader)
    return ProducePartitionResponse(index, error)


def _refused(index: int, result: AppendResult) -> ProducePartitionResponse:
    """Answer for a batch that its log refused, naming the records at fault (KIP-467)."""
    return ProducePartitionResponse(
        index,
        result.error,
        log_start_offset=-1 if result.error in _WITHOUT_LOG_START else result.log_start_offset,
        error_message=result.message,
        record_errors=result.record_errors,
    )


def _wait(
    context: Context,
    request: Request[memoryview],
    timeout_ms: int,
    topics: list[ProduceTopicResponse],
    waiting: list[Waiting],
) -> Pending[Buffers]:
    """Reply when every append is synced or replicated, or the client's timeout has passed."""

    def response(outcomes: dict[int, ErrorCode]) -> Buffers:
        nodes: Sequence[NodeEndpoint] = ()
        for key, error in outcomes.items():
            if error is not ErrorCode.none:
                place = waiting[key]
                told = request.meter.told(error)
                topic = topics[place.topic_slot]
                assert isinstance(topic.partitions, list)
                name = topic.name if topic.name is not None else _name_of(context, topic.topic_id)
                refusal = _refusal(context, name, topic.partitions[place.slot].index, error)
                topic.partitions[place.slot] = refusal._replace(error=told)
                nodes = leader_endpoints(context.image, request.connection.listener, topics)
        return encode_produce_response(
            request.version, request.correlation_id, topics, node_endpoints=nodes
        )

    # The records are in the log: waiting for replicas must not retain the frame.
    request.body = memoryview(b"")
    reply: Pending[Buffers] = Pending(response, holds_back=False)
    delayed = DelayedProduce(reply.complete)
    for key, place in enumerate(waiting):
        delayed.wait_for(key, place.on_reached, place.end_offset)
    delayed.start(context.partitions.loop, timeout_ms)
    return reply


def refuse_all(
    request: Request[memoryview], produce: ProduceRequest, error: ErrorCode
) -> Buffers | None:
    """Build the reply with one error for every partition of the request."""
    topics = [_all_refused(request, topic, error) for topic in produce.topics]
    if produce.acks == 0:
        request.connection.fail(f"a produce with acks=0 failed: {error.name.upper()}")
        return None
    return encode_produce_response(request.version, request.correlation_id, topics)


def _all_refused(
    request: Request[memoryview], topic: ProduceTopic, error: ErrorCode
) -> ProduceTopicResponse:
    told = request.meter.told(error, len(topic.partitions))
    refused = [ProducePartitionResponse(index, told) for index, _ in topic.partitions]
    return ProduceTopicResponse(topic.name, topic.topic_id, refused)


def _name_of(context: Context, topic_id: UUID | None) -> str | None:
    topic = context.image.topic_by_id(topic_id)
    return None if topic is None else topic.name

"""Handles TxnOffsetCommit (28), versions 0-6: commits offsets within a transaction.

The group coordinator writes the offsets as a batch of the producer's transaction; the commit marker
makes them visible (INV-6). It first verifies that the transaction contains the group's partition,
or from version 5 on (TV2) adds it. If the transaction ends while the write waits for another one of
the group, the request gets INVALID_TXN_STATE, or INVALID_PRODUCER_EPOCH where that end fenced the
producer. Generation and member are checked when given (KIP-447). From version 6 on topics are named
by id (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oncelog.broker.coordination.verification import (
    TransactionSupportedOperation,
    Verdict,
    verify_and,
)
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import OffsetToCommit, TxnOffsetCommit
from oncelog.group.replies import OffsetCommitReply
from oncelog.protocol.messages import txn_offset_commit as schema
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from oncelog.storage import NO_SEQUENCE, Verification

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context
    from oncelog.broker.partitions.partition import Partition

__all__ = ["handle"]


TV2_SINCE: Final = 5
"""The version that TV2 clients send (KIP-890)."""

IDS_SINCE: Final = 6

Outcome = Mapping[tuple[str | None, int], ErrorCode]
"""The error of each partition, by its topic's name: None for an id that no topic has."""


def handle(
    context: Context, request: Request[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Answer at once where this broker coordinates the group."""
    if _led(context, request.body.group_id) is None:
        return context.groups.once_caught_up(lambda: _verify(context, request))
    return _verify(context, request)


def _led(context: Context, group_id: str) -> Partition | None:
    """Return the partition of a group's coordinator, if this broker leads it."""
    index = context.groups.partition_of(group_id)
    partition = context.partitions.get(context.groups.topic, index)
    return partition if partition is not None and partition.state.is_leader else None


def _verify(
    context: Context, request: Request[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Verify the group's partition, then commit through the group coordinator.

    Partitions that do not exist are set aside first: a request without others adds nothing to the
    transaction.
    """
    if request.version >= IDS_SINCE:
        request.body = _named(context, request.body)
    body = request.body
    offsets, unknown = _offsets(context, request)
    if not offsets:
        return _response(request, unknown)
    if not body.group_id:
        return _refuse(request, ErrorCode.invalid_group_id, unknown)
    partition = _led(context, body.group_id)
    if partition is None:
        return _refuse(request, ErrorCode.not_coordinator, unknown)
    log = partition.log
    support = (
        TransactionSupportedOperation.ADD
        if request.version >= TV2_SINCE
        else TransactionSupportedOperation.VERIFY
        if request.version == 4
        else TransactionSupportedOperation.VERIFY_OLD
    )

    def then(verdict: Verdict) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
        error = verdict.get(partition.topic_partition, ErrorCode.none)
        if error is ErrorCode.not_enough_replicas:
            error = ErrorCode.coordinator_not_available
        if error in (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error):
            error = ErrorCode.not_coordinator
        if error is not ErrorCode.none:
            return _refuse(request, error, unknown)
        permit = log.producers.verifications.permit(
            body.producer_id,
            body.producer_epoch,
            bumps_epoch=support is TransactionSupportedOperation.ADD,
            now_ms=context.clock.now_ms(),
        )
        return _commit(context, request, offsets, unknown, permit)

    if log.producers.transaction_is_open(body.producer_id, body.producer_epoch):
        return then({})
    return verify_and(
        context.transaction_coordinators,
        context.meters.verifications,
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        batches=((partition, NO_SEQUENCE),),
        support=support,
        then=then,
        are_missing=True,
    )


def _named(context: Context, body: TxnOffsetCommitRequest) -> TxnOffsetCommitRequest:
    """Return the request with the names of the topics that it names by id."""
    images = [context.image.topic_by_id(topic.topic_id) for topic in body.topics]
    return replace(
        body,
        topics=tuple(
            replace(topic, name=None if image is None else image.name)
            for topic, image in zip(body.topics, images, strict=True)
        ),
    )


def _offsets(
    context: Context, request: Request[TxnOffsetCommitRequest]
) -> tuple[tuple[OffsetToCommit, ...], Outcome]:
    """Return what can be committed, and the error of each partition that does not exist."""
    offsets = []
    unknown: dict[tuple[str | None, int], ErrorCode] = {}
    for topic in request.body.topics:
        image = None if topic.name is None else context.image.topic(topic.name)
        missing = ErrorCode.unknown_topic_or_partition
        if topic.name is None:
            missing = ErrorCode.unknown_topic_id
        for part in topic.partitions:
            if image is None or not 0 <= part.partition_index < len(image.partitions):
                unknown[topic.name, part.partition_index] = missing
                continue
            offsets.append(
                OffsetToCommit(
                    image.name,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata,
                    image.topic_id,
                )
            )
    return tuple(offsets), unknown


def _commit(
    context: Context,
    request: Request[TxnOffsetCommitRequest],
    offsets: tuple[OffsetToCommit, ...],
    unknown: Outcome,
    permit: Verification,
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    body = request.body
    event = TxnOffsetCommit(
        body.group_id,
        request.version,
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        body.generation_id_or_member_epoch,
        body.member_id,
        offsets,
        body.group_instance_id,
        permit,
    )

    def convert(result: OffsetCommitReply) -> TxnOffsetCommitResponse:
        outcome: Outcome = {(o.topic, o.partition): o.error for o in result.partitions}
        return _response(request, {**outcome, **unknown})

    return context.groups.ask(
        body.group_id, event, convert, lambda error: _refuse(request, error, unknown)
    )


def _refuse(
    request: Request[TxnOffsetCommitRequest], error: ErrorCode, unknown: Outcome
) -> TxnOffsetCommitResponse:
    refused = {
        (topic.name, part.partition_index): error
        for topic in request.body.topics
        for part in topic.partitions
    }
    return _response(request, {**refused, **unknown})


def _response(
    request: Request[TxnOffsetCommitRequest], outcome: Outcome
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            schema.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    schema.TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=outcome[topic.name, part.partition_index],
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.body.topics
        ),
    )

"""Handles AddPartitionsToTxn (24), versions 0-5: adds partitions to a transaction.

Clients use versions up to 3. From version 4 on brokers send it to brokers, in batches.

All partitions of a transaction are added, or none: an unknown partition gets
UNKNOWN_TOPIC_OR_PARTITION and the others OPERATION_NOT_ATTEMPTED. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.protocol.messages import add_partitions_to_txn as schema
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from oncelog.transaction.events import AddPartitions, AddPartitionsReply

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


_BROKERS_SINCE = 4

AnswerT = TypeVar("AnswerT")

Outcome = dict[TopicPartition, ErrorCode]


def handle(
    context: Context, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    """Ask the transaction coordinator for each transaction of the request; clients send one."""
    transactions = request.body.transactions
    if len(transactions) == 1:
        wanted = transactions[0]
        return _start(context, request, wanted, lambda outcome: _response(request, [outcome]))
    parts = [_start(context, request, wanted, unchanged) for wanted in transactions]
    return gather(parts, lambda outcomes: _response(request, outcomes), holds_back=True)


def _start(
    context: Context,
    request: Request[AddPartitionsToTxnRequest],
    wanted: AddPartitionsToTxnTransaction,
    then: Callable[[Outcome], AnswerT],
) -> AnswerT | Pending[AnswerT]:
    """Return `then` of the outcome of each partition of one transaction, or a promise of it."""
    partitions = tuple(
        [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    )
    if not wanted.verify_only:
        image = context.image
        unknown = [p for p in partitions if image.partition(*p) is None]
        if unknown:
            outcome = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
            return then(outcome | dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition))
    event = AddPartitions(
        wanted.transactional_id,
        ProducerId(wanted.producer_id),
        ProducerEpoch(wanted.producer_epoch),
        partitions,
        verify_only=wanted.verify_only,
        transaction_version=2 if request.version >= _BROKERS_SINCE else 1,
    )

    def answered(result: AddPartitionsReply) -> AnswerT:
        return then(dict(result.partitions))

    return context.transactions.ask(
        wanted.transactional_id,
        event,
        answered,
        lambda error: then(dict.fromkeys(partitions, error)),
    )


def _response(
    request: Request[AddPartitionsToTxnRequest], outcomes: list[Outcome]
) -> AddPartitionsToTxnResponse:
    results = []
    for wanted, outcome in zip(request.body.transactions, outcomes, strict=True):
        topics = []
        for topic in wanted.topics:
            answers = []
            for index in topic.partitions:
                error = outcome[TopicPartition(topic.name, index)]
                answers.append(
                    schema.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error
                    )
                )
            topics.append(
                schema.AddPartitionsToTxnTopicResult(
                    name=topic.name, results_by_partition=tuple(answers)
                )
            )
        results.append(
            schema.AddPartitionsToTxnResult(
                transactional_id=wanted.transactional_id, topic_results=tuple(topics)
            )
        )
    return AddPartitionsToTxnResponse(
        error_code=ErrorCode.none,
        results_by_transaction=tuple(results),
    )

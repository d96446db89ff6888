"""Handles AddPartitionsToTxn (24), versions 0-5: adds partitions to a transaction.

Clients use versions up to 3. From version 4 on brokers send it to brokers, in batches.

All partitions of a transaction are added, or none: an unknown partition gets
UNKNOWN_TOPIC_OR_PARTITION and the others OPERATION_NOT_ATTEMPTED. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588). A client's late request, on a connection that it has
abandoned, gets INVALID_TXN_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.responses import fenced_for_old
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending, gather
from oncelog.protocol.messages import add_partitions_to_txn as schema
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from oncelog.transaction.events import AddPartitions, AddPartitionsResult

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


_BROKERS_SINCE = 4

Outcome = dict[TopicPartition, ErrorCode]


def handle(
    context: Context, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    """Ask the transaction coordinator for each transaction of the request; clients send one."""
    parts = [_start(context, request, wanted) for wanted in request.body.transactions]
    return gather(parts, lambda outcomes: _response(request, outcomes), holds_back=True)


def _start(
    context: Context,
    request: Request[AddPartitionsToTxnRequest],
    wanted: AddPartitionsToTxnTransaction,
) -> Outcome | Pending[Outcome]:
    """Return the outcome of each partition of one transaction, or a promise of it."""
    partitions = tuple(
        TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions
    )
    unknown = {p for p in partitions if context.image.partition(*p) is None}
    if unknown and not wanted.verify_only:
        return {
            p: ErrorCode.unknown_topic_or_partition
            if p in unknown
            else ErrorCode.operation_not_attempted
            for p in partitions
        }
    is_of_broker = request.version >= _BROKERS_SINCE
    event = AddPartitions(
        wanted.transactional_id,
        ProducerId(wanted.producer_id),
        ProducerEpoch(wanted.producer_epoch),
        partitions,
        verify_only=wanted.verify_only,
        transaction_version=2 if is_of_broker else 1,
        connection=0 if is_of_broker else request.connection.id,
    )
    return context.transactions.ask(
        wanted.transactional_id, event, _outcome, lambda error: dict.fromkeys(partitions, error)
    )


def _outcome(result: AddPartitionsResult) -> Outcome:
    return dict(result.partitions)


def _response(
    request: Request[AddPartitionsToTxnRequest], outcomes: list[Outcome]
) -> AddPartitionsToTxnResponse:
    results = []
    for wanted, outcome in zip(request.body.transactions, outcomes, strict=True):
        topics = tuple(
            schema.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    schema.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=fenced_for_old(
                            outcome[TopicPartition(topic.name, index)], request.version, since=2
                        ),
                    )
                    for index in topic.partitions
                ),
            )
            for topic in wanted.topics
        )
        results.append(
            schema.AddPartitionsToTxnResult(
                transactional_id=wanted.transactional_id, topic_results=topics
            )
        )
    return AddPartitionsToTxnResponse(
        error_code=ErrorCode.none,
        results_by_transaction=tuple(results),
    )

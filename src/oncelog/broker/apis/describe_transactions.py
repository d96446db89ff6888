"""Handles DescribeTransactions (65), version 0: describes transactional ids (KIP-664).

Each id gets its own result: TRANSACTIONAL_ID_NOT_FOUND when it does not exist, INVALID_REQUEST when
it is empty, NOT_COORDINATOR when another broker coordinates it. Gap: none known.

A request with our tagged field `include_life` also gets the id's recent events
(`oncelog.transaction.life`), what prevents it from ending, why its producer was last fenced, and
how an id expired that does not exist any more. All other requests get Kafka's reply byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    LifeStep,
    TopicData,
)
from oncelog.transaction.events import DescribeTransaction, DescribeTransactionReply
from oncelog.transaction.life import Step

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
    """Ask the coordinator of each id."""
    include_life = request.body.include_life
    answers = [
        context.transactions.ask(
            id_,
            DescribeTransaction(id_, include_life),
            unchanged,
            lambda error, id_=id_: DescribeTransactionReply(error, id_),  # type: ignore[misc]
        )
        for id_ in dict.fromkeys(request.body.transactional_ids)
    ]

    def convert(results: list[DescribeTransactionReply]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=tuple(_state(result, include_life) for result in results),
        )

    return gather(answers, convert, holds_back=True)


def _state(result: DescribeTransactionReply, include_life: bool) -> DescribedTransaction:
    cause = (result.cause or "") if include_life else ""
    if result.error is not ErrorCode.none:
        return DescribedTransaction(
            transactional_id=result.transactional_id, error_code=result.error, cause=cause
        )
    return DescribedTransaction(
        error_code=ErrorCode.none,
        transactional_id=result.transactional_id,
        transaction_state=result.state.label,
        transaction_timeout_ms=result.timeout_ms,
        # Before the first transaction this is -1 ms, which Kafka's tools print as none.
        transaction_start_time_ms=result.start_timestamp_ms,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        topics=_topics(result.partitions),
        life=tuple(map(_step, result.life)),
        trouble=result.trouble if include_life else "",
        cause=cause,
    )


def _step(step: Step) -> LifeStep:
    return LifeStep(
        timestamp_ms=step.at_ms,
        kind=step.kind.value,
        producer_id=step.producer_id,
        producer_epoch=step.producer_epoch,
        topics=_topics(step.partitions),
        error_code=step.error,
        cause=step.cause,
        more_count=step.more_count,
    )


def _topics(partitions: tuple[TopicPartition, ...]) -> tuple[TopicData, ...]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return tuple(
        TopicData(topic=name, partitions=tuple(indexes)) for name, indexes in topics.items()
    )

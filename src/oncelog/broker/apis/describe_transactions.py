"""DescribeTransactions (65), version 0: state, producer and partitions of transactional ids.

Each id by itself: TRANSACTIONAL_ID_NOT_FOUND when there is none, INVALID_REQUEST for an empty one,
NOT_COORDINATOR when another broker has it (KIP-664). Gap: none known.

Who asks with our tagged field `include_life` is told what happened to the id lately, and what keeps
it from ending (`oncelog.transaction.life`). Others get Kafka's answer byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import gather, unchanged
from oncelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    LifeStep,
    TopicData,
    TransactionState,
)
from oncelog.transaction.events import DescribeTransaction, DescribeTransactionResult
from oncelog.transaction.life import Step

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[DescribeTransactionsRequest]) -> Any:
    """Ask the coordinator of each id."""
    answers = [
        context.transactions.ask(
            id_,
            DescribeTransaction(id_, request.body.include_life),
            unchanged,
            lambda error, id_=id_: DescribeTransactionResult(error, id_),  # type: ignore[misc]
        )
        for id_ in dict.fromkeys(request.body.transactional_ids)
    ]
    return gather(answers, _response, holds_back=True)


def _response(results: list[DescribeTransactionResult]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(_state(result) for result in results),
    )


def _state(result: DescribeTransactionResult) -> TransactionState:
    if result.error is not ErrorCode.none:
        return TransactionState(transactional_id=result.transactional_id, error_code=result.error)
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=result.transactional_id,
        transaction_state=result.state.label,
        transaction_timeout_ms=result.timeout_ms,
        # Before the first transaction this is -1 ms, which tools take for none.
        transaction_start_time_ms=result.start_timestamp_ms,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        topics=_topics(result.partitions),
        life=tuple(map(_step, result.life)),
        trouble=result.trouble,
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
    )


def _topics(partitions: tuple[TopicPartition, ...]) -> tuple[TopicData, ...]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return tuple(
        TopicData(topic=name, partitions=tuple(indexes)) for name, indexes in topics.items()
    )

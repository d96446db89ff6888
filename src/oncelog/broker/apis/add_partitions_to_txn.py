"""Handles AddPartitionsToTxn (24), versions 0-5: adds partitions to a transaction.

Clients use versions up to 3. From version 4 on brokers send it to brokers, in batches
(`oncelog.broker.coordination.remote_verification`). Such a request waits for the previous
transaction of an id only if the sender says so, and never long: others wait behind it. What has no
answer by then gets CONCURRENT_TRANSACTIONS, and the sender asks again.

All partitions of a transaction are added, or none: an unknown partition gets
UNKNOWN_TOPIC_OR_PARTITION and the others OPERATION_NOT_ATTEMPTED. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oncelog.broker.coordination.verification import ask_here
from oncelog.broker.net.request import Request
from oncelog.core.cluster_limits import VERIFICATION_WAIT_MS_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending, unchanged
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


class Added(NamedTuple):
    """What became of one transaction's partitions, and the coordinator epoch, -1 if unknown."""

    errors: dict[TopicPartition, ErrorCode]
    coordinator_epoch: int = -1


def handle(
    context: Context, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    """Ask the transaction coordinator for each transaction of the request; clients send one."""
    transactions = request.body.transactions
    if request.version < _BROKERS_SINCE:
        (wanted,) = transactions
        return _start(context, request, wanted, lambda outcome: _response(request, [outcome]))
    parts = [_start(context, request, wanted, unchanged) for wanted in transactions]
    return _Answers(request, parts).start(context.partitions.loop)


class _Answers:
    """The outcomes of a broker's request, until all are there or its time is up."""

    def __init__(
        self,
        request: Request[AddPartitionsToTxnRequest],
        parts: list[Added | Pending[Added]],
    ) -> None:
        self._request = request
        self._parts = parts
        self._missing = [part for part in parts if isinstance(part, Pending) and not part.done]
        self._missing_count = len(self._missing)
        self._reply: Pending[AddPartitionsToTxnResponse] = Pending(self._made, holds_back=False)
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self, loop: asyncio.AbstractEventLoop
    ) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
        """Return the response, or a promise of it."""
        if not self._missing:
            return self._made(None)
        self._timer = loop.call_later(VERIFICATION_WAIT_MS_MAX / 1000, self._give_up)
        self._reply.on_drop = self._drop
        for part in self._missing:
            part.wait(self._one_is_there)
        return self._reply

    def _one_is_there(self) -> None:
        self._missing_count -= 1
        if self._missing_count == 0:
            assert self._timer is not None
            self._timer.cancel()
            self._reply.complete(None)

    def _give_up(self) -> None:
        """Answer what there is; an undecided request is cancelled, a decided one takes effect."""
        for part in self._missing:
            part.drop()
        self._reply.complete(None)

    def _drop(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for part in self._missing:
            part.drop()

    def _made(self, _: object) -> AddPartitionsToTxnResponse:
        outcomes = []
        for wanted, part in zip(self._request.body.transactions, self._parts, strict=True):
            outcome: Added | Pending[Added] = part
            if isinstance(part, Pending):
                late = dict.fromkeys(_partitions(wanted), ErrorCode.concurrent_transactions)
                outcome = part.response() if part.done else Added(late)
            assert isinstance(outcome, Added)
            outcomes.append(outcome)
        return _response(self._request, outcomes)


def _start(
    context: Context,
    request: Request[AddPartitionsToTxnRequest],
    wanted: AddPartitionsToTxnTransaction,
    then: Callable[[Added], AnswerT],
) -> AnswerT | Pending[AnswerT]:
    """Return `then` of the outcome of one transaction, or a promise of it."""
    partitions = _partitions(wanted)
    if not wanted.verify_only:
        image = context.image
        unknown = [p for p in partitions if image.partition(*p) is None]
        if unknown:
            outcome = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
            outcome |= dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)
            return then(Added(outcome))
    event = AddPartitions(
        wanted.transactional_id,
        ProducerId(wanted.producer_id),
        ProducerEpoch(wanted.producer_epoch),
        partitions,
        verify_only=wanted.verify_only,
        transaction_version=2 if request.version >= _BROKERS_SINCE else 1,
        may_wait=request.version < _BROKERS_SINCE or wanted.wait_ms > 0,
    )

    def answered(result: AddPartitionsReply) -> AnswerT:
        epoch = -1 if wanted.wait_ms < 0 else result.coordinator_epoch
        return then(Added(dict(result.partitions), epoch))

    def unavailable(error: ErrorCode) -> AnswerT:
        return then(Added(dict.fromkeys(partitions, error)))

    transactions = context.transactions
    if request.version >= _BROKERS_SINCE:
        return ask_here(transactions, event, answered, unavailable)
    return transactions.ask(wanted.transactional_id, event, answered, unavailable)


def _partitions(wanted: AddPartitionsToTxnTransaction) -> tuple[TopicPartition, ...]:
    return tuple(
        [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    )


def _response(
    request: Request[AddPartitionsToTxnRequest], outcomes: list[Added]
) -> AddPartitionsToTxnResponse:
    results = []
    for wanted, outcome in zip(request.body.transactions, outcomes, strict=True):
        topics = []
        for topic in wanted.topics:
            answers = []
            for index in topic.partitions:
                error = outcome.errors[TopicPartition(topic.name, index)]
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
                transactional_id=wanted.transactional_id,
                topic_results=tuple(topics),
                coordinator_epoch=outcome.coordinator_epoch,
            )
        )
    return AddPartitionsToTxnResponse(
        error_code=ErrorCode.none,
        results_by_transaction=tuple(results),
    )

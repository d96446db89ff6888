"""Is the partition in the transaction? Asked before its first batch there (KIP-890).

A batch that opens a transaction in a partition nobody will send a marker to would hold the last
stable offset for ever. So the first transactional append of a producer in a partition asks the
coordinator: whether the partition was added (TV1: verify only), or to add it (TV2: Produce v12+,
TxnOffsetCommit v5+). Later appends find the transaction open in the log.

With the coordinator on this broker the answer usually comes within the call, and the append follows
in the same turn of the loop: nothing can happen between them. Otherwise a guard per partition
stands for the verification, and the marker of that transaction voids it (no ABA: INV-3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from oncelog.broker.broker import Broker
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.partitions.partition import Partition, VerificationGuard
    from oncelog.transaction.events import AddPartitionsResult

__all__ = ["Support", "Verdict", "verify_and"]

T = TypeVar("T")

Verdict = Mapping[TopicPartition, ErrorCode]
"""Why each refused partition may not be appended to; partitions that may be are absent."""


class Support(Enum):
    """What the client's version of Produce or TxnOffsetCommit can express."""

    VERIFY_OLD = (
        "verify; an absent partition is INVALID_TXN_STATE, which old clients take for fatal"
    )
    VERIFY = "verify; an absent partition is TRANSACTION_ABORTABLE (KIP-890)"
    ADD = "add the partition to the transaction (TV2)"


_UNAVAILABLE = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def verify_and(
    broker: Broker,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
    support: Support,
    connection: Connection,
    then: Callable[[Verdict], T],
) -> T | Awaitable[T]:
    """Verify partitions in which no transaction of the producer is open; go on with `then`.

    Returns what `then` returned when the coordinator answered at once, otherwise an awaitable of
    it.
    """
    missing = [p for p in partitions if not p.log.transaction_is_open(producer_id, producer_epoch)]
    if not missing:
        return then({})
    from oncelog.transaction.events import AddPartitions  # Plain producers never need it.

    event = AddPartitions(
        transactional_id,
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        tuple(p.topic_partition for p in missing),
        verify_only=support is not Support.ADD,
        transaction_version=2 if support is Support.ADD else 1,
    )
    try:
        answer = broker.transactions.request(transactional_id, event, connection)
    except ProtocolError as error:
        refusal = _error_of(error.code, support)
        return then({p.topic_partition: refusal for p in missing})
    if answer.done():
        return then(_verdict(answer.result(), support))
    # The answer is still to come, so a guard made now stands from before it.
    guards = [(p, p.begin_verification(producer_id)) for p in missing]
    return _later(answer, guards, producer_id, producer_epoch, support, then)


async def _later(
    answer: asyncio.Future[AddPartitionsResult],
    guards: list[tuple[Partition, VerificationGuard]],
    producer_id: int,
    producer_epoch: int,
    support: Support,
    then: Callable[[Verdict], T],
) -> T:
    try:
        refused = dict(_verdict(await answer, support))
    finally:
        standing = [p.end_verification(producer_id, guard) for p, guard in guards]
    for (partition, _), stands in zip(guards, standing, strict=True):
        if not stands and not partition.log.transaction_is_open(producer_id, producer_epoch):
            # The transaction ended between the answer and now; the batch belongs to nothing any
            # more.
            refused.setdefault(partition.topic_partition, ErrorCode.invalid_txn_state)
    return then(refused)


def _verdict(result: AddPartitionsResult, support: Support) -> Verdict:
    return {
        topic_partition: _error_of(error, support)
        for topic_partition, error in result.partitions
        if error is not ErrorCode.none
    }


def _error_of(error: ErrorCode, support: Support) -> ErrorCode:
    """Translate for a producer (AddPartitionsToTxnManager, handleProduceAppend)."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and support is Support.VERIFY_OLD:
        return ErrorCode.invalid_txn_state
    if error in _UNAVAILABLE or (
        error is ErrorCode.concurrent_transactions and support is not Support.ADD
    ):
        # Retriable for every client, and no reason to refresh metadata.
        return ErrorCode.not_enough_replicas
    return error

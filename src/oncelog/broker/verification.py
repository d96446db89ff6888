"""Is the partition in the transaction? Asked before its first batch there (KIP-890).

A batch that opens a transaction in a partition nobody will send a marker to would hold the last
stable offset for ever. So the first transactional append of a producer in a partition asks the
coordinator: whether the partition was added (TV1: verify only), or to add it (TV2: Produce v12+,
TxnOffsetCommit v5+). Later appends find the transaction open in the log.

With the coordinator on this broker the answer usually comes within the call, and the append follows
in the same turn of the loop: nothing can happen between them. Otherwise the partition's log keeps a
`Verification` of it, which the marker of that transaction voids (no ABA: INV-3). What is bounced is
remembered there too, with its lowest sequence (INV-2); see `oncelog.storage.verifications`.
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
    from oncelog.broker.connection import Connection
    from oncelog.broker.partition import Partition
    from oncelog.storage import Verification
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


_NOT_THE_PRODUCER = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
    }
)
"""It does not hold the transactional id, so it leaves no trace."""


def verify_and(
    broker: Broker,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    batches: Sequence[tuple[Partition, int]],
    support: Support,
    connection: Connection,
    then: Callable[[Verdict], T],
) -> T | Awaitable[T]:
    """Verify partitions in which no transaction of the producer is open; go on with `then`.

    `batches` are the partitions, each with the first sequence of what is to be appended there.
    Returns what `then` returned when the coordinator answered at once, otherwise an awaitable of
    it.
    """
    missing = [
        (partition, sequence)
        for partition, sequence in batches
        if not partition.log.transaction_is_open(producer_id, producer_epoch)
    ]
    if not missing:
        return then({})
    now_ms = broker.clock.now_ms()
    is_tv2 = support is Support.ADD

    def begin(partition: Partition, sequence: int) -> tuple[Partition, Verification]:
        verifications = partition.log.verifications
        return partition, verifications.begin(
            producer_id, producer_epoch, sequence, bumps_epoch=is_tv2, now_ms=now_ms
        )

    def bounce(refused: Verdict) -> T:
        for partition, sequence in missing:
            error = refused.get(partition.topic_partition, ErrorCode.none)
            if error is not ErrorCode.none and error not in _NOT_THE_PRODUCER:
                partition.log.verifications.end(begin(partition, sequence)[1])
        return then(refused)

    from oncelog.transaction.events import AddPartitions  # Plain producers never need it.

    event = AddPartitions(
        transactional_id,
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        tuple(partition.topic_partition for partition, _ in missing),
        verify_only=not is_tv2,
        transaction_version=2 if is_tv2 else 1,
    )
    try:
        answer = broker.transactions.request(transactional_id, event, connection)
    except ProtocolError as error:
        refusal = _error_of(error.code, support)
        return bounce({partition.topic_partition: refusal for partition, _ in missing})
    if answer.done():
        return bounce(_verdict(answer.result(), support))
    # The answer is still to come, so a verification begun now stands from before it.
    return _later(answer, [begin(*batch) for batch in missing], support, then)


async def _later(
    answer: asyncio.Future[AddPartitionsResult],
    begun: list[tuple[Partition, Verification]],
    support: Support,
    then: Callable[[Verdict], T],
) -> T:
    refused: dict[TopicPartition, ErrorCode] = {}
    try:
        refused.update(_verdict(await answer, support))
    finally:
        allowed = [
            partition.log.verifications.end(
                verification,
                forget=refused.get(partition.topic_partition) in _NOT_THE_PRODUCER,
            )
            for partition, verification in begun
        ]
    for (partition, _), is_allowed in zip(begun, allowed, strict=True):
        if not is_allowed:
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

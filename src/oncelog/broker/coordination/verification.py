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

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from oncelog.broker.coordination.runtime import CoordinatorRuntime
from oncelog.broker.partitions.partition import Partition, VerificationGuard
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending

__all__ = ["Support", "Verdict", "verify_and"]

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
    transactions: CoordinatorRuntime,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
    support: Support,
    then: Callable[[Verdict], Any],
) -> Any:
    """Verify partitions in which no transaction of the producer is open; go on with `then`.

    Returns what `then` returned when nothing has to be asked, otherwise the promise of it.
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
    verification = _Verification(missing, producer_id, producer_epoch, support, then)
    answer = transactions.ask(
        transactional_id, event, verification.conclude, verification.unavailable
    )
    if isinstance(answer, Pending) and not answer.done:
        verification.begin(answer)
    return answer


class _Verification:
    """One question to the coordinator, from its answer on, or from before it if that takes time."""

    __slots__ = ("_epoch", "_guards", "_partitions", "_producer_id", "_support", "_then")

    def __init__(
        self,
        partitions: Sequence[Partition],
        producer_id: int,
        producer_epoch: int,
        support: Support,
        then: Callable[[Verdict], Any],
    ) -> None:
        self._partitions = partitions
        self._producer_id = producer_id
        self._epoch = producer_epoch
        self._support = support
        self._then = then
        self._guards: list[tuple[Partition, VerificationGuard]] = []

    def begin(self, answer: Pending) -> None:
        """The answer is still to come: a guard made now stands from before it."""
        self._guards = [(p, p.begin_verification(self._producer_id)) for p in self._partitions]
        forget = answer.on_drop

        def dropped() -> None:
            self._end()
            if forget is not None:
                forget()

        answer.on_drop = dropped

    def conclude(self, result: Any) -> Any:
        """Go on with what the coordinator said, unless the transaction ended since then."""
        refused = {
            topic_partition: _error_of(error, self._support)
            for topic_partition, error in result.partitions
            if error is not ErrorCode.none
        }
        for partition, stands in self._end():
            if not stands and not partition.log.transaction_is_open(self._producer_id, self._epoch):
                # The transaction ended between the answer and now; the batch belongs to nothing
                # any more.
                refused.setdefault(partition.topic_partition, ErrorCode.invalid_txn_state)
        return self._then(refused)

    def unavailable(self, error: ErrorCode) -> Any:
        """The id is coordinated elsewhere."""
        refusal = _error_of(error, self._support)
        return self._then({p.topic_partition: refusal for p in self._partitions})

    def _end(self) -> list[tuple[Partition, bool]]:
        """End the guards; says of each partition whether its own still stood."""
        guards, self._guards = self._guards, []
        return [(p, p.end_verification(self._producer_id, guard)) for p, guard in guards]


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

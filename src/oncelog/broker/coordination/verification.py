"""Verifies that a partition is in the transaction before its first batch there (KIP-890).

A batch that opens a transaction in a partition that gets no marker would block the last stable
offset forever. So the first transactional append of a producer in a partition asks the coordinator:
whether the partition was added (TV1: verify only), or to add it (TV2: Produce v12+, TxnOffsetCommit
v5+). For later appends the transaction is open in the log.

`TransactionCoordinators` is the way to the coordinator. Where it is `LocalCoordinators`, those of
this broker, the reply usually comes within the call, and the append follows in the same turn of the
event loop, with no event in between. Otherwise the partition's log stores a
`Verification`, which the marker of that transaction voids (no ABA: INV-3). A refused batch is
recorded there too, with its lowest sequence (INV-2); see `oncelog.storage.verifications`.

With several brokers a coordinator may have been replaced and not know it (it was paused). What it
says of a transaction that has ended since is refused: the partition has a marker with a larger
coordinator epoch. Its refusals are confirmed by the followers of its log before they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oncelog.broker.coordination.meters import VerificationMeter
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.pending import Pending
from oncelog.runtime.clock import SteadyClock
from oncelog.storage import Verification

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import TransactionRuntime
    from oncelog.transaction.events import AddPartitions, AddPartitionsReply

__all__ = [
    "LocalCoordinators",
    "TransactionCoordinators",
    "TransactionSupportedOperation",
    "Verdict",
    "ask_here",
    "verify_and",
]

ResponseT = TypeVar("ResponseT")

Verdict = Mapping[TopicPartition, ErrorCode]
"""The error of each refused partition; verified partitions are absent."""


class TransactionCoordinators(Protocol):
    """The way to the coordinators of transactions, on this broker or on others."""

    clock: SteadyClock

    @property
    def has_rivals(self) -> bool:
        """Whether another broker may have become the coordinator of an id of this one."""
        ...

    def add_partitions(
        self,
        event: AddPartitions,
        conclude: Callable[[AddPartitionsReply], ResponseT | Pending[ResponseT]],
        unavailable: Callable[[ErrorCode], ResponseT | Pending[ResponseT]],
    ) -> ResponseT | Pending[ResponseT]:
        """Have the coordinator of the event's id decide it.

        Returns what `conclude` makes of the reply, or a promise of it; what `unavailable` makes of
        the error where no coordinator decides. Dropping the promise drops an undecided request.
        """
        ...


class LocalCoordinators:
    """The coordinators that this broker leads, and the way to the others once there are others."""

    has_rivals = False

    def __init__(self, transactions: TransactionRuntime) -> None:
        self.clock = transactions.clock
        self._transactions = transactions
        self._cluster: TransactionCoordinators | None = None

    def use(self, cluster: TransactionCoordinators) -> None:
        """Ask the coordinators of all brokers from now on."""
        self._cluster = cluster
        self.has_rivals = True

    def add_partitions(
        self,
        event: AddPartitions,
        conclude: Callable[[AddPartitionsReply], ResponseT | Pending[ResponseT]],
        unavailable: Callable[[ErrorCode], ResponseT | Pending[ResponseT]],
    ) -> ResponseT | Pending[ResponseT]:
        """See `TransactionCoordinators`."""
        if self._cluster is not None:
            return self._cluster.add_partitions(event, conclude, unavailable)
        from oncelog.transaction.events import AddPartitionsReply

        if event.verify_only:
            found = self._transactions.look(event.transactional_id, event)
            if isinstance(found, AddPartitionsReply):
                return conclude(found)
        return self._transactions.ask(event.transactional_id, event, conclude, unavailable)


def ask_here(
    transactions: TransactionRuntime,
    event: AddPartitions,
    conclude: Callable[[AddPartitionsReply], ResponseT | Pending[ResponseT]],
    unavailable: Callable[[ErrorCode], ResponseT | Pending[ResponseT]],
) -> ResponseT | Pending[ResponseT]:
    """Have this broker's coordinator decide, as one of several brokers.

    That the transaction has the partitions already is said at once: the coordinator epoch tells
    whether it still counts. Whatever else is said without an append waits until it is confirmed.
    """
    from oncelog.transaction.events import AddPartitionsReply

    question = event if event.verify_only else replace(event, verify_only=True)
    found = transactions.look(event.transactional_id, question)
    if isinstance(found, AddPartitionsReply) and not any(error for _, error in found.partitions):
        return conclude(found)
    return transactions.ask(event.transactional_id, event, conclude, unavailable)


class TransactionSupportedOperation(Enum):
    """The transaction features of the client's version of Produce or TxnOffsetCommit."""

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
"""The producer does not own the transactional id, so nothing is recorded."""


def verify_and(
    coordinators: TransactionCoordinators,
    meter: VerificationMeter,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    batches: Sequence[tuple[Partition, int]],
    support: TransactionSupportedOperation,
    then: Callable[[Verdict], ResponseT | Pending[ResponseT]],
    are_missing: bool = False,
) -> ResponseT | Pending[ResponseT]:
    """Verify partitions in which the producer has no open transaction, then call `then`.

    `batches` maps the partitions to the first sequence of the batch to append. `are_missing`: the
    caller knows that the producer has no open transaction in any of them. Returns the result of
    `then` when no verification is needed, otherwise a promise of it.
    """
    missing = batches
    if not are_missing:
        missing = [
            (partition, sequence)
            for partition, sequence in batches
            if not partition.log.producers.transaction_is_open(producer_id, producer_epoch)
        ]
    if not missing:
        return then({})
    # Plain producers never need them.
    from oncelog.transaction.events import AddPartitions

    event = AddPartitions(
        transactional_id,
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        tuple(partition.topic_partition for partition, _ in missing),
        verify_only=support is not TransactionSupportedOperation.ADD,
        transaction_version=2 if support is TransactionSupportedOperation.ADD else 1,
    )
    clock = coordinators.clock
    question = _Question(missing, producer_id, producer_epoch, support, clock, meter, then)
    question.has_rivals = coordinators.has_rivals
    answer = coordinators.add_partitions(event, question.conclude, question.unavailable)
    if isinstance(answer, Pending) and not answer.done:
        question.wait_for(answer)
    return answer


class _Question(Generic[ResponseT]):
    """One request to the coordinator, and the append, or refusal, that follows its reply."""

    __slots__ = (
        "_batches",
        "_begun",
        "_bumps_epoch",
        "_clock",
        "_epoch",
        "_meter",
        "_now_ms",
        "_producer_id",
        "_support",
        "_then",
        "has_rivals",
    )

    def __init__(
        self,
        batches: Sequence[tuple[Partition, int]],
        producer_id: int,
        producer_epoch: int,
        support: TransactionSupportedOperation,
        clock: SteadyClock,
        meter: VerificationMeter,
        then: Callable[[Verdict], ResponseT | Pending[ResponseT]],
    ) -> None:
        self._batches = batches
        self._producer_id = producer_id
        self._epoch = producer_epoch
        self._support = support
        self._bumps_epoch = support is TransactionSupportedOperation.ADD
        self._clock = clock
        self._meter = meter
        self._now_ms = clock.now_ms()
        self._then = then
        self._begun: list[tuple[Partition, Verification, int]] | None = None
        self.has_rivals = False

    def wait_for(self, answer: Pending[ResponseT]) -> None:
        """Start a verification: the reply is pending, so it predates it."""
        self._begun = [self._begin(*batch) for batch in self._batches]
        forget = answer.on_drop

        def dropped() -> None:
            self._end({})
            if forget is not None:
                forget()

        answer.on_drop = dropped

    def conclude(self, result: AddPartitionsReply) -> ResponseT | Pending[ResponseT]:
        """Continue with the coordinator's reply, unless the transaction has ended since."""
        self._meter.took(self._clock.now_ms() - self._now_ms)
        refused = {
            topic_partition: _error_of(error, self._support)
            for topic_partition, error in result.partitions
            if error is not ErrorCode.none
        }
        if self.has_rivals:
            self._refuse_replaced(result.coordinator_epoch, refused)
        return self._bounce(refused) if self._begun is None else self._then(self._end(refused))

    def unavailable(self, error: ErrorCode) -> ResponseT | Pending[ResponseT]:
        """Refuse: no coordinator of the id has decided."""
        refusal = _error_of(error, self._support)
        refused = {partition.topic_partition: refusal for partition, _ in self._batches}
        return self._bounce(refused) if self._begun is None else self._then(self._end(refused))

    def _refuse_replaced(
        self, coordinator_epoch: int, refused: dict[TopicPartition, ErrorCode]
    ) -> None:
        """Refuse the partitions in which a later coordinator has ended a transaction (INV-3)."""
        for partition, _ in self._batches:
            if partition.log.producers.has_marker_after(self._producer_id, coordinator_epoch):
                refused.setdefault(partition.topic_partition, ErrorCode.not_enough_replicas)

    def _bounce(self, refused: Verdict) -> ResponseT | Pending[ResponseT]:
        """Record the lowest sequence of the refused partitions; the reply came at once."""
        if refused:
            for partition, sequence in self._batches:
                error = refused.get(partition.topic_partition, ErrorCode.none)
                if error is not ErrorCode.none:
                    partition.meter.failed_verifications += 1
                if error is not ErrorCode.none and error not in _NOT_THE_PRODUCER:
                    partition.log.producers.verifications.end(self._begin(partition, sequence)[1])
        return self._then(refused)

    def _begin(self, partition: Partition, sequence: int) -> tuple[Partition, Verification, int]:
        verification = partition.log.producers.verifications.begin(
            self._producer_id,
            self._epoch,
            sequence,
            bumps_epoch=self._bumps_epoch,
            now_ms=self._now_ms,
        )
        return partition, verification, partition.state.leader_epoch

    def _end(self, refused: dict[TopicPartition, ErrorCode]) -> Verdict:
        """End the verifications; return `refused` and those that were voided meanwhile."""
        allowed = [
            (
                partition,
                leader_epoch,
                partition.log.producers.verifications.end(
                    verification,
                    forget=refused.get(partition.topic_partition) in _NOT_THE_PRODUCER,
                ),
            )
            for partition, verification, leader_epoch in self._begun or ()
        ]
        for partition, leader_epoch, is_allowed in allowed:
            if not is_allowed:
                state = partition.state
                leads_on = state.is_leader and state.leader_epoch == leader_epoch
                if leads_on or not self.has_rivals:
                    # The transaction ended between the reply and now; the batch belongs to none.
                    error = partition.log.producers.error_of_late(self._producer_id, self._epoch)
                else:
                    # Another broker leads, or has led since: what it appended voids nothing here.
                    error = state.leader_error() or ErrorCode.not_leader_or_follower
                refused.setdefault(partition.topic_partition, error)
            if partition.topic_partition in refused:
                partition.meter.failed_verifications += 1
        return refused


def _error_of(error: ErrorCode, support: TransactionSupportedOperation) -> ErrorCode:
    """Map the error for a producer (AddPartitionsToTxnManager, handleProduceAppend)."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if (
        error is ErrorCode.transaction_abortable
        and support is TransactionSupportedOperation.VERIFY_OLD
    ):
        return ErrorCode.invalid_txn_state
    if error in _UNAVAILABLE or (
        error is ErrorCode.concurrent_transactions
        and support is not TransactionSupportedOperation.ADD
    ):
        # Retriable for every client, and no reason to refresh metadata.
        return ErrorCode.not_enough_replicas
    return error

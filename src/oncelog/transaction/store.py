"""Holds the state of one transaction coordinator shard: the durable map and volatile state.

Durable: `transactions`, changed by `replay` alone (D2), so that a replay of the log ends in the
same map (INV-4, INV-5).

Volatile (D2; a fail-over that loses it costs a retry, never safety):

- `VolatileState.last_producer_epoch`: the epoch before the last bump, for KIP-360's retries. Kafka
  does not log it either.
- `VolatileState.ordinal`: counts the transactions of an id, so that a parked request knows the one
  it found (D7).
- `VolatileState.markers_left`, `refused`: which partitions still owe a marker, and which of them
  refuse it. After a fail-over all markers are sent again.
- `VolatileState.inits`, `cause`: the waiting InitProducerIds, the reason of the last fencing.
- `VolatileState.markers_told_ms`, `unknown`, `is_warned`: what was logged already, `unknown` of
  partitions that the metadata does not show. `lives`: recent steps.
- `timeouts`: when open transactions are overdue. `to_complete`: when COMPLETE records are due.
  `expired`: the ids that expired last, for DescribeTransactions. `expiries_untold`: those that are
  not logged yet.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import (
    CoordinatorRecord,
    RecordContext,
    Token,
    UnknownKind,
    clock_shift_ms,
)
from oncelog.coordinator.timers import Timers
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, ProducerEpoch, TopicPartition
from oncelog.core.limits import (
    EXPIRED_IDS_REMEMBERED_COUNT_MAX,
    LIFE_PARTITIONS_PER_STEP_COUNT_MAX,
    PARTITIONS_NAMED_COUNT_MAX,
)
from oncelog.core.values import value
from oncelog.transaction import records
from oncelog.transaction.events import SendMarkers
from oncelog.transaction.life import OWN_ABORT, Cause, Lives, wide_move
from oncelog.transaction.states import (
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    TransactionMetadata,
    TransactionState,
)


@value
class TransactionConfig:
    """The coordinator's configs; the comments name Kafka's keys, and the defaults are Kafka's."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`"""
    expire_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""


@dataclass(slots=True)
class VolatileState:
    """The volatile state of one id; see the module."""

    ordinal: int = 0
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    markers_left: set[TopicPartition] = field(default_factory=set)
    refused: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    unknown: set[TopicPartition] = field(default_factory=set)
    markers_told_ms: int = 0
    is_warned: bool = False
    inits: dict[Token, int] = field(default_factory=dict)
    cause: str | None = None


@value
class Proposal:
    """A move that is decided and not yet committed, and its last producer epoch.

    `cause` is the reason of an abort or a fencing.
    """

    after: TransactionMetadata
    last_producer_epoch: ProducerEpoch
    cause: str = ""


class Expiry(NamedTuple):
    """When an id expired, and for how long it had not been used."""

    at_ms: int
    idle_ms: int


@dataclass(slots=True)
class ExpiriesUntold:
    """The ids that expired since the last line of the log about them: the first, and how many."""

    count: int = 0
    first_ids: list[str] = field(default_factory=list)


class TransactionStore:
    """The state that the shard's modules share.

    They read it to decide; `replay` alone changes `transactions`.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        config: TransactionConfig,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.config = config
        self.transactions: dict[str, TransactionMetadata] = {}
        self.timeouts: Timers[str] = Timers()
        """The open transactions that time out, with the first moment at which they are overdue."""
        self.to_complete: Timers[str] = Timers()
        self.expired: dict[str, Expiry] = {}
        self.expiries_untold = ExpiriesUntold()
        self.volatile: defaultdict[str, VolatileState] = defaultdict(VolatileState)
        """The volatile state of each id that is written or about to be."""
        self.lives = Lives()
        self._id_of_init: dict[Token, str] = {}
        self._next_ticket = 0

    # Deciding.

    def propose(
        self, metadata: CoordinatorMetadata, *moves: Proposal
    ) -> tuple[CoordinatorRecord, ...]:
        """Encode moves of one id as records, which have their volatile part with them."""
        proposed: tuple[CoordinatorRecord, ...] = ()
        for move in moves:
            proposed += (records.encode(move.after, metadata.transaction_version, move),)
        return proposed

    def markers(
        self, metadata: TransactionMetadata, partitions: Iterable[TopicPartition], delay_ms: int = 0
    ) -> SendMarkers:
        """Describe the end markers that `partitions` owe, with this coordinator's epoch."""
        return SendMarkers(
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            commit=metadata.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(sorted(partitions)),
            transaction_version=metadata.client_transaction_version,
            delay_ms=delay_ms,
            ordinal=self.volatile[metadata.transactional_id].ordinal,
        )

    # Waiting InitProducerIds: the newest gets the id.

    def enter_init(self, transactional_id: str, token: Token | None) -> int:
        """Give a waiting InitProducerId its ticket: later ones get higher ones.

        Without a token it gets a ticket and supersedes no other.
        """
        self._next_ticket += 1
        if token is not None:
            self.volatile[transactional_id].inits[token] = self._next_ticket
            self._id_of_init[token] = transactional_id
        return self._next_ticket

    def leave_init(self, token: Token | None) -> None:
        """Remove an InitProducerId that was answered, or whose connection closed."""
        if token is None:
            return
        transactional_id = self._id_of_init.pop(token, None)
        if transactional_id is not None and transactional_id in self.volatile:
            self.volatile[transactional_id].inits.pop(token, None)

    def is_newest_init(self, transactional_id: str, ticket: int) -> bool:
        """Whether no later InitProducerId waits for the id."""
        return all(other <= ticket for other in self.volatile[transactional_id].inits.values())

    # Replaying.

    def replay(self, record: CoordinatorRecord, context: RecordContext) -> None:
        """Apply one committed record: the only writer of `transactions` (D2)."""
        proposal = record.decoded
        if type(proposal) is Proposal:
            self._take(proposal.after, proposal)
            return
        transactional_id, metadata = records.decode(record)
        if metadata is not None:
            self._take(_as_written(metadata, context.timestamp_ms), None)
        elif transactional_id is not None:
            self._forget(transactional_id, context.timestamp_ms)
        else:
            raise UnknownKind(record.key)

    def _forget(self, transactional_id: str, now_ms: int) -> None:
        metadata = self.transactions.pop(transactional_id, None)
        if metadata is not None:
            idle_ms = now_ms - metadata.last_update_timestamp_ms
            self.expired[transactional_id] = Expiry(now_ms, idle_ms)
            untold = self.expiries_untold
            untold.count += 1
            if untold.count <= PARTITIONS_NAMED_COUNT_MAX:
                untold.first_ids.append(transactional_id)
            if len(self.expired) > EXPIRED_IDS_REMEMBERED_COUNT_MAX:
                del self.expired[next(iter(self.expired))]
        self.volatile.pop(transactional_id, None)
        self.lives.by_id.pop(transactional_id, None)
        self.timeouts.cancel(transactional_id)

    def _take(self, after: TransactionMetadata, proposal: Proposal | None) -> None:
        """Apply a committed move, and update the volatile state.

        `proposal` is None for a record of another leadership.
        """
        id_ = after.transactional_id
        before = self.transactions.get(id_)
        self.transactions[id_] = after
        volatile = self.volatile[id_]
        life = self.lives.by_id.get(id_) or self.lives.begin(id_)
        if proposal is not None:
            volatile.last_producer_epoch = proposal.last_producer_epoch
            if proposal.cause:
                life.append(Cause(proposal.cause))
                if proposal.cause != OWN_ABORT:
                    volatile.cause = proposal.cause
        elif before is None or _changes_producer(before, after):
            # The record does not contain it. Forgetting is safe (an old producer is fenced); a
            # wrong epoch would not be (INV-5).
            volatile.last_producer_epoch = NO_PRODUCER_EPOCH
        if after.state is TransactionState.ONGOING:
            if before is None or before.state is not TransactionState.ONGOING:
                volatile.ordinal += 1
            if after.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS:
                self.timeouts.set(id_, after.start_timestamp_ms + after.timeout_ms + 1)
        elif before is not None and before.state is TransactionState.ONGOING:
            self.timeouts.cancel(id_)
        is_wide = len(after.partitions) > LIFE_PARTITIONS_PER_STEP_COUNT_MAX
        life.append(wide_move(after, before) if is_wide else after)
        if self.to_complete.deadlines:
            self.to_complete.cancel(id_)
        self.expired.pop(id_, None)
        volatile.is_warned = False
        volatile.markers_told_ms = 0
        if volatile.refused:
            volatile.refused = {}
        if volatile.unknown:
            volatile.unknown = set()
        volatile.markers_left = set(after.partitions) if after.state.is_prepared else set()


def _changes_producer(before: TransactionMetadata, after: TransactionMetadata) -> bool:
    return (before.producer_id, before.producer_epoch) != (after.producer_id, after.producer_epoch)


def _as_written(metadata: TransactionMetadata, written_ms: int) -> TransactionMetadata:
    """Shift the times of a record to the wall-clock time at which it was written.

    Its times come from a clock that does not jump; the record's own timestamp is wall time. They
    differ if the wall clock was set meanwhile. The age of the transaction does not change.
    """
    shift_ms = clock_shift_ms(metadata.last_update_timestamp_ms, written_ms)
    if not shift_ms:
        return metadata
    start_ms = metadata.start_timestamp_ms
    return replace(
        metadata,
        last_update_timestamp_ms=written_ms,
        start_timestamp_ms=start_ms + shift_ms if start_ms > 0 else start_ms,
    )

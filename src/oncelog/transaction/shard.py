"""The transaction coordinator of one partition of `__transaction_state`.

`oncelog.coordinator.EventProcessor` drives it. It routes events to the modules that decide them,
and maps failures. It knows no sockets, tasks or clocks.

Keeps INV-4 (one committed PREPARE decides an outcome, which is always completed), INV-5 (only the
producer that owns the id at its current epoch changes it), INV-6 by treating a group's offsets
partition like any other, INV-11 by taking producer ids only from the block it is given.
"""

from collections.abc import Sequence
from typing import assert_never

from oncelog.coordinator.shard import (
    NOTHING,
    CoordinatorShard,
    Decision,
    EndTransactionMarker,
    EventContext,
    RecordContext,
    Step,
    Token,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode
from oncelog.transaction import (
    add_partitions,
    completion,
    end_txn,
    init_producer_id,
    queries,
    timers,
)
from oncelog.transaction.events import (
    AbortTimedOut,
    AddPartitions,
    CompletePrepared,
    DescribeTransaction,
    DescribeTransactionReply,
    EndTxn,
    EndTxnReply,
    ExpireId,
    FindDeletedTopics,
    InitProducerId,
    InitProducerIdReply,
    ListTransactions,
    ListTransactionsReply,
    MarkersWritten,
    OutsideMarkers,
    TellOfExpiry,
    TransactionDecision,
    TransactionEffect,
    TransactionEvent,
    TransactionReply,
    WarnOfExpiry,
)
from oncelog.transaction.states import TransactionMetadata
from oncelog.transaction.store import TransactionConfig, TransactionStore

_MAPPED = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""The client's error for each error of an append, as in Kafka's TransactionStateManager."""


class TransactionCoordinatorShard(
    CoordinatorShard[TransactionEvent, TransactionReply, TransactionEffect]
):
    """Decides every event of the transaction coordinator for one partition of its log.

    `coordinator_epoch` is the leader epoch of that partition: partition leaders refuse markers of
    older ones. `share` says when its sweeps begin (`oncelog.transaction.timers.Sweeps`). Events and
    replies are in `oncelog.transaction.events`.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        config: TransactionConfig | None = None,
        share: float = 1.0,
    ) -> None:
        self._store = TransactionStore(coordinator_epoch, config or TransactionConfig())
        self._sweeps = timers.Sweeps(self._store, share)

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        """The committed state of every id: the result of replaying the log.

        Not to be changed.
        """
        return self._store.transactions

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that an id has or will have; -1 without one."""
        known = self._store.transactions.values()
        return max((max(one.producer_id, one.next_producer_id) for one in known), default=-1)

    def is_in_use(self, since_ms: int) -> bool:
        """Whether a transaction is open, or an id has moved since a time."""
        return any(
            not one.state.is_at_rest or one.last_update_timestamp_ms >= since_ms
            for one in self._store.transactions.values()
        )

    @property
    def owed_markers_count(self) -> int:
        """Count the markers that are not written yet."""
        return sum(len(volatile.markers_left) for volatile in self._store.volatile.values())

    @property
    def unwritten_ends_count(self) -> int:
        """Count the transactions that have all their markers, but no COMPLETE yet."""
        return len(self._store.to_complete)

    def id_of(self, event: TransactionEvent) -> str | None:
        """Return the id an event waits for. Reads, verify-only and hopeless requests never wait."""
        match event:
            case AddPartitions(verify_only=True) | DescribeTransaction():
                return None
            case ListTransactions() | FindDeletedTopics():
                return None
            case WarnOfExpiry() | TellOfExpiry() | OutsideMarkers():
                return None
            case InitProducerId() if init_producer_id.is_hopeless(self._store, event):
                return None
        return event.transactional_id

    def overtakes(self, event: TransactionEvent) -> bool:
        """Decide marker reports, and then COMPLETE, before requests that wait for the id."""
        return isinstance(event, MarkersWritten | CompletePrepared)

    def park(self, event: TransactionEvent, context: EventContext) -> TransactionEvent:
        """Record which transaction a queued request found (D7)."""
        match event:
            case InitProducerId():
                return init_producer_id.park(self._store, event, context)
            case AddPartitions():
                return add_partitions.park(self._store, event)
            case EndTxn():
                return end_txn.park(self._store, event)
        return event

    def decide(self, event: TransactionEvent, context: EventContext) -> TransactionDecision:
        """Route an event to the module that decides it."""
        store = self._store
        match event:
            case InitProducerId():
                return init_producer_id.decide(store, event, context)
            case AddPartitions():
                return add_partitions.decide(store, event, context)
            case EndTxn():
                return end_txn.decide(store, event, context)
            case MarkersWritten():
                return completion.decide(store, event, context)
            case AbortTimedOut():
                return end_txn.abort_timed_out(store, event, context)
            case CompletePrepared():
                return completion.complete_prepared(store, event, context)
            case ExpireId():
                return timers.expire(store, event, context)
            case OutsideMarkers():
                completion.note_outside(store, event, context.now_ms)
                return NOTHING
            case TellOfExpiry():
                return timers.tell_of_expiry(store)
            case WarnOfExpiry():
                return timers.warn_of_expiry(store, event)
            case DescribeTransaction():
                return queries.describe(store, event, context)
            case ListTransactions():
                return queries.list_transactions(store, event, context)
            case FindDeletedTopics():
                return queries.find_deleted(store, event, context)
        assert_never(event)

    def replay(self, step: Step, context: RecordContext) -> None:
        """Apply one committed record. A marker has nothing to end here."""
        if not isinstance(step, EndTransactionMarker):
            self._store.replay(step, context)

    def failed(
        self, event: TransactionEvent, error: ErrorCode, context: EventContext
    ) -> TransactionDecision:
        """Reply to a request that failed; if COMPLETE failed, plan it again."""
        mapped = _MAPPED.get(error, error)
        match event:
            case InitProducerId():
                self._store.leave_init(context.token)
                return reply_at_once(context, InitProducerIdReply(mapped))
            case AddPartitions():
                return add_partitions.refuse(self._store, event, mapped, context)
            case EndTxn():
                return reply_at_once(context, EndTxnReply(mapped))
            case MarkersWritten() | CompletePrepared():
                completion.complete_failed(self._store, event.transactional_id, context.now_ms)
            case DescribeTransaction():
                return reply_at_once(
                    context, DescribeTransactionReply(mapped, event.transactional_id)
                )
            case ListTransactions():
                return reply_at_once(context, ListTransactionsReply(mapped))
        return NOTHING

    def dropped(self, event: TransactionEvent, token: Token) -> None:
        """Withdraw a request whose connection closed from the competition for its id."""
        self._store.leave_init(token)

    def tick(self, now_ms: int) -> Sequence[TransactionEvent]:
        """Return the sweeps' events."""
        return self._sweeps.due(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next sweep is due; None while there is nothing to sweep."""
        return self._sweeps.next_deadline_ms()

    def on_loaded(self, context: EventContext) -> TransactionDecision:
        """Start the sweeps, and send the markers of every prepared transaction again (INV-4)."""
        self._sweeps.start(context.now_ms)
        return Decision(effects=completion.resume_all(self._store, context.now_ms))

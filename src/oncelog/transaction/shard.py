"""The transaction coordinator's shard.

One partition of `__transaction_state`, driven by `oncelog.coordinator.EventProcessor`.

It routes events to the files that decide them, and maps failures. It must not know of sockets,
tasks or clocks.

Keeps INV-4 (an outcome is decided by one committed PREPARE and always carried through), INV-5 (only
the producer that holds the id at its current epoch moves it), INV-6 by treating a group's offsets
partition like any other, INV-11 by taking producer ids from the block it is given and from nowhere
else.
"""

from collections.abc import Sequence

from oncelog.coordinator.shard import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    RecordContext,
    Reply,
    Token,
)
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.transaction import (
    add_partitions,
    end_txn,
    init_producer_id,
    markers,
    queries,
    timers,
)
from oncelog.transaction.events import (
    AbortTimedOut,
    AddPartitions,
    CompletePrepared,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    ExpireId,
    InitProducerId,
    InitProducerIdResult,
    ListTransactions,
    ListTransactionsResult,
    MarkersWritten,
    Parked,
    WarnOfExpiry,
)
from oncelog.transaction.states import TransactionMetadata
from oncelog.transaction.store import (
    FinalizedVersion,
    FreshProducerId,
    TransactionConfig,
    TransactionStore,
)

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
"""What a client is told about a failed append, as TransactionStateManager maps it."""


class TransactionCoordinatorShard(CoordinatorShard):
    """Decides every event of the transaction coordinator for one partition of its log.

    `coordinator_epoch` is the leader epoch of that partition: partition leaders refuse markers of
    older ones. Events and results are in `oncelog.transaction.events`.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        fresh_producer_id: FreshProducerId,
        config: TransactionConfig | None = None,
        finalized_version: FinalizedVersion | None = None,
    ) -> None:
        self._store = TransactionStore(
            coordinator_epoch, config or TransactionConfig(), fresh_producer_id, finalized_version
        )
        self._sweeps = timers.Sweeps(self._store)

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        """The committed state of every id: what a replay of the log would bring back.

        Not to be changed.
        """
        return self._store.transactions

    def id_of(self, event: object) -> str | None:
        """Name the id an event waits for. Reads, verify-only and hopeless requests never wait."""
        match event:
            case Parked():
                return event.event.transactional_id
            case AddPartitions(verify_only=True):
                return None
            case InitProducerId() if init_producer_id.is_hopeless(self._store, event):
                return None
            case (
                InitProducerId()
                | AddPartitions()
                | EndTxn()
                | MarkersWritten()
                | AbortTimedOut()
                | CompletePrepared()
                | ExpireId()
            ):
                return event.transactional_id
        return None

    def overtakes(self, event: object) -> bool:
        """Let results of markers, and COMPLETE after them, ahead of what waits for them."""
        return isinstance(event, MarkersWritten | CompletePrepared)

    def park(self, event: object, token: Token | None) -> object:
        """Remember which transaction a request met that has to queue (D7)."""
        match event:
            case InitProducerId():
                return init_producer_id.park(self._store, event, token)
            case AddPartitions():
                return add_partitions.park(self._store, event)
            case EndTxn():
                return end_txn.park(self._store, event)
        return event

    def decide(self, event: object, token: Token | None, now_ms: int) -> Decision:
        """Route an event to the file that decides it."""
        store = self._store
        parked = event if isinstance(event, Parked) else None
        request = parked.event if parked is not None else event
        match request:
            case InitProducerId():
                return init_producer_id.decide(store, request, parked, token, now_ms)
            case AddPartitions():
                return add_partitions.decide(store, request, parked, token, now_ms)
            case EndTxn():
                return end_txn.decide(store, request, parked, token, now_ms)
            case MarkersWritten():
                return markers.decide(store, request, now_ms)
            case AbortTimedOut():
                return end_txn.abort_timed_out(store, request, now_ms)
            case CompletePrepared():
                return markers.complete_prepared(store, request, now_ms)
            case ExpireId():
                return timers.expire(store, request, now_ms)
            case WarnOfExpiry():
                return timers.warn_of_expiry(store, request)
            case DescribeTransaction():
                return _reply(token, queries.describe(store, request))
            case ListTransactions():
                return _reply(token, queries.list_transactions(store, request, now_ms))
        raise InvariantViolation(f"the transaction coordinator does not know {event!r}")

    def apply(self, entry: CoordinatorRecord, context: RecordContext) -> None:
        """Take over one committed record."""
        self._store.apply(entry, context)

    def failed(self, event: object, token: Token | None, error: ErrorCode, now_ms: int) -> Decision:
        """Answer a request that could not be carried out; plan COMPLETE again if it was that."""
        mapped = _MAPPED.get(error, error)
        request = event.event if isinstance(event, Parked) else event
        match request:
            case InitProducerId():
                self._store.leave_init(token)
                return _reply(token, InitProducerIdResult(mapped))
            case AddPartitions():
                return add_partitions.answer(request, token, mapped)
            case EndTxn():
                return end_txn.answer(token, mapped)
            case MarkersWritten() | CompletePrepared():
                markers.complete_failed(self._store, request.transactional_id, now_ms)
            case DescribeTransaction():
                return _reply(token, DescribeTransactionResult(mapped, request.transactional_id))
            case ListTransactions():
                return _reply(token, ListTransactionsResult(mapped))
        return NOTHING

    def dropped(self, token: Token) -> None:
        """A request whose connection is gone competes for no id any more."""
        self._store.leave_init(token)

    def tick(self, now_ms: int) -> Sequence[object]:
        """Return what the sweeps find."""
        return self._sweeps.due(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Say when the next sweep is due; None while there is nothing to sweep."""
        return self._sweeps.next_deadline_ms()

    def on_loaded(self, now_ms: int) -> Decision:
        """After replay.

        Start the sweeps, and send the markers of every prepared transaction again (INV-4).
        """
        self._sweeps.start(now_ms)
        return Decision(effects=markers.resume_all(self._store, now_ms))


def _reply(token: Token | None, value: object) -> Decision:
    return NOTHING if token is None else Decision(replies=(Reply(token, value),))

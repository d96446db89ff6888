"""After PREPARE.

The end markers, one per partition, and COMPLETE when the last of them is written (INV-4).

The shell sends and reports; this decides. Per partition and error ("Markers"):

- none, or a topic that is deleted, or a leader that knows no transactions: the partition owes
  nothing any more.
- a newer epoch, of the producer or of the coordinator, is known there: this leadership stops
  sending. It is a zombie, and the next leader sends again; parked requests time out meanwhile.
- anything else: send again after a pause. An error that we do not know must not leave a decided
  transaction half ended.

Reports may come twice, late, or for a leadership that is over: they are matched by producer id,
epoch and coordinator epoch.
"""

from oncelog.coordinator.shard import NOTHING, Decision
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import COMPLETE_RETRY_BACKOFF_MS, MARKER_RETRY_BACKOFF_MS
from oncelog.transaction.events import CompletePrepared, MarkersWritten, SendMarkers
from oncelog.transaction.states import TransactionMetadata
from oncelog.transaction.store import TransactionStore
from oncelog.transaction.transitions import complete_decision

DONE = frozenset(
    {
        ErrorCode.none,
        ErrorCode.unsupported_version,
        ErrorCode.unsupported_for_message_format,
    }
)
CANCELS = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    }
)


def decide(store: TransactionStore, event: MarkersWritten, now_ms: int) -> Decision:
    """Take in what partition leaders answered.

    Complete the transaction when nothing is owed any more.
    """
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not _is_about(store, metadata, event):
        return NOTHING
    volatile = store.volatile[event.transactional_id]
    volatile.markers_left.difference_update(event.deleted)
    retries = []
    for partition, error in event.outcomes:
        if error in DONE:
            volatile.markers_left.discard(partition)
        elif error in CANCELS:
            volatile.is_cancelled = True
        elif partition in volatile.markers_left:
            retries.append(partition)
    if volatile.is_cancelled:
        return NOTHING
    if not volatile.markers_left:
        return complete_decision(store, metadata, now_ms)
    if retries:
        return Decision(effects=(store.markers(metadata, retries, MARKER_RETRY_BACKOFF_MS),))
    return NOTHING


def complete_prepared(store: TransactionStore, event: CompletePrepared, now_ms: int) -> Decision:
    """Append COMPLETE (again) for a transaction that owes no marker."""
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not metadata.state.is_prepared:
        return NOTHING
    return complete_decision(store, metadata, now_ms)


def complete_failed(store: TransactionStore, transactional_id: str, now_ms: int) -> None:
    """Plan the next attempt after COMPLETE could not be appended.

    The outcome is decided and must be reached.
    """
    metadata = store.transactions.get(transactional_id)
    if metadata is None or not metadata.state.is_prepared:
        return
    volatile = store.volatile[transactional_id]
    if not volatile.markers_left and not volatile.is_cancelled:
        store.to_complete[transactional_id] = now_ms + COMPLETE_RETRY_BACKOFF_MS


def resume_all(store: TransactionStore, now_ms: int) -> tuple[SendMarkers, ...]:
    """After replay.

    Send every marker of every prepared transaction again; leaders recognise a repetition (INV-4).
    """
    effects = []
    for metadata in store.transactions.values():
        if not metadata.state.is_prepared:
            continue
        if metadata.partitions:
            effects.append(store.markers(metadata, metadata.partitions))
        else:
            store.to_complete[metadata.transactional_id] = now_ms
    return tuple(effects)


def _is_about(
    store: TransactionStore, metadata: TransactionMetadata, event: MarkersWritten
) -> bool:
    return metadata.state.is_prepared and (
        event.producer_id,
        event.producer_epoch,
        event.coordinator_epoch,
        event.ordinal,
    ) == (
        metadata.producer_id,
        metadata.producer_epoch,
        store.coordinator_epoch,
        store.volatile[metadata.transactional_id].ordinal,
    )

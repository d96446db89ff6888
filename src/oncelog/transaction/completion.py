"""Decides the end of a transaction after PREPARE: its markers, then COMPLETE (INV-4).

Each partition owes one marker; COMPLETE follows when the last is written. The shell sends markers
and reports replies; this module decides. Per partition and error:

- none, or a deleted topic, or a leader without transaction support: the partition owes no marker
  any more.
- a newer epoch of the producer or the coordinator, and the producer has nothing open there: the
  partition owes no marker either. Kafka stops sending for good, takes the coordinator for a zombie,
  and leaves the id in Prepare* forever.
- the same with something open: we may be a zombie, or an administrator's marker had too high an
  epoch. The id is stuck and reports the command that frees it; the marker is sent again after a
  longer pause, and is no longer owed once an administrator has ended the transaction there.
- any other error: send again after a pause. An unknown error must not leave a decided transaction
  half ended; nor does a partition that the metadata does not show, which is said once.

Reports may arrive twice, late, or for a former leadership: they are matched by producer id, epoch
and coordinator epoch.
"""

from oncelog.coordinator.shard import NOTHING, Decision, EventContext
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import (
    COMPLETE_RETRY_BACKOFF_MS,
    LIFE_PARTITIONS_PER_STEP_COUNT_MAX,
    MARKER_REFUSED_RETRY_BACKOFF_MS,
    MARKER_RETRY_BACKOFF_MS,
    MARKER_RETRY_TOLD_AFTER_MS,
)
from oncelog.transaction import notices
from oncelog.transaction.events import (
    MARKER_REFUSALS,
    CompletePrepared,
    MarkersWritten,
    Notice,
    OutsideMarkers,
    TransactionDecision,
    TransactionEffect,
)
from oncelog.transaction.life import Life, Markers, is_recorded
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


def decide(
    store: TransactionStore, event: MarkersWritten, context: EventContext
) -> TransactionDecision:
    """Apply a report of partition leaders.

    The transaction completes when no marker is owed any more.
    """
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not _is_about(store, metadata, event):
        return NOTHING
    now_ms = context.now_ms
    volatile = store.volatile[event.transactional_id]
    lives = store.lives
    life = lives.by_id.get(event.transactional_id) or lives.begin(event.transactional_id)
    is_wide = len(event.outcomes) > LIFE_PARTITIONS_PER_STEP_COUNT_MAX
    report = (Markers.of if is_wide else Markers)(now_ms, event.outcomes)
    if not life or type(life[-1]) is not Markers or not is_recorded(life, report):
        life.append(report)
    effects: tuple[TransactionEffect, ...] = ()
    if event.deleted or event.closed:
        effects = _nothing_owed(store, metadata, event, life, now_ms)
    retries = []
    for partition, error in event.outcomes:
        if error in DONE:
            volatile.markers_left.discard(partition)
        elif partition in volatile.markers_left:
            retries.append((partition, error))
    if not volatile.markers_left:
        ended = complete_decision(store, metadata, context)
        return ended._replace(effects=effects) if effects else ended
    if retries:
        effects += _try_again(store, metadata, retries, now_ms)
    return Decision(effects=effects)


def note_outside(store: TransactionStore, event: OutsideMarkers, now_ms: int) -> None:
    """Record markers past the coordinator in the history of the ids whose producers they name.

    Only ids whose history is remembered are looked at, which bounds the work of a request.
    """
    for id_, life in store.lives.by_id.items():
        metadata = store.transactions.get(id_)
        told = None if metadata is None else event.by_producer.get(metadata.producer_id)
        if told is not None:
            report = Markers.of(now_ms, *told)
            if not is_recorded(life, report):
                life.append(report)


def _nothing_owed(
    store: TransactionStore,
    metadata: TransactionMetadata,
    event: MarkersWritten,
    life: Life,
    now_ms: int,
) -> tuple[Notice, ...]:
    """Remove partitions that have nothing to end, and record which refused the marker."""
    volatile = store.volatile[event.transactional_id]
    volatile.markers_left.difference_update(event.deleted)
    if event.deleted:
        gone = ErrorCode.unknown_topic_or_partition
        outcomes = tuple((partition, gone) for partition in event.deleted)
        life.append(Markers.of(now_ms, outcomes, "the topic is deleted: nothing to end there"))
    if not event.closed:
        return ()
    life.append(Markers.of(now_ms, event.closed, "nothing is open there: nothing to end"))
    volatile.markers_left.difference_update(partition for partition, _ in event.closed)
    return (notices.refused_in_vain(metadata, event.closed),)


def _try_again(
    store: TransactionStore,
    metadata: TransactionMetadata,
    failed: list[tuple[TopicPartition, ErrorCode]],
    now_ms: int,
) -> tuple[TransactionEffect, ...]:
    """Send failed markers again: soon, or after a long pause where the partition refuses them."""
    volatile = store.volatile[metadata.transactional_id]
    effects: list[TransactionEffect] = []
    soon = [partition for partition, error in failed if error not in MARKER_REFUSALS]
    refused = {partition: error for partition, error in failed if error in MARKER_REFUSALS}
    if soon:
        effects.append(store.markers(metadata, soon, MARKER_RETRY_BACKOFF_MS))
    if refused:
        effects.append(store.markers(metadata, refused, MARKER_REFUSED_RETRY_BACKOFF_MS))
        if not volatile.refused.keys() >= refused.keys():
            effects.append(notices.stuck(metadata, refused))
        volatile.refused.update(refused)
    unknown = {each for each, error in failed if error is ErrorCode.unknown_topic_or_partition}
    if not volatile.unknown >= unknown:
        effects.append(notices.unknown(metadata, unknown - volatile.unknown))
        volatile.unknown |= unknown
    lasts_ms = now_ms - metadata.last_update_timestamp_ms
    if soon and lasts_ms >= max(MARKER_RETRY_TOLD_AFTER_MS, 2 * volatile.markers_told_ms):
        volatile.markers_told_ms = lasts_ms
        effects.append(notices.marker_retry_lasts(metadata, failed, lasts_ms))
    return tuple(effects)


def complete_prepared(
    store: TransactionStore, event: CompletePrepared, context: EventContext
) -> TransactionDecision:
    """Append COMPLETE (again) for a transaction that owes no marker."""
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not metadata.state.is_prepared:
        return NOTHING
    return complete_decision(store, metadata, context)


def complete_failed(store: TransactionStore, transactional_id: str, now_ms: int) -> None:
    """Plan the next attempt after COMPLETE could not be appended.

    The outcome is decided and must be reached.
    """
    metadata = store.transactions.get(transactional_id)
    if metadata is None or not metadata.state.is_prepared:
        return
    volatile = store.volatile[transactional_id]
    if not volatile.markers_left:
        store.to_complete.set(transactional_id, now_ms + COMPLETE_RETRY_BACKOFF_MS)


def resume_all(store: TransactionStore, now_ms: int) -> tuple[TransactionEffect, ...]:
    """Send every marker of every prepared transaction again after a load.

    Leaders recognise a repetition (INV-4).
    """
    effects: list[TransactionEffect] = []
    for metadata in store.transactions.values():
        if not metadata.state.is_prepared:
            continue
        if metadata.partitions:
            effects.append(store.markers(metadata, metadata.partitions))
            effects.append(notices.resumed(metadata))
        else:
            store.to_complete.set(metadata.transactional_id, now_ms)
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

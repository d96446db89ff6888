"""Runs the sweeps: overdue transactions, idle ids, COMPLETE records to write.

A sweep only finds; each finding becomes an event, decided by the state at that time.
"""

from oncelog.coordinator.shard import NOTHING, Decision, EventContext
from oncelog.core.limits import (
    EXPIRY_WARNING_SHARE,
    TRANSACTION_SWEEP_CONTINUE_MS,
    TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX,
)
from oncelog.transaction import notices, records
from oncelog.transaction.events import (
    AbortTimedOut,
    CompletePrepared,
    ExpireId,
    TransactionDecision,
    TransactionEvent,
    WarnOfExpiry,
)
from oncelog.transaction.states import TransactionMetadata
from oncelog.transaction.store import TransactionStore


class Sweeps:
    """The next time of each sweep. `start` is called when the processor begins to serve."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store
        self._next_abort_ms = 0
        self._next_expire_ms = 0

    def start(self, now_ms: int) -> None:
        """Plan the first sweeps, one interval after the start."""
        self._next_abort_ms = now_ms + self._store.config.abort_interval_ms
        self._next_expire_ms = now_ms + self._store.config.expire_interval_ms

    def next_deadline_ms(self) -> int | None:
        """Return when `due` may have something to return; wall-clock milliseconds."""
        store = self._store
        planned = list(store.to_complete.values())
        if store.ongoing:
            planned.append(self._next_abort_ms)
        if store.transactions:
            planned.append(self._next_expire_ms)
        return min(planned, default=None)

    def due(self, now_ms: int) -> list[TransactionEvent]:
        """Return the events of the sweeps that are due, and plan the next sweeps."""
        found: list[TransactionEvent] = self._due_completions(now_ms)
        if now_ms >= self._next_abort_ms:
            overdue = self._overdue(now_ms)
            found += overdue
            self._next_abort_ms = now_ms + _pause(self._store.config.abort_interval_ms, overdue)
        if now_ms >= self._next_expire_ms:
            idle = self._idle(now_ms)
            found += idle
            found += self._near_expiry(now_ms)
            self._next_expire_ms = now_ms + _pause(self._store.config.expire_interval_ms, idle)
        return found

    def _due_completions(self, now_ms: int) -> list[TransactionEvent]:
        due = [id_ for id_, at_ms in self._store.to_complete.items() if at_ms <= now_ms]
        for id_ in due:
            del self._store.to_complete[id_]
        return [CompletePrepared(id_) for id_ in due]

    def _overdue(self, now_ms: int) -> list[TransactionEvent]:
        found: list[TransactionEvent] = []
        for id_ in sorted(self._store.ongoing):
            metadata = self._store.transactions[id_]
            if metadata.is_overdue(now_ms):
                found.append(AbortTimedOut(id_, metadata.producer_id, metadata.producer_epoch))
        return found[:TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX]

    def _near_expiry(self, now_ms: int) -> list[TransactionEvent]:
        """Find the ids that expire soon."""
        left_ms = self._store.config.id_expiration_ms // EXPIRY_WARNING_SHARE
        near = [
            id_
            for id_, metadata in self._store.transactions.items()
            if _is_idle(self._store, metadata, now_ms + left_ms)
            and not _is_idle(self._store, metadata, now_ms)
            and not self._store.volatile[id_].is_warned
        ]
        return [WarnOfExpiry(tuple(near))] if near else []

    def _idle(self, now_ms: int) -> list[TransactionEvent]:
        found: list[TransactionEvent] = []
        for metadata in self._store.transactions.values():
            if _is_idle(self._store, metadata, now_ms):
                found.append(ExpireId(metadata.transactional_id))
                if len(found) == TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX:
                    break
        return found


def expire(store: TransactionStore, event: ExpireId, context: EventContext) -> TransactionDecision:
    """Write the tombstone of an id that is still idle."""
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not _is_idle(store, metadata, context.now_ms):
        return NOTHING
    tombstone = records.tombstone(event.transactional_id)
    return Decision((tombstone,), id=event.transactional_id)


def warn_of_expiry(store: TransactionStore, event: WarnOfExpiry) -> TransactionDecision:
    """Log once which ids expire soon."""
    ids = [id_ for id_ in event.transactional_ids if id_ in store.transactions]
    for id_ in ids:
        store.volatile[id_].is_warned = True
    within_ms = store.config.id_expiration_ms // EXPIRY_WARNING_SHARE
    return Decision(effects=(notices.expires_soon(ids, within_ms),)) if ids else NOTHING


def _is_idle(store: TransactionStore, metadata: TransactionMetadata, now_ms: int) -> bool:
    idle_since_ms = now_ms - store.config.id_expiration_ms
    return metadata.state.is_at_rest and metadata.last_update_timestamp_ms <= idle_since_ms


def _pause(interval_ms: int, found: list[TransactionEvent]) -> int:
    """Return the pause before the next sweep.

    It is short if this sweep reached its limit.
    """
    is_full = len(found) >= TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX
    return min(interval_ms, TRANSACTION_SWEEP_CONTINUE_MS) if is_full else interval_ms

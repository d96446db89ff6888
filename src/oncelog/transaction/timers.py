"""Finds overdue transactions, idle ids, and the COMPLETEs that are due.

What is found becomes an event, decided by the state at that time. A transaction is found when it is
overdue, the earliest first; Kafka looks for them once per interval. Here that is the pause before
one is found again whose abort was not written, and after a load: so long a producer may take to
find its next coordinator.

Idle ids are found by a sweep, which looks at each id once per interval. A tick finds a bounded
number, so that neither many ids nor many findings delay other requests.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from oncelog.coordinator.shard import NOTHING, Decision, EventContext
from oncelog.core.limits import (
    EXPIRY_TOLD_AFTER_MS,
    EXPIRY_WARNING_SHARE,
    TRANSACTION_SWEEP_CONTINUE_MS,
    TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX,
)
from oncelog.core.limits import TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX as COUNT_MAX
from oncelog.transaction import notices, records
from oncelog.transaction.events import (
    AbortTimedOut,
    CompletePrepared,
    ExpireId,
    TellOfExpiry,
    TransactionDecision,
    TransactionEvent,
    WarnOfExpiry,
)
from oncelog.transaction.states import TransactionMetadata
from oncelog.transaction.store import ExpiriesUntold, TransactionStore


class Sweeps:
    """The next time of each sweep. The shard calls `start` after its load.

    `share`, above 0 and at most 1, is the part of an interval after which the first sweep follows.
    Shards of one broker have different ones: if all of them swept at once, other requests would
    wait for all.
    """

    def __init__(self, store: TransactionStore, share: float = 1.0) -> None:
        self._store = store
        config = store.config
        self._resting_until_ms = 0
        self._expiry = _Pass(store.transactions, config.expire_interval_ms, share)
        self._tell_ms = 0

    def start(self, now_ms: int) -> None:
        """Plan the first sweeps. What expired in the loaded log was told by others."""
        self._store.expiries_untold = ExpiriesUntold()
        self._expiry.start(now_ms)
        timeouts, first_ms = self._store.timeouts, now_ms + self._store.config.abort_interval_ms
        for id_, deadline_ms in tuple(timeouts.deadlines.items()):
            timeouts.set(id_, max(deadline_ms, first_ms))
        timeouts.next_deadline_ms()  # So that no look is planned for an earlier time.

    def next_deadline_ms(self) -> int | None:
        """Return when `due` may have something to return, in ms of the shard's clock."""
        store = self._store
        to_complete = store.to_complete
        earliest_ms = to_complete.next_deadline_ms() if to_complete.deadlines else None
        if store.timeouts.deadlines:
            look_ms = max(store.timeouts.next_look_ms(), self._resting_until_ms)
            earliest_ms = look_ms if earliest_ms is None else min(look_ms, earliest_ms)
        for is_planned, next_ms in (
            (store.transactions, self._expiry.next_ms),
            (store.expiries_untold.count, self._tell_ms),
        ):
            if is_planned and (earliest_ms is None or next_ms < earliest_ms):
                earliest_ms = next_ms
        return earliest_ms

    def due(self, now_ms: int) -> list[TransactionEvent]:
        """Return the events that are due, and plan the next sweeps."""
        found: list[TransactionEvent] = [
            *map(CompletePrepared, self._store.to_complete.due(now_ms, COUNT_MAX)),
            *self._overdue(now_ms),
        ]
        if self._store.expiries_untold.count and now_ms >= self._tell_ms:
            found.append(TellOfExpiry())
        found += self._idle(self._expiry.next_ids(now_ms), now_ms)
        return found

    def _overdue(self, now_ms: int) -> Iterator[TransactionEvent]:
        """Find the overdue transactions, and plan their next attempt in case that this one fails.

        Those that fall due in the pause after it are found together, for one append.
        """
        if now_ms < self._resting_until_ms:
            return
        store = self._store
        ids = store.timeouts.due(now_ms, COUNT_MAX)
        if 0 < len(ids) < COUNT_MAX:
            self._resting_until_ms = now_ms + TRANSACTION_SWEEP_CONTINUE_MS
        for id_ in ids:
            store.timeouts.set(id_, now_ms + store.config.abort_interval_ms)
            metadata = store.transactions[id_]
            if metadata.is_overdue(now_ms):
                yield AbortTimedOut(id_, metadata.producer_id, metadata.producer_epoch)

    def _idle(self, ids: Sequence[str], now_ms: int) -> list[TransactionEvent]:
        """Find the ids that expire, and those that do soon."""
        store = self._store
        left_ms = store.config.id_expiration_ms // EXPIRY_WARNING_SHARE
        found: list[TransactionEvent] = []
        near: list[str] = []
        for id_ in ids:
            metadata = store.transactions.get(id_)
            if metadata is None:
                continue
            if _is_idle(store, metadata, now_ms):
                found.append(ExpireId(id_))
            elif _is_idle(store, metadata, now_ms + left_ms) and not store.volatile[id_].is_warned:
                near.append(id_)
        if found:
            # A sweep of many ids is told in one line, after its last slice.
            self._tell_ms = now_ms + EXPIRY_TOLD_AFTER_MS
        return [*found, WarnOfExpiry(tuple(near))] if near else found


class _Pass:
    """Looks at every id once per interval, a bounded number at a time (`next_ids`).

    It begins at the same place in each interval, also after a time without ids, so that passes of
    different shards stay apart.
    """

    __slots__ = ("_first_ms", "_ids", "_interval_ms", "_left", "_share", "next_ms")

    def __init__(self, ids: Iterable[str], interval_ms: int, share: float) -> None:
        self._ids = ids
        self._interval_ms = interval_ms
        self._share = share
        self._left: deque[str] = deque()
        self._first_ms = 0
        self.next_ms = 0

    def start(self, now_ms: int) -> None:
        self._first_ms = self.next_ms = now_ms + ceil(self._interval_ms * self._share)

    def next_ids(self, now_ms: int) -> list[str]:
        """Return the ids to look at now; the rest of them follows soon."""
        if now_ms < self.next_ms:
            return []
        left = self._left or deque(self._ids)
        count = min(len(left), TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX)
        found = [left.popleft() for _ in range(count)]
        self._left = left
        until_next_ms = self._interval_ms - (now_ms - self._first_ms) % self._interval_ms
        if left:
            until_next_ms = min(until_next_ms, TRANSACTION_SWEEP_CONTINUE_MS)
        self.next_ms = now_ms + until_next_ms
        return found


def expire(store: TransactionStore, event: ExpireId, context: EventContext) -> TransactionDecision:
    """Write the tombstone of an id that is still idle."""
    metadata = store.transactions.get(event.transactional_id)
    if metadata is None or not _is_idle(store, metadata, context.now_ms):
        return NOTHING
    tombstone = records.tombstone(event.transactional_id)
    return Decision((tombstone,), id=event.transactional_id)


def tell_of_expiry(store: TransactionStore) -> TransactionDecision:
    """Log the ids that expired since the last such line."""
    untold, store.expiries_untold = store.expiries_untold, ExpiriesUntold()
    if not untold.count:
        return NOTHING
    idle_ms = store.config.id_expiration_ms
    return Decision(effects=(notices.expired(untold.count, untold.first_ids, idle_ms),))


def warn_of_expiry(store: TransactionStore, event: WarnOfExpiry) -> TransactionDecision:
    """Log once which ids expire soon."""
    for id_ in event.transactional_ids:
        store.volatile[id_].is_warned = True
    within_ms = store.config.id_expiration_ms // EXPIRY_WARNING_SHARE
    return Decision(effects=(notices.expires_soon(event.transactional_ids, within_ms),))


def _is_idle(store: TransactionStore, metadata: TransactionMetadata, now_ms: int) -> bool:
    idle_since_ms = now_ms - store.config.id_expiration_ms
    return metadata.state.is_at_rest and metadata.last_update_timestamp_ms <= idle_since_ms

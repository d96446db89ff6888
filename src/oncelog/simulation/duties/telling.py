"""Compares what a coordinator tells of its ids, and when it wakes, with what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import EventContext
from oncelog.simulation.duties.known import IdState
from oncelog.simulation.duties.moves import AT_REST, EPOCHS_USED_UP, ONGOING, PREPARED
from oncelog.simulation.duties.transactions import Complaint, TransactionDuties
from oncelog.transaction.events import (
    AbortTimedOut,
    CompletePrepared,
    DescribeTransaction,
    ExpireId,
    ListTransactions,
    TellOfExpiry,
    TransactionEvent,
    WarnOfExpiry,
)
from oncelog.transaction.shard import TransactionCoordinatorShard

__all__ = ["Periods", "told", "unpunctual", "woken"]

BOUND_MS: Final = 1_000
"""So much later than a sweep something may be done."""
_LABELS: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
)
_NO_TIMEOUT_MS: Final = 2**31 - 1
_UNKNOWN: Final = "NoSuchState"
_NAMED_MAX: Final = 10
_LIVES_MAX: Final = 90
"""Of more ids the oldest steps are forgotten."""


@dataclass(frozen=True, slots=True)
class Periods:
    """The settings of a coordinator, in ms."""

    sweep_ms: int
    expiration_ms: int
    expiry_sweep_ms: int


# --- what is told -------------------------------------------------------------------------


def told(
    duties: TransactionDuties, shard: TransactionCoordinatorShard, periods: Periods, now_ms: int
) -> Iterator[Complaint]:
    """Ask for every id, and for lists of them."""
    context = EventContext(now_ms, "audit", CoordinatorMetadata())
    owed_count = sum(len(known.owed) for known in duties.known.values())
    if shard.owed_markers_count != owed_count:
        yield "a marker", f"{shard.owed_markers_count} are counted as owed, {owed_count} are"
    for id_, known in duties.known.items():
        answer: Any = _ask(shard, DescribeTransaction(id_, include_life=True), context)
        yield from _described(id_, known, answer, has_life=len(duties.known) < _LIVES_MAX)
    for request in _lists(duties, now_ms):
        answer = _ask(shard, request, context)
        wanted = tuple(
            (id_, known.now.raw.producer_id, known.now.raw.state, _expires_ms(known, periods))
            for id_, known in sorted(duties.known.items())
            if _is_listed(request, id_, known, now_ms)
        )
        listed = tuple(
            (each.transactional_id, each.producer_id, each.state.value, each.expires_at_ms)
            for each in answer.transactions
        )
        unknown = tuple(sorted(request.states - set(_LABELS)))
        if listed != wanted or answer.unknown_states != unknown:
            yield "a list", f"{request} at {now_ms} gave {listed}, expected is {wanted}"


def _ask(
    shard: TransactionCoordinatorShard, event: TransactionEvent, context: EventContext
) -> object:
    (reply,) = shard.decide(event, context).replies
    return reply.value


def _described(id_: str, known: IdState, answer: Any, *, has_life: bool) -> Iterator[Complaint]:
    raw = known.now.raw
    places = sorted(known.owed) if raw.state in PREPARED else sorted(raw.partitions)
    wanted = (
        *(id_, raw.state, raw.timeout_ms, known.now.started_ms, known.now.updated_ms),
        *(raw.producer_id, raw.producer_epoch, tuple(map(tuple, places)), known.cause),
    )
    given = (
        *(answer.transactional_id, answer.state.value, answer.timeout_ms),
        *(answer.start_timestamp_ms, answer.last_update_timestamp_ms, answer.producer_id),
        *(answer.producer_epoch, tuple(map(tuple, answer.partitions)), answer.cause),
    )
    if given != wanted:
        yield "a description", f"{given}, expected is {wanted}"
    unnamed = [place for place in known.refused if str(place) not in answer.trouble]
    if bool(answer.trouble) != bool(known.refused) or (
        unnamed and len(known.refused) <= _NAMED_MAX
    ):
        yield "a description", f"{id_}: {answer.trouble!r}, refused by {known.refused}"
    steps = [
        (
            *(step.at_ms, step.kind.value, step.producer_id, step.producer_epoch),
            *(step.partitions, step.error, step.cause, step.more_count),
        )
        for step in answer.life
    ]
    if has_life and (text := known.wrong_steps(steps)):
        yield "a step", f"{id_}: {text}"


def _lists(duties: TransactionDuties, now_ms: int) -> Iterator[ListTransactions]:
    """All of them, and by one filter after the other."""
    yield ListTransactions()
    if not duties.known:
        return
    turn = duties.changes_count
    id_ = sorted(duties.known)[turn % len(duties.known)]
    raw = duties.known[id_].now.raw
    match turn % 4:
        case 0:
            states = frozenset({_LABELS[raw.state], _LABELS[turn // 4 % 6]})
            yield ListTransactions(states=states | ({_UNKNOWN} if turn % 8 else frozenset()))
        case 1:
            yield ListTransactions(producer_ids=frozenset({raw.producer_id}))
        case 2:
            age_ms = now_ms - duties.known[id_].now.started_ms
            yield ListTransactions(duration_ms=max(0, age_ms - turn // 4 % 2))
        case _:
            yield ListTransactions(pattern=f"{id_[: 1 + turn // 4 % len(id_)]}.*")


def _is_listed(request: ListTransactions, id_: str, known: IdState, now_ms: int) -> bool:
    raw = known.now.raw
    open_ms = now_ms - known.now.started_ms
    return (
        (not request.states or _LABELS[raw.state] in request.states)
        and (not request.producer_ids or raw.producer_id in request.producer_ids)
        and (request.duration_ms < 0 or open_ms > request.duration_ms)
        and id_.startswith(request.pattern.removesuffix(".*"))
    )


def _expires_ms(known: IdState, periods: Periods) -> int:
    is_at_rest = known.now.raw.state in AT_REST
    return known.now.updated_ms + periods.expiration_ms if is_at_rest else -1


# --- when something is done ---------------------------------------------------------------


def woken(
    duties: TransactionDuties,
    shard: TransactionCoordinatorShard,
    events: tuple[TransactionEvent, ...],
    periods: Periods,
    now_ms: int,
) -> Iterator[Complaint]:
    """What a tick finds has a reason, and the next tick is later."""
    deadline_ms = shard.next_deadline_ms()
    if not events and deadline_ms is not None and deadline_ms <= now_ms:
        yield "a timer", f"a tick at {now_ms} found nothing, and the next is at {deadline_ms}"
    for event in events:
        if isinstance(event, TellOfExpiry):
            if not duties.untold_count:
                yield "a timer", "nothing has expired, and it is told"
            continue
        near = event.transactional_ids if isinstance(event, WarnOfExpiry) else ()
        for id_ in near or (getattr(event, "transactional_id", ""),):
            known = duties.known.get(id_)
            if known is None or not _is_due(known, event, periods, now_ms):
                yield "a timer", f"{event} at {now_ms} of {known}"
            elif near:
                known.is_warned = True


def _is_due(known: IdState, event: TransactionEvent, periods: Periods, now_ms: int) -> bool:
    raw, now = known.now.raw, known.now
    idle_ms = now_ms - now.updated_ms
    match event:
        case AbortTimedOut():
            ids = (event.producer_id, event.producer_epoch)
            is_it = ids == (raw.producer_id, raw.producer_epoch)
            return raw.state == ONGOING and is_it and now.started_ms + raw.timeout_ms < now_ms
        case ExpireId():
            return raw.state in AT_REST and idle_ms >= periods.expiration_ms
        case CompletePrepared():
            return raw.state in PREPARED and not known.owed
        case WarnOfExpiry():
            is_near = 0.9 * periods.expiration_ms - 1 <= idle_ms < periods.expiration_ms
            return raw.state in AT_REST and is_near and not known.is_warned
    return False


def unpunctual(
    duties: TransactionDuties,
    shard: TransactionCoordinatorShard,
    periods: Periods,
    now_ms: int,
    awake_since_ms: float,
) -> Iterator[Complaint]:
    """What is due for longer than a sweep takes is not done; `awake_since_ms`: it ran since.

    While the log does not take an append of an id, nothing else is decided about that id.
    """
    since_ms = max(awake_since_ms, duties.loaded_ms)
    deadline_ms = shard.next_deadline_ms()
    overdue_ms = [
        max(known.now.started_ms + known.now.raw.timeout_ms, now_ms) + periods.sweep_ms
        for known in duties.known.values()
        if known.now.raw.state == ONGOING and known.now.raw.timeout_ms != _NO_TIMEOUT_MS
    ]
    latest_ms = min(overdue_ms, default=now_ms + periods.expiry_sweep_ms)
    if duties.known and (deadline_ms is None or deadline_ms > latest_ms):
        yield "a timer", f"{len(overdue_ms)} transactions, and it wakes at {deadline_ms}"
    if not duties.known and not duties.untold_count and deadline_ms is not None:
        yield "a timer", f"no id is known, and it wakes at {deadline_ms}"
    for id_, known in duties.known.items():
        if duties.is_pending(id_):
            known.held_up_ms = now_ms
            continue
        raw = known.now.raw
        due_ms = None
        if raw.state == ONGOING and raw.timeout_ms != _NO_TIMEOUT_MS:
            due_ms = known.now.started_ms + raw.timeout_ms, periods.sweep_ms
        elif raw.state in AT_REST:
            due_ms = known.now.updated_ms + periods.expiration_ms, periods.expiry_sweep_ms
        if due_ms is None or raw.producer_epoch >= EPOCHS_USED_UP:
            continue
        if now_ms > max(due_ms[0], since_ms, known.held_up_ms) + due_ms[1] + BOUND_MS:
            yield "a timer", f"{id_} was due at {due_ms[0]}, now is {now_ms}: {known.now}"

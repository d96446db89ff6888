"""Says what a record of `__transaction_state` has to hold, from the one before it and its cause.

Sources: KIP-98, KIP-360, KIP-890. States are the numbers of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncelog.simulation.duties.worn import first_epoch
from oncelog.simulation.oracle.transaction_log import NONE, RawTransaction
from oncelog.transaction.events import (
    AbortTimedOut,
    AddPartitions,
    CompletePrepared,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    TransactionEvent,
)

__all__ = [
    "AT_REST",
    "COMMITS",
    "EMPTY",
    "EPOCHS_USED_UP",
    "ONGOING",
    "PREPARED",
    "Before",
    "wrong_fields",
]

EMPTY: Final = 0
ONGOING: Final = 1
PREPARED: Final = frozenset({2, 3})
AT_REST: Final = frozenset({0, 4, 5})
COMMITS: Final = frozenset({2, 4})
EPOCHS_USED_UP: Final = 32_766
_EPOCH_MAX: Final = 32_767
_ABORTED: Final = 3
_TO_COMPLETE: Final = 2
"""Added to a prepared state, gives the complete one."""


@dataclass(frozen=True, slots=True)
class Before:
    """An id's record, with its times as the coordinator has them: by a clock without jumps."""

    raw: RawTransaction
    updated_ms: int
    started_ms: int


def wrong_fields(
    before: Before | None, after: RawTransaction, event: TransactionEvent, now_ms: int
) -> Iterator[str]:
    """Name the fields that this event, at this time, does not explain."""
    wanted = _wanted(before, after, event, now_ms)
    if wanted is None:
        yield f"no record follows from {event} after {before}: {after}"
        return
    for name, value in wanted.items():
        held = getattr(after, name)
        # Version 0 has no field of version 1.
        if held is not None and held != value:
            yield f"{name} is {held} instead of {value} after {event} at {now_ms}, before {before}"


def _wanted(
    before: Before | None, after: RawTransaction, event: TransactionEvent, now_ms: int
) -> dict[str, Any] | None:
    if before is None:
        return _created(after, event, now_ms) if isinstance(event, InitProducerId) else None
    state = before.raw.state
    common = {
        "producer_id": before.raw.producer_id,
        "producer_epoch": before.raw.producer_epoch,
        "timeout_ms": before.raw.timeout_ms,
        "partitions": before.raw.partitions,
        "start_ms": before.started_ms,
        "last_update_ms": max(now_ms, before.updated_ms),
        "previous_producer_id": before.raw.producer_id,
        "next_producer_id": before.raw.next_producer_id,
    }
    match event:
        case AddPartitions() if state == ONGOING or state in AT_REST:
            changed = _added(before, event, now_ms)
        case EndTxn() if state == ONGOING or (state in AT_REST and not event.commit):
            prepared = 2 if event.commit else _ABORTED
            is_tv2 = event.transaction_version >= 2
            changed = _prepared(before, after, prepared, now_ms, bumps=is_tv2, is_tv2=is_tv2)
        case AbortTimedOut() | InitProducerId() if state == ONGOING:
            is_tv2 = after.client_transaction_version == 2
            changed = _prepared(before, after, _ABORTED, now_ms, bumps=True, is_tv2=is_tv2)
        case InitProducerId() if state in AT_REST:
            changed = _taken_over(before, after, event)
        case MarkersWritten() | CompletePrepared() | EndTxn() | AbortTimedOut() | InitProducerId():
            if state not in PREPARED:
                return None
            changed = _completed(before)
        case _:
            return None
    return common | changed


def _created(after: RawTransaction, event: InitProducerId, now_ms: int) -> dict[str, Any]:
    return {
        "producer_epoch": first_epoch(event.transactional_id),
        "timeout_ms": event.timeout_ms,
        "state": EMPTY,
        "partitions": frozenset(),
        "start_ms": NONE,
        "last_update_ms": now_ms,
        "previous_producer_id": after.producer_id,
        "next_producer_id": NONE,
        "client_transaction_version": 0,
    }


def _added(before: Before, event: AddPartitions, now_ms: int) -> dict[str, Any]:
    begins = before.raw.state != ONGOING
    return {
        "state": ONGOING,
        "partitions": before.raw.partitions | {tuple(each) for each in event.partitions},
        "start_ms": now_ms if begins else before.started_ms,
        "client_transaction_version": 2 if event.transaction_version >= 2 else 0,
    }


def _prepared(
    before: Before, after: RawTransaction, state: int, now_ms: int, *, bumps: bool, is_tv2: bool
) -> dict[str, Any]:
    epoch = before.raw.producer_epoch
    changes_id = is_tv2 and epoch >= EPOCHS_USED_UP
    fresh = after.next_producer_id
    is_fresh = fresh is not None and fresh not in (NONE, before.raw.producer_id)
    return {
        "state": state,
        "producer_epoch": min(epoch + 1, _EPOCH_MAX) if bumps else epoch,
        "start_ms": now_ms if before.raw.state in AT_REST else before.started_ms,
        "next_producer_id": (fresh if is_fresh else "a fresh one") if changes_id else NONE,
        "client_transaction_version": 2 if is_tv2 else 0,
    }


def _taken_over(before: Before, after: RawTransaction, event: InitProducerId) -> dict[str, Any]:
    raw = before.raw
    ids = raw.producer_id, raw.producer_epoch + 1
    if raw.producer_epoch >= EPOCHS_USED_UP:
        is_fresh = after.producer_id != raw.producer_id
        ids = after.producer_id if is_fresh else NONE, 0
    expects = event.producer_id, event.producer_epoch
    is_retry = expects[0] != NONE and expects != (raw.producer_id, raw.producer_epoch)
    has_aborted = event.parked is not None and event.parked.has_aborted
    if is_retry and not has_aborted:
        # A lost answer is repeated (KIP-360).
        ids = raw.producer_id, raw.producer_epoch
    return {
        "producer_id": ids[0],
        "producer_epoch": ids[1],
        "timeout_ms": event.timeout_ms,
        "state": EMPTY,
        "partitions": frozenset(),
        "start_ms": NONE,
        "next_producer_id": NONE,
        "client_transaction_version": raw.client_transaction_version,
    }


def _completed(before: Before) -> dict[str, Any]:
    raw = before.raw
    following = raw.next_producer_id
    changes_id = following is not None and following != NONE
    return {
        "producer_id": following if changes_id else raw.producer_id,
        "producer_epoch": 0 if changes_id else raw.producer_epoch,
        "state": raw.state + _TO_COMPLETE,
        "partitions": frozenset(),
        "next_producer_id": NONE,
        "client_transaction_version": raw.client_transaction_version,
    }

"""Defines how each event of a history is drawn: shape, colour, label, and the lanes it marks.

The page knows no class of `oncelog.simulation.history`; it draws by this table. A new class of
event needs a row in `KINDS`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from oncelog.core.ids import TopicPartition
from oncelog.simulation import history as h
from oncelog.simulation import history_access as a
from oncelog.simulation.history import Event, Value

__all__ = ["KINDS", "EventLook", "details", "kind_of", "places_of", "transaction_of", "values_of"]

_SHOWN_COUNT_MAX = 12
"""For a longer list the details show its first items and the count."""


@dataclass(frozen=True, slots=True)
class EventLook:
    """How one class of event is drawn. `tone` and `shape` are names of the page."""

    shape: str
    tone: str
    label: Callable[[Any], str]
    at_partition: Callable[[Any], str] | None = None
    """The label in the partition's lane; None: it does not mark one."""


_WithOffsets = h.TransactionOffsets | h.OffsetsCommitting | h.OffsetsCommitted | h.OffsetsFetched
E = TypeVar("E", bound=Event)


def _row(
    event: type[E],
    shape: str,
    tone: str,
    label: Callable[[E], str],
    at_partition: Callable[[E], str] | None = None,
) -> tuple[type[Event], EventLook]:
    """Return a row of `KINDS`; `label` is called with events of that class only."""
    return event, EventLook(shape, tone, label, at_partition)


def _offsets(event: _WithOffsets) -> str:
    return f"{event.group_id} {_text(event.offsets)}"


def _target(partition: TopicPartition) -> str:
    return str(partition) if partition.partition >= 0 else partition.topic


def _topic(event: h.TopicChanging | h.TopicChanged) -> str:
    return f"{event.change} {event.topic}"


def _polled(event: h.Polled) -> str:
    if not event.records:
        return f"→{event.position}"
    first, last = event.records[0][0], event.records[-1][0]
    return f"@{first}" if first == last else f"@{first}…{last}"


def _heartbeat(event: h.HeartbeatAnswered) -> str:
    if event.error:
        return f"{event.group_id} {event.error}"
    owned = "" if event.assigned is None else f" owns {_text(event.assigned) or 'nothing'}"
    return f"{event.group_id} epoch {event.epoch}{owned}"


def _outcome(event: h.TransactionEnded) -> str:
    return f"T{event.transaction} {'committed' if event.commit else 'aborted'}"


KINDS: dict[type[Event], EventLook] = dict(
    (
        _row(h.Sent, "ring", "sent", lambda e: f"#{e.value.number} {_target(e.topic_partition)}"),
        _row(
            h.Acked,
            "dot",
            "ack",
            lambda e: f"#{e.value.number} {e.topic_partition}@{e.offset}",
            lambda e: f"@{e.offset} {e.value.client}#{e.value.number}",
        ),
        _row(h.SendFailed, "cross", "bad", lambda e: f"#{e.value.number} {e.error}"),
        _row(
            h.ProducerInitialized,
            "plus",
            "quiet",
            lambda e: f"producer {e.producer_id} epoch {e.producer_epoch}",
        ),
        _row(h.ProducerFenced, "cross", "bad", lambda e: f"fenced: {e.error}"),
        _row(h.TransactionBegan, "diamond", "open", lambda e: f"T{e.transaction} begins"),
        _row(h.TransactionOffsets, "diamond", "open", lambda e: f"T{e.transaction} {_offsets(e)}"),
        _row(
            h.TransactionEnding,
            "diamond",
            "open",
            lambda e: f"T{e.transaction} {'commit' if e.commit else 'abort'}?",
        ),
        _row(h.TransactionEnded, "diamond", "ended", _outcome),
        _row(h.LateRequest, "caret", "quiet", lambda _: "a request comes late"),
        _row(h.TransactionUnknown, "diamond", "unknown", lambda e: f"T{e.transaction} unknown"),
        _row(h.Positioned, "caret", "quiet", lambda e: f"{e.topic_partition} at {e.offset}"),
        _row(
            h.Polled,
            "triangle",
            "poll",
            lambda e: f"{e.topic_partition} {_polled(e)}",
            lambda e: f"{_polled(e)} {e.who}",
        ),
        _row(h.OffsetsCommitting, "caret", "quiet", lambda e: f"commit? {_offsets(e)}"),
        _row(h.OffsetsCommitted, "caret", "group", lambda e: f"commit {_offsets(e)}"),
        _row(h.OffsetsCommitRefused, "cross", "bad", lambda e: f"commit refused: {e.error}"),
        _row(h.OffsetsFetched, "caret", "quiet", lambda e: f"fetch {_offsets(e)}"),
        _row(
            h.Joined,
            "square",
            "group",
            lambda e: f"{e.group_id} gen {e.generation}{' leader' if e.is_leader else ''}",
        ),
        _row(h.AssignmentMade, "square", "quiet", lambda e: f"assigns gen {e.generation}"),
        _row(h.Assigned, "square", "group", lambda e: f"owns {_text(e.partitions) or 'nothing'}"),
        _row(
            h.Revoked, "square", "quiet", lambda e: f"gives up {_text(e.partitions) or 'nothing'}"
        ),
        _row(h.HeartbeatAsked, "caret", "quiet", lambda e: f"{e.group_id} epoch {e.epoch}?"),
        _row(h.HeartbeatAnswered, "square", "group", _heartbeat),
        _row(
            h.ClassicHeartbeat,
            "square",
            "quiet",
            lambda e: f"{e.group_id} gen {e.generation} {e.error}".rstrip(),
        ),
        _row(h.GroupDescribed, "square", "quiet", lambda e: f"{e.group_id} is {e.state}"),
        _row(h.TopicChanging, "plus", "quiet", lambda e: f"{_topic(e)}?"),
        _row(h.TopicChanged, "plus", "ack", _topic),
        _row(
            h.RecordsDeleted,
            "plus",
            "bad",
            lambda e: f"delete {e.topic_partition} below {e.offset}",
            lambda e: f"deleted below {e.offset}",
        ),
        _row(h.Fault, "bolt", "fault", lambda e: f"{e.kind} {e.target}".strip()),
        _row(h.BrokerStarted, "triangle", "life", lambda e: f"start {e.incarnation}"),
        _row(h.BrokerDied, "cross", "bad", lambda e: f"dies: {e.cause}"),
        _row(h.Logged, "bang", "fault", lambda e: f"{e.level.lower()}: {e.message}"),
        _row(a.AccessAsked, "plus", "quiet", lambda e: f"{e.change}?"),
        _row(a.AccessAnswered, "plus", "ack", lambda e: e.change),
        _row(a.AccessWrong, "bang", "bad", lambda e: f"{e.what}: {e.particulars}"),
        _row(h.Disagreement, "bang", "bad", lambda e: f"{e.topic_partition}: {e.what}"),
        _row(h.ComponentFailed, "bang", "bad", lambda e: f"{e.component}: {e.particulars}"),
        _row(h.Progress, "flag", "quiet", lambda e: e.state),
    )
)
"""By class. `Watermarks` is an observation, not an event of the system, and is not drawn."""

_OTHER = EventLook("dot", "quiet", lambda e: type(e).__name__)


def kind_of(event: Event) -> EventLook:
    """Return how an event is drawn."""
    return KINDS.get(type(event), _OTHER)


def values_of(event: Event) -> Iterator[Value]:
    """Return the records that an event is about."""
    match event:
        case h.Sent() | h.Acked() | h.SendFailed():
            yield event.value
        case h.Polled():
            for _, value in event.records:
                yield value


def places_of(event: Event) -> Iterator[tuple[TopicPartition, int]]:
    """Return the offsets in logs that an event names."""
    match event:
        case h.Acked() if event.offset >= 0:
            yield event.topic_partition, event.offset
        case h.Polled():
            for offset, _ in event.records:
                yield event.topic_partition, offset


def transaction_of(event: Event) -> int:
    """Return the client's transaction of which an event is a step, -1 for none."""
    transaction = getattr(event, "transaction", -1)
    return transaction if isinstance(transaction, int) else -1


def details(event: Event) -> list[str]:
    """Return the text of each field but time and place, in the order of the class."""
    return [
        _text(getattr(event, field.name))
        for field in fields(event)
        if field.name not in ("at_s", "who")
    ]


def _text(value: object) -> str:
    match value:
        case Value():
            source = f" of {value.source}" if value.source else ""
            inside = f" in T{value.transaction}" if value.transaction >= 0 else ""
            return f"{value.client}#{value.number}{inside}{source}"
        case TopicPartition():
            return str(value)
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6f}"
        case Mapping():
            return _list([f"{_text(key)}: {_text(item)}" for key, item in value.items()])
        case (int() as offset, Value() as record):
            return f"@{offset} {_text(record)}"
        case tuple():
            return _list([_text(item) for item in value])
    return str(value)


def _list(parts: list[str]) -> str:
    if len(parts) > _SHOWN_COUNT_MAX:
        parts = [*parts[:_SHOWN_COUNT_MAX], f"… {len(parts)} in all"]
    return ", ".join(parts)

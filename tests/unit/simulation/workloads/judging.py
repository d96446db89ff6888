"""A small judge of one run without loss of power: enough to see that a workload's history is sane.

The simulation's own checkers are stricter and name what they find; these tests must not need them.
"""

from __future__ import annotations

from oncelog.client import TopicPartition
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import (
    Acked,
    History,
    Polled,
    Positioned,
    SendFailed,
    Sent,
    TopicChanging,
    TransactionEnded,
    TransactionUnknown,
    Value,
)

__all__ = ["complaints", "copies_complaints"]


def complaints(history: History, final: FinalState) -> list[str]:
    """What is wrong between what clients saw and what the logs hold."""
    shown: dict[Value, list[tuple[TopicPartition, int]]] = {}
    for tp, partition in final.partitions.items():
        for record in partition.committed:
            assert record.value is not None, f"{tp}@{record.offset}"
            shown.setdefault(record.value, []).append((tp, record.offset))
    found = [
        f"{value} is there twice: {places}" for value, places in shown.items() if len(places) > 1
    ]
    ended = {(e.who, e.transaction): e.commit for e in history.of(TransactionEnded)}
    unknown = {(e.who, e.transaction) for e in history.of(TransactionUnknown)}
    sent = {event.value for event in history.of(Sent)}
    found += [f"nobody sent {value}" for value in shown if value not in sent]
    for value in shown:
        key = (value.client, value.transaction)
        if value.transaction >= 0 and key not in unknown and not ended.get(key, False):
            found.append(f"{value} of a transaction that did not commit is shown")
    found += _lost(history, final, shown, ended)
    found += [
        f"{event.value} was refused and is there"
        for event in history.of(SendFailed)
        if event.certain and event.value in shown
    ]
    return found + _jumps(history)


def _lost(
    history: History,
    final: FinalState,
    shown: dict[Value, list[tuple[TopicPartition, int]]],
    ended: dict[tuple[str, int], bool],
) -> list[str]:
    found = []
    deleted = {event.topic for event in history.of(TopicChanging) if event.change == "delete"}
    for event in history.of(Acked):
        value = event.value
        partition = final.partitions.get(event.topic_partition)
        if event.topic_partition.topic in deleted or partition is None:
            continue
        if 0 <= event.offset < partition.log_start_offset:
            continue
        if value.transaction >= 0 and not ended.get((value.client, value.transaction), False):
            continue
        places = shown.get(value, [])
        if not places and event.acks != 0:
            found.append(f"{value} was acknowledged in {event.topic_partition} and is lost")
        elif places and event.offset >= 0 and places != [(event.topic_partition, event.offset)]:
            found.append(f"{value} was acknowledged at {event.offset} and is at {places}")
    return found


def _jumps(history: History) -> list[str]:
    """Polls that do not connect to what their reader read before."""
    found = []
    positions: dict[tuple[str, TopicPartition], int] = {}
    for event in history.events:
        if isinstance(event, Positioned):
            positions[event.who, event.topic_partition] = event.offset
        elif isinstance(event, Polled):
            offsets = [offset for offset, _value in event.records]
            before = positions[event.who, event.topic_partition]
            if offsets != sorted(set(offsets)) or [o for o in offsets if o < before]:
                found.append(f"{event.who} stood at {before} and polled {offsets}")
            if offsets and event.position <= offsets[-1]:
                found.append(f"{event.who} polled {offsets} and stands at {event.position}")
            positions[event.who, event.topic_partition] = event.position
    return found


def copies_complaints(final: FinalState, sources: set[str], target: str) -> list[str]:
    """Each committed record of the sources is copied once."""
    wanted = {
        f"{tp}@{record.offset}"
        for tp, partition in final.partitions.items()
        if tp.topic in sources
        for record in partition.committed
    }
    copied = [
        record.value.source
        for tp, partition in final.partitions.items()
        if tp.topic == target
        for record in partition.committed
        if record.value is not None
    ]
    found = [f"{source} was copied twice" for source in set(copied) if copied.count(source) > 1]
    found += [f"{source} was not copied" for source in sorted(wanted - set(copied))]
    return found + [f"{source} is no committed record" for source in sorted(set(copied) - wanted)]

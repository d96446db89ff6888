"""What must hold of any history here: a small checker for the tests of scripted clients."""

from __future__ import annotations

from collections import Counter

from oncelog.simulation.history import (
    Acked,
    Polled,
    Positioned,
    SendFailed,
    Sent,
    TransactionEnded,
    TransactionUnknown,
    Value,
)
from tests.unit.simulation.peers.world import World, stuck


def outcomes(w: World) -> dict[tuple[str, int], bool]:
    """How each transaction ended whose end is known; none ended twice."""
    found: dict[tuple[str, int], bool] = {}
    for event in w.events(TransactionEnded):
        key = (event.who, event.transaction)
        assert key not in found, f"{key} ended twice"
        found[key] = event.commit
    return found


def expect_reads(w: World, readers: int = 1) -> None:
    """Every committed record was read by each read_committed reader, and no aborted one (INV-3)."""
    known = outcomes(w)
    unknown = {(e.who, e.transaction) for e in w.events(TransactionUnknown)}
    seen = Counter(w.read())
    for value in seen:
        if value.transaction >= 0:
            key = (value.client, value.transaction)
            assert key in unknown or known.get(key) is True, f"{value} of an aborted transaction"
    for value in w.acked():
        if value.transaction < 0 or known.get((value.client, value.transaction)) is True:
            assert seen[value] >= readers, f"{value} was never read"


def expect_order(w: World) -> None:
    """A reader moves on without a gap, unless it says so."""
    positions: dict[tuple[str, object], int] = {}
    for event in w.history.events:
        if isinstance(event, Positioned):
            positions[event.who, event.topic_partition] = event.offset
        elif isinstance(event, Polled):
            position = positions[event.who, event.topic_partition]
            offsets = [offset for offset, _value in event.records]
            assert offsets == sorted(set(offsets))
            assert not offsets or (position <= offsets[0] and offsets[-1] < event.position)
            positions[event.who, event.topic_partition] = event.position


def expect_fates(w: World) -> None:
    """Every record that was sent is acknowledged or failed, once; nothing is stuck."""
    fates = [e.value for e in w.events(Acked)] + [e.value for e in w.events(SendFailed)]
    assert len(set(fates)) == len(fates)
    assert set(fates) == {e.value for e in w.events(Sent)}
    assert stuck(w.history.events) == []


def repeats(values: list[Value]) -> list[Value]:
    return [value for value, count in Counter(values).items() if count > 1]

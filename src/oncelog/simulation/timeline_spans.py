"""Computes spans of time: transactions, group generations, broker processes, faults. Pure.

A span is in one lane, a band crosses all lanes that a fault affects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.simulation import history as h
from oncelog.simulation.crashes import CLIENT_DEATHS, belongs_to
from oncelog.simulation.history import Event

__all__ = ["Band", "Span", "bands", "spans"]

_WORDS = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one lane. `slot`: 0 transactions and lives, 1 generations; `tone` colours it.

    `first` and `last` are the positions of its events, -1: it lasts to the end of the run.
    """

    who: str
    slot: int
    first: int
    last: int
    tone: str
    label: str
    transaction: int = -1


@dataclass(frozen=True, slots=True)
class Band:
    """A fault from `start_s` to `end_s` (equal: it strikes once); `lanes` empty: everywhere."""

    start_s: float
    end_s: float
    label: str
    lanes: tuple[str, ...]


@dataclass(slots=True)
class _Open:
    first: int
    transaction: int
    label: str
    ending: int = -1


class _Spans:
    """Follows the history and keeps what is open."""

    def __init__(self) -> None:
        self.found: list[Span] = []
        self._transactions: dict[str, _Open] = {}
        self._generations: dict[tuple[str, str], tuple[int, int]] = {}
        self._lives: dict[str, tuple[int, str, str]] = {}

    def follow(self, at: int, event: Event) -> None:
        """Add the next event and its position."""
        match event:
            case h.TransactionBegan():
                self._end(event.who, at, "open")
                label = f"T{event.transaction} of {event.transactional_id}"
                self._transactions[event.who] = _Open(at, event.transaction, label)
            case h.TransactionEnding():
                if event.who in self._transactions:
                    self._transactions[event.who].ending = at
            case h.TransactionEnded():
                self._end(event.who, at, "commit" if event.commit else "abort")
            case h.TransactionUnknown():
                self._end(event.who, at, "unknown")
            case h.Joined():
                self._leave(event.who, event.group_id, at)
                self._generations[event.who, event.group_id] = (at, event.generation)
            case h.Revoked():
                self._leave(event.who, event.group_id, at)
            case h.BrokerStarted():
                self._live(event.who, at, "alive", f"life {event.incarnation}")
            case h.BrokerDied():
                self._live(event.who, at, "dead", f"down after: {event.cause}")
            case h.Fault() if event.kind in CLIENT_DEATHS:
                self._die(event.target, at)

    def finish(self) -> list[Span]:
        """End all spans that are open at the end of the run."""
        for who in list(self._transactions):
            self._end(who, -1, "open")
        for who, group_id in list(self._generations):
            self._leave(who, group_id, -1)
        for who in list(self._lives):
            self._live(who, -1, "", "")
        return self.found

    def _end(self, who: str, at: int, outcome: str) -> None:
        begun = self._transactions.pop(who, None)
        if begun is None:
            return
        label = f"{begun.label}: {outcome}"
        number = begun.transaction
        self.found.append(Span(who, 0, begun.first, at, outcome, label, number))
        if begun.ending >= 0:
            label = f"{begun.label}: EndTxn under way, then {outcome}"
            self.found.append(Span(who, 0, begun.ending, at, "ending", label, number))

    def _leave(self, who: str, group_id: str, at: int) -> None:
        start = self._generations.pop((who, group_id), None)
        if start is not None:
            tone = "even" if start[1] % 2 == 0 else "odd"
            label = f"{group_id}: generation {start[1]}"
            self.found.append(Span(who, 1, start[0], at, tone, label))

    def _die(self, target: str, at: int) -> None:
        """End the open spans of the clients of a killed process."""
        for who in [who for who in self._transactions if belongs_to(who, target)]:
            self._end(who, at, "open")
        for who, group_id in list(self._generations):
            if belongs_to(who, target):
                self._leave(who, group_id, at)

    def _live(self, who: str, at: int, tone: str, label: str) -> None:
        before = self._lives.pop(who, None)
        if before is not None:
            self.found.append(Span(who, 0, before[0], at, before[1], before[2]))
        if tone:
            self._lives[who] = (at, tone, label)


def spans(events: Iterable[Event]) -> list[Span]:
    """Return the spans of all lanes."""
    following = _Spans()
    for position, event in enumerate(events):
        following.follow(position, event)
    return following.finish()


def bands(faults: Iterable[h.Fault], processes: Iterable[str], others: Iterable[str]) -> list[Band]:
    """Return the faults across the lanes that their targets name; all lanes if they name none.

    A target may be a process, several of them, or a path: "/data/t-0/0.log" affects the lane of
    t-0.
    """
    processes, others = list(processes), list(others)
    found = []
    for fault in faults:
        words = set(_WORDS.split(fault.target)) - {""}
        met = [who for who in processes if any(belongs_to(who, word) for word in words)]
        met += [name for name in others if name in words]
        label = " ".join(part for part in (fault.kind, fault.target, fault.detail) if part)
        found.append(Band(fault.at_s, max(fault.until_s, fault.at_s), label, tuple(met)))
    return found

"""What lasts: transactions, group generations, lives of brokers, faults. Pure.

A span stands in one lane, a band lies across all lanes that a fault meets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.simulation import history as h
from oncelog.simulation.crashes import CLIENT_DEATHS
from oncelog.simulation.history import Event

__all__ = ["Band", "Span", "bands", "spans"]

_WORDS = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one lane. `slot`: 0 transactions and lives, 1 generations; `tone` colours it."""

    who: str
    slot: int
    start_s: float
    end_s: float
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
    start_s: float
    transaction: int
    label: str
    ending_s: float = -1.0


class _Spans:
    """Follows the history and keeps what is open."""

    def __init__(self, end_s: float) -> None:
        self.found: list[Span] = []
        self._end_s = end_s
        self._transactions: dict[str, _Open] = {}
        self._generations: dict[tuple[str, str], tuple[float, int]] = {}
        self._lives: dict[str, tuple[float, str, str]] = {}

    def follow(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case h.TransactionBegan():
                self._end(event.who, event.at_s, "open")
                label = f"T{event.transaction} of {event.transactional_id}"
                self._transactions[event.who] = _Open(event.at_s, event.transaction, label)
            case h.TransactionEnding():
                if event.who in self._transactions:
                    self._transactions[event.who].ending_s = event.at_s
            case h.TransactionEnded():
                self._end(event.who, event.at_s, "commit" if event.commit else "abort")
            case h.TransactionUnknown():
                self._end(event.who, event.at_s, "unknown")
            case h.Joined():
                self._leave(event.who, event.group_id, event.at_s)
                self._generations[event.who, event.group_id] = (event.at_s, event.generation)
            case h.Revoked():
                self._leave(event.who, event.group_id, event.at_s)
            case h.BrokerStarted():
                self._live(event.who, event.at_s, "alive", f"life {event.incarnation}")
            case h.BrokerDied():
                self._live(event.who, event.at_s, "dead", f"down after: {event.cause}")
            case h.Fault() if event.kind in CLIENT_DEATHS:
                self._end(event.target, event.at_s, "open")
                for who, group_id in [key for key in self._generations if key[0] == event.target]:
                    self._leave(who, group_id, event.at_s)

    def finish(self) -> list[Span]:
        """Close what is still open at the end of the run."""
        for who in list(self._transactions):
            self._end(who, self._end_s, "open")
        for who, group_id in list(self._generations):
            self._leave(who, group_id, self._end_s)
        for who in list(self._lives):
            self._live(who, self._end_s, "", "")
        return self.found

    def _end(self, who: str, at_s: float, outcome: str) -> None:
        begun = self._transactions.pop(who, None)
        if begun is None:
            return
        label = f"{begun.label}: {outcome}"
        number = begun.transaction
        self.found.append(Span(who, 0, begun.start_s, at_s, outcome, label, number))
        if begun.ending_s >= 0:
            label = f"{begun.label}: EndTxn under way, then {outcome}"
            self.found.append(Span(who, 0, begun.ending_s, at_s, "ending", label, number))

    def _leave(self, who: str, group_id: str, at_s: float) -> None:
        start = self._generations.pop((who, group_id), None)
        if start is not None:
            tone = "even" if start[1] % 2 == 0 else "odd"
            label = f"{group_id}: generation {start[1]}"
            self.found.append(Span(who, 1, start[0], at_s, tone, label))

    def _live(self, who: str, at_s: float, tone: str, label: str) -> None:
        before = self._lives.pop(who, None)
        if before is not None:
            self.found.append(Span(who, 0, before[0], at_s, before[1], before[2]))
        if tone:
            self._lives[who] = (at_s, tone, label)


def spans(events: Iterable[Event], end_s: float) -> list[Span]:
    """Everything that lasts in one lane."""
    following = _Spans(end_s)
    for event in events:
        following.follow(event)
    return following.finish()


def bands(faults: Iterable[h.Fault], lanes: Iterable[str]) -> list[Band]:
    """The faults across the lanes that their targets name; all lanes if they name none.

    A target may be a process, several of them, or a path: "/data/t-0/0.log" meets the lane of t-0.
    """
    lanes = list(lanes)
    found = []
    for fault in faults:
        names = set(_WORDS.split(fault.target))
        met = tuple(name for name in lanes if name in names)
        label = " ".join(part for part in (fault.kind, fault.target, fault.detail) if part)
        found.append(Band(fault.at_s, max(fault.until_s, fault.at_s), label, met))
    return found

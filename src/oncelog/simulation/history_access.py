"""Defines the events of users and rights: what the warden asked for, and what was wrong."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.simulation.history import Event

__all__ = ["AccessAnswered", "AccessAsked", "AccessWrong"]


@dataclass(frozen=True, slots=True)
class AccessAsked(Event):
    """A change of ACLs or passwords is sent. It names no secret."""

    change: str
    broker: int


@dataclass(frozen=True, slots=True)
class AccessAnswered(Event):
    """The change is in force on all brokers but the late ones, which are named by their indexes."""

    change: str
    late: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessWrong(Event):
    """A broker let in whom it had to refuse, or the other way round."""

    what: str
    particulars: str

"""Common parts of simulated connections: marks, fates, and the interface of a pipe's ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.trace import Trace

__all__ = ["End", "Fate", "Mark", "Wire"]


class Mark(Enum):
    """Events that a connection carries besides bytes."""

    ACCEPT = auto()
    """The connection is open: the first item towards its server."""
    EOF = auto()
    """The writer closed."""
    RESET = auto()
    """The connection is broken."""


class Fate(Enum):
    """The treatment of bytes that are sent from now on."""

    ARRIVES = auto()
    REFUSED = auto()
    """The other machine does not know the connection and sends a reset."""
    SILENT = auto()
    """There is no answer."""


class End(Protocol):
    """One of a connection's two ends, as its pipes see it."""

    process: Process
    gone: bool
    """Whether its socket is closed. Then no method is called."""
    reading: bool
    """Whether it accepts bytes now."""
    waiting: bool
    """Whether `acknowledged` is called."""

    def receive(self, data: bytes) -> int:
        """Accept bytes; return how many. Fewer than all only if it has stopped `reading`."""

    def take_mark(self, mark: Mark) -> None:
        """Accept a mark."""

    def acknowledged(self) -> None:
        """Handle the acknowledgement of bytes that it wrote."""

    def lost(self, error: OSError) -> None:
        """Handle a broken connection."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The state that all connections of a run share."""

    scheduler: Scheduler
    rng: random.Random
    trace: Trace
    counts: Counter[str]
    on_late: list[Callable[[Process], None]]
    """Called with a client that has closed a connection, when bytes of it reach the server."""

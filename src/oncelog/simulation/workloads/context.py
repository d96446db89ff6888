"""What a workload asks of its surroundings: a name, a way to the brokers, time, and choices.

The scripted peers' context (`oncelog.simulation.peers`) is one of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Network
from oncelog.simulation.history import History

__all__ = ["ClientContext"]


class ClientContext(Protocol):
    """One client of a run."""

    @property
    def name(self) -> str:
        """The client, as the history calls it."""
        ...

    @property
    def bootstrap(self) -> tuple[str, int]:
        """Host and port of a broker."""
        ...

    @property
    def network(self) -> Network:
        """The network of the client's process."""
        ...

    @property
    def clock(self) -> Clock:
        """The clocks of the client's process."""
        ...

    @property
    def rng(self) -> random.Random:
        """Where all of its choices come from."""
        ...

    @property
    def history(self) -> History:
        """Where its events go."""
        ...

    @property
    def now_s(self) -> Callable[[], float]:
        """Virtual time, for events."""
        ...

    @property
    def stopping(self) -> Callable[[], bool]:
        """Turns true once: finish what you do, and settle."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The workload's own; its docstring names them."""
        ...

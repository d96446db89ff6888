"""Defines the context of a simulated client: its name, its world and its history.

It knows no requests. Waits use virtual time (`clock`), and random choices `rng`; a client has no
other source of either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from oncelog.core.errors import ErrorCode
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Network
from oncelog.simulation.history import Event, History, Progress
from oncelog.simulation.needs import REFUSALS
from oncelog.simulation.users import ClientLogin

T = TypeVar("T")

__all__ = ["QUIET_SESSIONS_COUNT", "ClientContext"]

QUIET_SESSIONS_COUNT: Final = 1.5
"""For so many sessions a member of a group has nothing to do, and then it settles."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The surroundings of one client.

    `parameters` are those of its role, and those not given have a default. `now_s` is virtual time,
    for events. `settings` are the broker's. `stopping` turns true once: then the client finishes
    its current step, waits for all its requests to succeed, and returns.
    """

    name: str
    bootstrap: tuple[str, int]
    network: Network
    clock: Clock
    rng: random.Random
    history: History
    now_s: Callable[[], float]
    stopping: Callable[[], bool]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    login: ClientLogin | None = None
    """Who it is, where brokers ask for it."""

    def record(self, event: Callable[..., Event], *values: object) -> None:
        """Record an event of this client at the current time."""
        self.history.record(event(self.now_s(), self.name, *values))

    def progress(self, state: str) -> None:
        """Record that the client has reached a state."""
        self.record(Progress, state)

    def stuck(self, reason: str) -> None:
        """Record that the broker did something that Kafka never does. The client continues."""
        self.record(Progress, f"stuck: {reason}")

    def get(self, key: str, default: T) -> T:
        """Return a parameter of the role."""
        value: T = self.parameters.get(key, default)
        return value

    def named(self, name: str) -> ClientContext:
        """Return a copy for another instance, which has its own name in the history."""
        return replace(self, name=name)

    def with_defaults(self, defaults: Mapping[str, Any]) -> ClientContext:
        """Return a copy with values for the parameters that are not given."""
        return replace(self, parameters={**defaults, **self.parameters})

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def may_lack(self, code: ErrorCode | None) -> bool:
        """Whether an error says that it lacks a right, which it may: its rights change.

        A scripted client asks again then, until it has the right back.
        """
        return self.login is not None and self.login.is_ruled and code in REFUSALS

    @property
    def client_options(self) -> Mapping[str, Any]:
        """The options by which our own clients log in."""
        return {} if self.login is None else self.login.options

    async def pause(self, low_ms: float, high_ms: float) -> None:
        """Wait for a time between the two."""
        await self.clock.sleep(self.rng.uniform(low_ms, high_ms))

    async def back_off(self, attempt: int = 0) -> None:
        """Wait before trying again, as clients do: longer each time, with jitter."""
        base_ms = float(self.get("retry_backoff_ms", 50))
        wait_ms = min(base_ms * 2 ** min(attempt, 5), 20 * base_ms)
        await self.clock.sleep(wait_ms * self.rng.uniform(0.8, 1.2))

    async def think(self) -> None:
        """Wait as a user does between two actions: mostly short, sometimes long or not at all."""
        mean_ms = float(self.get("think_ms", 120))
        kind = self.rng.random()
        if kind < 0.3:
            return
        await self.clock.sleep(mean_ms * (self.rng.uniform(0.2, 2) if kind < 0.95 else 10))

    def elapsed_s(self) -> float:
        """Return the process's monotonic time in seconds, for deadlines."""
        return self.clock.monotonic_ms() / 1000

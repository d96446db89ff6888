"""Defines what waits in an `EventProcessor`: requests for the load, events for a transition."""

from typing import Generic, NamedTuple

from oncelog.coordinator.output import Append
from oncelog.coordinator.shard import Decision, EffectT, EventT, ResultT, Token
from oncelog.core.limits import REQUESTS_HELD_BY_LOAD_COUNT_MAX

__all__ = ["HeldByLoad", "InFlight", "Queued"]


class Queued(Generic[EventT]):
    """An event that waits for its id. `over` means decided, answered or dropped."""

    __slots__ = ("deadline_ms", "event", "id", "over", "token")

    def __init__(self, event: EventT, token: Token | None, id_: str, deadline_ms: int) -> None:
        self.event = event
        self.token = token
        self.id = id_
        self.deadline_ms = deadline_ms
        self.over = False


class InFlight(NamedTuple, Generic[EventT, ResultT, EffectT]):
    """A decision whose records are not committed yet, and its event."""

    append: Append
    decision: Decision[EventT, ResultT, EffectT]
    event: EventT
    token: Token | None
    parked: Queued[EventT] | None
    is_answered: bool = False  # It timed out; no reply goes to `token`.


class HeldByLoad(Generic[EventT]):
    """The requests that came during the load, in the order of arrival. All may wait as long."""

    def __init__(self, wait_ms_max: int) -> None:
        self._wait_ms_max = wait_ms_max
        self._held: dict[Token, tuple[EventT, int]] = {}

    def add(self, event: EventT, token: Token, now_ms: int) -> bool:
        """Hold a request; False if too many are held."""
        if len(self._held) >= REQUESTS_HELD_BY_LOAD_COUNT_MAX:
            return False
        self._held[token] = (event, now_ms + self._wait_ms_max)
        return True

    def drop(self, token: Token) -> None:
        """Forget a request whose connection closed."""
        self._held.pop(token, None)

    def next_deadline_ms(self) -> int | None:
        """Return when the oldest one has waited too long; None if none is held."""
        return next((deadline_ms for _, deadline_ms in self._held.values()), None)

    def take(self, due_ms: int | None = None) -> list[tuple[EventT, Token]]:
        """Remove and return those that are due by `due_ms`; None for all."""
        taken = [
            (event, token)
            for token, (event, deadline_ms) in self._held.items()
            if due_ms is None or deadline_ms <= due_ms
        ]
        for _, token in taken:
            del self._held[token]
        return taken

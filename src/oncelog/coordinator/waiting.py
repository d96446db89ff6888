"""Defines what waits in an `EventProcessor`: requests for the load, events for a transition."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple

from oncelog.coordinator.output import Append
from oncelog.coordinator.shard import Decision, EffectT, EventT, ReplyT, Token
from oncelog.core.limits import REQUESTS_HELD_BY_LOAD_COUNT_MAX

__all__ = ["HeldByLoad", "InFlight", "Queued", "WaitingEvents"]


class Queued(Generic[EventT]):
    """An event that waits for its id. `over` means decided, answered or dropped."""

    __slots__ = ("deadline_ms", "event", "id", "over", "token")

    def __init__(self, event: EventT, token: Token | None, id_: str, deadline_ms: int) -> None:
        self.event = event
        self.token = token
        self.id = id_
        self.deadline_ms = deadline_ms
        self.over = False


class InFlight(NamedTuple, Generic[EventT, ReplyT, EffectT]):
    """A decision whose records are not committed yet, and its event."""

    append: Append
    decision: Decision[EventT, ReplyT, EffectT]
    event: EventT
    token: Token | None
    parked: Queued[EventT] | None
    is_answered: bool = False  # It timed out; no reply goes to `token`.


class WaitingEvents(Generic[EventT]):
    """The events that wait for their ids, in the order of arrival. All may wait as long."""

    def __init__(self, wait_ms_max: int) -> None:
        self._wait_ms_max = wait_ms_max
        self.queues: dict[str, deque[Queued[EventT]]] = {}
        """By id, to be read only."""
        self.by_token: dict[Token, Queued[EventT]] = {}
        """Those with a request, to be read only."""
        self._deadlines: deque[Queued[EventT]] = deque()

    def add(
        self, event: EventT, token: Token | None, id_: str, now_ms: int, first: bool
    ) -> Queued[EventT]:
        """Queue an event, as the last of its id or as the first."""
        queued = Queued(event, token, id_, now_ms + self._wait_ms_max)
        queue = self.queues.setdefault(id_, deque())
        if first:
            queue.appendleft(queued)
        else:
            queue.append(queued)
        if token is not None:
            self.by_token[token] = queued
            self._deadlines.append(queued)
        return queued

    def finish(self, queued: Queued[EventT]) -> None:
        """Remove an event that was decided, answered or dropped.

        Its entry in `_deadlines` is skipped when it falls due.
        """
        if queued.over:
            return
        queued.over = True
        queue = self.queues[queued.id]
        queue.remove(queued)
        if not queue:
            del self.queues[queued.id]
        if queued.token is not None:
            del self.by_token[queued.token]

    def overdue(self, now_ms: int) -> Iterator[Queued[EventT]]:
        """Remove and yield the requests past their deadline, the oldest first."""
        while self.by_token and self.next_deadline_ms() <= now_ms:
            queued = self._deadlines.popleft()
            self.finish(queued)
            yield queued

    def next_deadline_ms(self) -> int:
        """Return when the oldest request has waited too long; there is one."""
        while self._deadlines[0].over:
            self._deadlines.popleft()
        return self._deadlines[0].deadline_ms


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

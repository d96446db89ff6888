"""Records one client's events, its current step, and its final state.

`supervise` runs a client's work. It detects a step that never ends and an exception that the client
library does not document. Both are defects, recorded as ``Progress("stuck: ...")``; a client that
completes records ``Progress("settled")``.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Event, Progress

__all__ = ["Journal", "StuckError", "supervise"]

WATCH_S: Final = 5.0
STUCK_AFTER_LOOKS: Final = 24
"""Checks that find a client in the same step after which it counts as stuck.

Two minutes: no step of a client may take longer by its own timeouts. A late check does not count,
because the process was frozen.
"""
FROZEN_FACTOR: Final = 1.5
CLOSE_S: Final = 10.0


class StuckError(Exception):
    """A workload found a violation; the text describes it."""


class Closable(Protocol):
    """Any of our clients."""

    async def close(self) -> None:
        """Close the connections."""
        ...


class Journal:
    """Records one client's events and makes its random choices.

    `step` counts the calls that the client has begun; `doing` names the current one.
    """

    __slots__ = ("_open", "context", "doing", "rng", "step", "transaction_version", "who")

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self.who = context.name
        self.rng = context.rng
        self.step = 0
        self.doing = "nothing"
        version = context.parameters.get("transaction_version_max")
        self.transaction_version = version if isinstance(version, int) else 2
        self._open: list[Closable] = []

    @property
    def stopping(self) -> bool:
        """Return whether the client has to settle."""
        return self.context.stopping()

    def record(self, kind: Callable[..., Event], *values: object) -> None:
        """Record an event of this client at the current time."""
        self.context.history.record(kind(self.context.now_s(), self.who, *values))

    def begin(self, doing: str) -> None:
        """The client begins its next step."""
        self.step += 1
        self.doing = doing

    def now_s(self) -> float:
        """Return virtual time in seconds, as in events."""
        return self.context.now_s()

    def number(self, name: str, default: float) -> float:
        """Return a numeric parameter."""
        value = self.context.parameters.get(name, default)
        if not isinstance(value, int | float):
            raise StuckError(f"parameter {name} is no number: {value!r}")
        return value

    def text(self, name: str, default: str) -> str:
        """Return a text parameter."""
        return str(self.context.parameters.get(name, default))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    async def think(self, mean_s: float | None = None) -> None:
        """Wait as a user does; the parameter `think_s` is the mean."""
        self.begin("thinking")
        mean_s = self.number("think_s", 0.3) if mean_s is None else mean_s
        await self.context.clock.sleep(min(self.rng.expovariate(1 / mean_s), 5 * mean_s) * 1000)

    # --- clients ----------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        """Return the options that all our clients accept."""
        context = self.context
        return {
            "client_id": self.who,
            "network": context.network,
            "clock": context.clock,
            "rng": context.rng,
            **context.client_options,
            "first_contact_ms": None,
            "request_timeout_ms": self.rng.choice((2_000, 3_000, 5_000)),
            "retry_backoff_ms": 50,
            "retry_backoff_max_ms": 1_000,
            "transaction_version_max": self.transaction_version,
        }

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap servers."""
        host, port = self.context.bootstrap
        return f"{host}:{port}"

    def opened(self, client: Closable) -> None:
        """Close `client` at the end of the run, unless `close` does so before."""
        self._open.append(client)

    async def close(self, client: Closable) -> None:
        """Close a client now."""
        self.begin(f"closing a {type(client).__name__}")
        if client in self._open:
            self._open.remove(client)
        await client.close()

    async def close_all(self) -> None:
        """Close all open clients."""
        for client in list(self._open):
            await self.close(client)


async def supervise(context: ClientContext, work: Callable[[Journal], Awaitable[None]]) -> None:
    """Run a client's work to its end, and record how it ended."""
    journal = Journal(context)

    async def run() -> None:
        await work(journal)
        await journal.close_all()

    task = asyncio.get_running_loop().create_task(run(), name=context.name)
    try:
        state = await _watch(journal, task)
    finally:
        task.cancel()
    if state != "settled":
        # Its senders would run forever.
        closing = asyncio.get_running_loop().create_task(journal.close_all())
        await asyncio.wait([closing], timeout=CLOSE_S)
        closing.cancel()
    journal.record(Progress, state)


async def _watch(journal: Journal, task: asyncio.Task[None]) -> str:
    """Wait for the end of `task`; return the client's final state."""
    clock = journal.context.clock
    seen, looks = -1, 0
    while True:
        begun_ms = clock.monotonic_ms()
        await asyncio.wait([task], timeout=WATCH_S)
        if task.done():
            return _ended(task)
        if journal.step != seen:
            seen, looks = journal.step, 0
        elif clock.monotonic_ms() - begun_ms < FROZEN_FACTOR * WATCH_S * 1000:
            looks += 1
        if looks >= STUCK_AFTER_LOOKS:
            return f"stuck: {journal.doing} does not end"


def _ended(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "stuck: CancelledError: out of nowhere"
    error = task.exception()
    if error is None:
        return "settled"
    return f"stuck: {type(error).__name__}: {error}{_place(error)}"


def _place(error: BaseException) -> str:
    """Return where the exception was raised, as " (file.py:function)", without the line number."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f" ({last.filename.rpartition('/')[2]}:{last.name})"

"""Asks for one group that no other client uses, so that every answer is known before it comes.

A scene sends requests on connections of its own, in random versions, one step after the other, and
compares each answer with a naive model. A request without an answer may have taken effect, or take
effect later; then the model is not sure any more, and the scene is over (`UnsureError`): the next
one has a new group. What changes nothing is asked again instead (`look`), so that a scene goes on
behind a restart of the broker.

A scene that is not sure although nothing was disturbed is a finding too. Losses that a setting
allows excuse a finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import BrokerDied, BrokerStarted, Fault
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import GROUP, Address, LostError, PeerWire

__all__ = ["PATIENT", "SLACK_MS", "Scene", "UnsureError", "WrongError"]

T = TypeVar("T")

PATIENT: Final = {"late": 0.0, "impatience": 0.0, "request_timeout_ms": 5_000}
"""Parameters of a client whose requests are late by faults only."""
SLACK_MS: Final = 150.0
"""How much later than its deadline something may happen while nothing is disturbed, in ms."""
_FAULT_S: Final = 4.0
"""How long a fault that does not say when it ends may have effects, in seconds."""
_RESTART_S: Final = 10.0
"""Time within which a broker serves again after a fault, in seconds."""
_LOOKS_MAX: Final = 40
_TEMPORARY: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
    }
)
_LOSSES: Final = frozenset({"flip-bit", "failed-read", "failed-write", "failed-fsync", "disk-full"})


class UnsureError(OncelogError):
    """The state of the group is not known any more."""


class WrongError(OncelogError):
    """An answer was wrong: the scene is over."""


class Scene:
    """One group; see the module.

    Parameters: `flushed` (every record is synced at once), `expects_answers` (the history has all
    that may keep an answer off).
    """

    def __init__(self, context: ClientContext, group_id: str) -> None:
        self.context = context.with_defaults(PATIENT)
        self.rng = context.rng
        self.group_id = group_id
        self.began_s = context.now_s()
        self._volatile_s: float | None = None
        self._wires: list[PeerWire] = []
        self._to: Address | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self.links: dict[PeerWire, Connection] = {}
        """The connection of the last request of each."""
        self.admin = self.wire("admin")

    def wire(self, name: str) -> PeerWire:
        """Return new connections, whose client id ends with this name."""
        named = self.context.named(f"{self.context.name}-{name}")
        wire = PeerWire(named, JAVA)
        self._wires.append(wire)
        return wire

    def close(self) -> None:
        """Close all connections, and wait for nothing."""
        for task in self._tasks:
            task.cancel()
        for wire in self._wires:
            wire.close()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Send a request that may wait."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(_look_at)
        self._tasks.append(task)
        return task

    async def still_wait(self, tasks: Iterable[asyncio.Task[Any]], what: str) -> None:
        """No answer may have come yet. Raises `UnsureError` for one that is lost."""
        for task in tasks:
            if task.done():
                self.expect(False, f"{await task} came {what}")

    # --- judging ----------------------------------------------------------------------

    def begin_volatile(self) -> None:
        """The group's state is in memory only: a restart of the broker changes it."""
        if self._volatile_s is None:
            self._volatile_s = self.context.now_s()

    def end_volatile(self) -> None:
        """The group's state is in the log."""
        self._volatile_s = None

    def expect(self, holds: bool, what: str) -> None:
        """Record a finding unless it holds or is excused; then the scene is over."""
        if holds:
            return
        if self._volatile_s is not None and any(
            died.at_s >= self._volatile_s for died in self.context.history.of(BrokerDied)
        ):
            raise UnsureError("the broker has died, and knows what is in its log")
        if not self._is_excused():
            self.context.stuck(f"{what}, in {self.group_id}")
        raise WrongError(what)

    def _is_excused(self) -> bool:
        """Whether a loss that the settings allow may have taken what the group was."""
        history, since_s = self.context.history, self.began_s - _RESTART_S
        is_lossy = any(
            fault.kind in _LOSSES and max(fault.at_s, fault.until_s) >= since_s
            for fault in history.of(Fault)
        )
        return is_lossy or any(
            died.cause == "power"
            and died.at_s >= since_s
            and not self.context.get("flushed", False)
            for died in history.of(BrokerDied)
        )

    @property
    def was_loaded(self) -> bool:
        """Whether a broker started since the scene began: it knows what is in its log."""
        started = self.context.history.of(BrokerStarted)
        return any(start.incarnation and start.at_s >= self.began_s for start in started)

    def is_disturbed(self, since_s: float) -> bool:
        """Whether a fault may have had effects since then (virtual time, in seconds)."""
        history = self.context.history
        ends_s = [max(fault.at_s, fault.until_s) for fault in history.of(Fault)]
        ends_s += [died.at_s for died in history.of(BrokerDied)]
        ends_s += [start.at_s for start in history.of(BrokerStarted) if start.incarnation]
        return any(end_s + _FAULT_S >= since_s for end_s in ends_s)

    def unsure(self, why: str) -> None:
        """Record that the scene is not sure, if no fault explains it."""
        is_due = self.context.get("expects_answers", False)
        if is_due and not self.is_disturbed(self.began_s - _RESTART_S):
            self.context.stuck(f"{why} without a fault, in {self.group_id}")

    # --- asking -----------------------------------------------------------------------

    async def coordinator(self) -> Address:
        """Return the group's coordinator. Raises `UnsureError`."""
        if self._to is None:
            self.admin.forget_coordinator(GROUP, self.group_id)
            self._to = await self.admin.coordinator(GROUP, self.group_id)
        if self._to is None:
            raise UnsureError("no coordinator is known")
        return self._to

    async def ask(
        self,
        wire: PeerWire,
        api: ApiKey,
        request: RequestFor[ResponseT],
        *,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> tuple[ResponseT, int]:
        """Return the answer and the version that was drawn. Raises `UnsureError`."""
        to = await self.coordinator()
        try:
            connection = await wire.open(to)
            newest = wire.version(connection, api, at_most)
            oldest = max(connection.support.versions[api][0], at_least)
            self.links[wire] = connection
            version = self.rng.randint(min(oldest, newest), newest)
            return await wire.ask(api, request, to=to, at_most=version), version
        except LostError as error:
            self._to = None
            raise UnsureError(f"{api.name} got no answer: {error}") from error

    def sure(self, code: ErrorCode) -> ErrorCode:
        """Return a code that says something about the group. Raises `UnsureError`."""
        if code in _TEMPORARY:
            self._to = None
            raise UnsureError(f"got {code.name}")
        return code

    async def look(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask for something that changes nothing until there is an answer."""
        for attempt in range(_LOOKS_MAX):
            try:
                return await ask()
            except UnsureError as error:
                self.unsure(str(error))
            await self.context.back_off(attempt)
        raise UnsureError("the coordinator stays away")

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> None:
        """Wait until something holds, which nothing but delays of the network keeps off."""
        deadline_s = self.context.elapsed_s() + _RESTART_S
        while not await holds():
            if self.context.elapsed_s() > deadline_s:
                raise UnsureError(f"waited in vain until {what}")
            await self.context.clock.sleep(10)

    # --- time -------------------------------------------------------------------------

    def now_ms(self) -> float:
        """Return the client's monotonic time in ms."""
        return self.context.clock.monotonic_ms()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Read the outcome of a request without a waiter, so that asyncio does not warn."""
    if not task.cancelled():
        task.exception()

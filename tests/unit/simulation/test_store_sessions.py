"""Sessions of the simulated store: what ends them, and what their owners know of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncelog.metadata import Conflict, Session, SessionExpired, StoreFailure
from oncelog.metadata.store import Changes
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import SimulatedStore, StoreConnection
from oncelog.simulation.trace import Trace
from tests.unit.metadata.contract import put

TIMEOUT_MS = 8_000
TIMEOUT_S = TIMEOUT_MS / 1000


class Context:
    """A store, and a process that has bound /bound to its session."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.store = SimulatedStore(random.Random(1), Trace(lambda: self.scheduler.now_s))
        self.owner = self.process("owner")
        self.session: Session
        self.run(self._register())

    @property
    def connection(self) -> StoreConnection:
        return self.store.of(self.owner)

    @property
    def is_bound(self) -> bool:
        """Whether the store still has the value."""
        return self.store.state.get("/bound") is not None

    def process(self, name: str) -> Process:
        return Process(self.scheduler, name, "10.0.0.1", random.Random(name))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it in the owner, for a second."""
        done: list[bool] = []

        async def noted() -> None:
            await work
            done.append(True)

        self.owner.spawn(noted())
        self.let_pass(1)
        assert done

    def let_pass(self, time_s: float) -> None:
        self.scheduler.run_until(self.scheduler.now_s + time_s)

    async def _register(self) -> None:
        self.session = await self.connection.open_session(TIMEOUT_MS)
        await put(self.connection, "/bound", b"1", session=self.session)


def kill(c: Context) -> None:
    c.owner.kill("kill")


def freeze(c: Context) -> None:
    c.owner.freeze()


def cut(c: Context) -> None:
    c.connection.cut()


def test_time_alone_ends_no_session() -> None:
    c = Context()
    c.let_pass(100 * TIMEOUT_S)
    assert c.is_bound
    assert c.session.is_alive


@pytest.mark.parametrize("silence", [kill, freeze, cut])
def test_a_silent_process_loses_its_session_after_the_timeout(
    silence: Callable[[Context], None],
) -> None:
    c = Context()
    silence(c)
    c.let_pass(0.7 * TIMEOUT_S)
    assert c.is_bound
    c.let_pass(0.6 * TIMEOUT_S)
    assert not c.is_bound


def test_a_short_silence_ends_no_session() -> None:
    c = Context()
    for begin, end in ((c.owner.freeze, c.owner.thaw), (c.connection.cut, c.connection.heal)):
        begin()
        c.let_pass(0.7 * TIMEOUT_S)
        end()
        c.let_pass(TIMEOUT_S)
    assert c.is_bound
    assert c.session.is_alive


def test_the_owner_learns_of_the_end_when_it_is_in_touch_again() -> None:
    for begin, end in (("freeze", "thaw"), ("cut", "heal")):
        c = Context()
        target: Any = c.owner if begin == "freeze" else c.connection
        getattr(target, begin)()
        c.let_pass(2 * TIMEOUT_S)
        assert c.session.is_alive
        getattr(target, end)()
        c.let_pass(TIMEOUT_S / 2)
        assert not c.session.is_alive


def test_an_owner_that_has_not_been_told_learns_of_the_end_by_a_bound_write() -> None:
    c = Context()
    c.store.expire(c.session.session_id)

    async def write() -> None:
        known = [c.session.is_alive]
        with pytest.raises(SessionExpired):
            await put(c.connection, "/bound", b"2", session=c.session)
        assert [*known, c.session.is_alive] == [True, False]
        await c.session.wait_ended()

    c.run(write())
    assert not c.is_bound


def test_the_time_without_a_store_counts_for_no_timeout() -> None:
    c = Context()
    c.store.go_away()
    c.let_pass(3 * TIMEOUT_S)
    c.store.heal()
    c.let_pass(3 * TIMEOUT_S)
    assert c.is_bound


def test_an_expired_session_ends_while_its_process_lives() -> None:
    c = Context()
    assert c.store.expire(c.session.session_id)
    assert not c.store.expire(c.session.session_id)
    assert not c.is_bound
    c.let_pass(TIMEOUT_S / 2)
    assert not c.session.is_alive


def test_a_session_that_is_closed_while_the_store_is_away_ends_by_time() -> None:
    c = Context()
    c.store.go_away()
    c.run(c.session.close())
    assert not c.session.is_alive
    c.store.heal()
    c.let_pass(0.7 * TIMEOUT_S)
    assert c.is_bound
    c.let_pass(0.6 * TIMEOUT_S)
    assert not c.is_bound


def test_only_the_process_that_is_cut_off_cannot_reach_the_store() -> None:
    c = Context()

    async def ask() -> None:
        with pytest.raises(StoreFailure, match="out of reach"):
            await c.connection.get("/bound")
        assert await c.store.of(c.process("other")).get("/bound") is not None

    c.connection.cut()
    c.run(ask())


def test_a_call_that_waits_fails_when_its_process_is_cut_off() -> None:
    c = Context()
    said: list[str] = []

    async def wait() -> None:
        with pytest.raises(StoreFailure, match="out of reach"):
            await c.connection.changes(1, wait_ms=60_000)
        said.append("failed")

    c.owner.spawn(wait())
    c.let_pass(1)
    c.connection.cut()
    c.let_pass(1)
    assert said == ["failed"]


def test_a_process_may_be_shown_less_than_there_is() -> None:
    c = Context()
    other = c.store.of(c.process("other"))

    async def read() -> None:
        seen = await c.connection.changes(0)
        c.connection.lag()
        await put(other, "/new", b"1")
        assert await c.connection.get("/new") is None
        assert list(await c.connection.list("/")) == ["/bound"]
        assert await c.connection.changes(seen.revision) == Changes(seen.revision, ())
        newest = await other.changes(0)
        assert await c.connection.changes(newest.revision) == Changes(newest.revision, ())
        c.connection.heal()
        assert list(await c.connection.list("/")) == ["/bound", "/new"]

    c.run(read())


def test_a_lagging_process_sees_what_it_has_written() -> None:
    """And what was there then, also where its write was refused."""
    c = Context()
    other = c.store.of(c.process("other"))

    async def write() -> None:
        c.connection.lag()
        await put(other, "/new", b"1")
        with pytest.raises(Conflict):
            await put(c.connection, "/new", b"2")
        assert await c.connection.get("/new") == (b"1", 1)
        await put(c.connection, "/mine", b"1")
        await put(other, "/newer", b"1")
        assert list(await c.connection.list("/")) == ["/bound", "/mine", "/new"]

    c.run(write())

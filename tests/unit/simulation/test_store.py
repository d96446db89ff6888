import random

import pytest

from oncelog.metadata.store import Conflict, StoreFailure
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import SimulatedStore
from oncelog.simulation.trace import Trace
from tests.unit.metadata.contract import put


class Context:
    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.store = SimulatedStore(random.Random(1), Trace(lambda: self.scheduler.now_s))

    def process(self, name: str) -> Process:
        return Process(self.scheduler, name, "10.0.0.1", random.Random(name))


def test_two_processes_share_a_store_and_receive_changes() -> None:
    c = Context()
    heard: list[object] = []

    async def read() -> None:
        store = c.store.of(reader)
        first = await store.changes(0, wait_ms=60_000)
        heard.append([entry.path for entry in first.entries])
        second = await store.changes(first.revision, wait_ms=1_000)
        heard.append([entry.path for entry in second.entries])

    async def write() -> None:
        await writer.clock.sleep(5_000)
        await put(c.store.of(writer), "/a", b"1")
        with pytest.raises(Conflict):
            await put(c.store.of(writer), "/a", b"2", 7)
        heard.append(await c.store.of(writer).list("/"))

    reader, writer = c.process("reader"), c.process("writer")
    reader.spawn(read())
    writer.spawn(write())
    c.scheduler.run_until(20)
    assert ["/a"] in heard
    assert [] in heard
    assert len(heard) == 3


@pytest.mark.parametrize("at_ms", [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0])
def test_no_write_is_missed_by_a_process_that_waits(at_ms: float) -> None:
    c = Context()
    heard_s: list[float] = []

    async def read() -> None:
        found = await c.store.of(reader).changes(0, wait_ms=60_000)
        assert [entry.path for entry in found.entries] == ["/a"]
        heard_s.append(c.scheduler.now_s)

    async def write() -> None:
        await writer.clock.sleep(at_ms)
        await put(c.store.of(writer), "/a", b"1")

    reader, writer = c.process("reader"), c.process("writer")
    reader.spawn(read())
    writer.spawn(write())
    c.scheduler.run_until(61)
    assert heard_s
    assert heard_s[0] < 1


def test_who_polls_hears_of_a_change_later_than_who_asks() -> None:
    c = Context()
    c.store.poll_pause_s = 0.1
    heard_s: list[float] = []
    asked: list[int] = []

    async def read() -> None:
        store = c.store.of(reader)
        for revision in range(20):
            await store.changes(revision, wait_ms=60_000)
            heard_s.append(c.scheduler.now_s - revision - 1)

    async def ask() -> None:
        for number in range(20):
            await writer.clock.sleep(1_000 * (number + 1) - c.scheduler.now_s * 1000)
            await put(c.store.of(writer), f"/{number}", b"1")
            asked.append(len((await c.store.of(other).changes(number)).entries))

    reader, writer, other = c.process("reader"), c.process("writer"), c.process("other")
    reader.spawn(read())
    writer.spawn(ask())
    c.scheduler.run_until(61)
    assert asked == [1] * 20
    assert min(heard_s) < 0.03
    assert 0.08 < max(heard_s) < 0.12


def test_calls_fail_while_the_store_is_away_and_wait_no_longer() -> None:
    c = Context()
    said: list[str] = []

    async def ask() -> None:
        with pytest.raises(StoreFailure, match="out of reach"):
            await c.store.of(process).changes(0, wait_ms=60_000)
        with pytest.raises(StoreFailure, match="out of reach"):
            await put(c.store.of(process), "/a", b"1")
        c.store.heal()
        await put(c.store.of(process), "/a", b"2")
        said.append("written")

    process = c.process("a")
    process.spawn(ask())
    c.scheduler.call_at(1.0, None, c.store.go_away)
    c.scheduler.run_until(2)
    assert said == ["written"]
    assert c.store.state.get("/a") == (b"2", 1)


def test_a_write_whose_answer_is_lost_was_made() -> None:
    c = Context()
    said: list[object] = []

    async def ask() -> None:
        store = c.store.of(process)
        said.append(await store.get("/a"))
        with pytest.raises(StoreFailure, match="answer"):
            await put(store, "/a", b"1")
        with pytest.raises(Conflict):
            await put(store, "/a", b"1")
        said.append(await store.get("/a"))

    process = c.process("a")
    c.store.answers_lost_count = 1
    process.spawn(ask())
    c.scheduler.run_until(1)
    assert said == [None, (b"1", 1)]


def test_a_slow_store_takes_longer_for_a_call_and_for_its_answer() -> None:
    c = Context()
    done_s: list[float] = []

    async def ask() -> None:
        await c.store.of(process).get("/a")
        done_s.append(c.scheduler.now_s)

    process = c.process("a")
    c.store.extra_s = 0.5
    process.spawn(ask())
    c.scheduler.run_until(2)
    assert 1.0 < done_s[0] < 1.01


def test_a_process_that_dies_in_a_call_may_have_written() -> None:
    written = set()
    for seed in range(20):
        c = Context()
        process = c.process(f"writer {seed}")
        process.spawn(put(c.store.of(process), "/a", b"1"))
        c.scheduler.run_until(0.0002 * (seed + 1))
        process.kill("kill")
        found: list[object] = []

        async def look(
            store: SimulatedStore = c.store, found: list[object] = found, c: Context = c
        ) -> None:
            found.append(await store.of(c.process("reader")).get("/a"))

        reader = c.process("reader")
        reader.spawn(look())
        c.scheduler.run_until(1)
        written.add(found[0] is not None)
    assert written == {True, False}

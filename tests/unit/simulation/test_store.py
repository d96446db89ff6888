import random

import pytest

from oncelog.metadata.store import Conflict
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

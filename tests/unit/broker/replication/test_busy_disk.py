"""What a follower asks its leader while its disk is at work for the last answer."""

from __future__ import annotations

from pathlib import Path

from tests.unit.broker.replication.scripted_leader import bench, following, given, records


async def test_what_is_synced_first_is_fetched_on_after_the_sync(tmp_path: Path) -> None:
    """A fetch offset is a promise: below it the leader commits (`flush.messages=1`)."""
    async with bench(tmp_path, topic={"flush.messages": "1"}) as broker:
        await broker.begin(following())
        asked = await broker.next()
        broker.disk_moves.clear()
        asked.answer(given(0, records(0, 3), high_watermark=3))
        await broker.rest()
        assert broker.asked.empty()
        assert broker.partition().state.high_watermark == 0
        broker.disk_moves.set()
        asked = await broker.next()
        assert asked.offsets == {0: 3}
        assert broker.partition().log.recovery_point == 3


async def test_a_disk_that_hangs_holds_up_its_own_partition_only(tmp_path: Path) -> None:
    config = {"replica.fetch.wait.max.ms": 30}
    async with bench(tmp_path, config, {"flush.messages": "2"}) as broker:
        await broker.begin(following(), following())
        asked = await broker.next()
        broker.disk_moves.clear()
        asked.answer(given(0, records(0, 3)), given(1, records(0, 1)))
        asked = await broker.next()
        assert asked.forgotten == {0}
        assert asked.offsets == {1: 1}
        broker.disk_moves.set()
        await broker.rest()
        asked.answer()
        assert (await broker.next()).offsets == {0: 3}


async def test_a_busy_disk_is_waited_for_before_the_next_fetch(tmp_path: Path) -> None:
    """Else that fetch would leave its partition out, and wait at the leader meanwhile."""
    async with bench(tmp_path, topic={"flush.messages": "2"}) as broker:
        await broker.begin(following(), following())
        asked = await broker.next()
        broker.disk_moves.clear()
        asked.answer(given(0, records(0, 3)), given(1, records(0, 1)))
        await broker.rest()
        assert broker.asked.empty()
        broker.disk_moves.set()
        asked = await broker.next()
        assert (asked.offsets, asked.forgotten) == ({0: 3, 1: 1}, set())

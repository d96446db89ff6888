"""A load counts once the high watermark has passed its end: a next leader may not have the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from tests.unit.broker.coordination.test_runtime import EPOCH, OTHER, PRODUCER, Bench, Put
from tests.unit.broker.support import ME, NOW_MS, TOPIC_ID, assignment


class Lagging(Bench):
    """A shard whose partition has records that its follower does not have yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (ME, OTHER))
        self.follow()
        self.ask(Put("id", b"a"))
        self.ask(Put("other", b"b"))
        self.epoch = 0

    async def load_again(self) -> None:
        """Lead anew; return when the log has been read."""
        self.epoch += 1
        self.partition.assign(assignment((ME, OTHER), epoch=self.epoch), 0)
        self.follow()
        while len(self.machines[-1].applied) < 2:  # noqa: ASYNC110 - the log is being read
            await asyncio.sleep(0)
        await self.turns()
        assert not self.runtime._load_turn.locked(), "what lags holds up no other load"

    async def turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def resign(self) -> None:
        self.epoch += 1
        self.partition.assign(assignment((ME, OTHER), leader=OTHER, epoch=self.epoch), 0)
        self.follow()

    def mark(self, producer_id: int = PRODUCER) -> None:
        """Another coordinator ends a transaction here."""
        self.partition.append_marker(
            producer_id, EPOCH, 0, commit=True, now_ms=NOW_MS, transaction_version=0
        )

    async def reach(self, offset: int) -> None:
        self.partition.follower_fetched(OTHER, offset, 0)
        await self.turns()


async def test_inv4_nothing_is_decided_on_a_record_that_is_not_committed(tmp_path: Path) -> None:
    bench = Lagging(tmp_path)
    bench.deleted["t"] = {TOPIC_ID: (ME,)}
    await bench.load_again()
    end = bench.partition.log.log_end_offset
    held = bench.ask(Put("id", b"c"))
    await bench.reach(end - 1)
    assert bench.runtime.look("id", Put("id")) is None
    assert bench.machines[-1].decided_ms == []
    await bench.reach(end)
    assert len(bench.machines[-1].decided_ms) == 2, "of the deletion, and then of the request"
    await bench.reach(bench.partition.log.log_end_offset)
    assert held.result == b"c"


async def test_a_request_is_held_no_longer_than_a_load_may_take(tmp_path: Path) -> None:
    bench = Lagging(tmp_path)
    await bench.load_again()
    held = bench.ask(Put("id", b"c"))
    bench.clock.at_ms += PARKED_REQUEST_WAIT_MS_MAX
    bench.runtime.clock_moved()
    assert held.result is ErrorCode.coordinator_load_in_progress


async def test_a_leadership_that_ends_while_its_load_waits_decides_nothing(tmp_path: Path) -> None:
    """Twice; what the shard then decides is by the log of its last leadership alone."""
    bench = Lagging(tmp_path)
    for _ in range(2):
        await bench.load_again()
        held = bench.ask(Put("id", b"c"))
        bench.resign()
        assert held.result is ErrorCode.not_coordinator
        await bench.turns()
        assert bench.machines[-1].decided_ms == []
    await bench.load_again()
    held = bench.ask(Put("id", b"c"))
    await bench.reach(2)
    await bench.reach(3)
    assert held.result == b"c"
    assert [len(machine.decided_ms) for machine in bench.machines] == [2, 0, 0, 1]


async def test_a_wait_that_was_given_up_harms_nobody_when_it_is_over(tmp_path: Path) -> None:
    """The same broker leads on under a newer epoch: the first load must not serve any more."""
    bench = Lagging(tmp_path)
    await bench.load_again()
    await bench.load_again()
    await bench.reach(2)
    bench.ask(Put("id", b"c"))
    assert [len(machine.decided_ms) for machine in bench.machines[1:]] == [0, 1]


async def test_inv6_a_marker_that_comes_while_a_load_waits_counts_once(tmp_path: Path) -> None:
    bench = Lagging(tmp_path)
    bench.mark(6)
    await bench.load_again()
    bench.mark(7)
    assert [marker.producer_id for marker in bench.machines[-1].markers] == [6]
    await bench.reach(4)
    assert [marker.producer_id for marker in bench.machines[-1].markers] == [6, 7]
    assert not bench.ask(Put("id", b"c")).done
    assert len(bench.machines[-1].decided_ms) == 1

"""Who a leader asks into the ISR and out of it, when, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.meters import IsrMeter
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.replication.isr import IsrKeeper
from oncelog.controller.events import AlterPartition, IsrChange, IsrOutcome
from oncelog.core.cluster_limits import ISR_ANSWER_MS_MAX, ISR_RETRY_MS
from oncelog.core.errors import ErrorCode
from oncelog.replication.replica import Assignment
from tests.fuzz.virtual import VirtualClock, VirtualLoop
from tests.support.logged import said_by
from tests.unit.broker.support import ME, NOW_MS, assignment, batch, make_partition

SECOND, THIRD = 2, 3
MY_LIFE, LIFE = 50, 60
LAG_MS = 30_000
Isr = tuple[tuple[int, int], ...]


class Controller:
    """It has the states of partitions, which their leader learns of before the answer."""

    def __init__(self, bench: Bench, states: list[Assignment]) -> None:
        self.states = states
        self.events: list[AlterPartition] = []
        self.refuses: ErrorCode | None = None
        self.loses_answers = False
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._bench = bench

    @property
    def asked(self) -> list[Isr]:
        """The ISRs that it was asked for."""
        return [each.changes[0].isr for each in self.events]

    @property
    def asked_of(self) -> list[list[int]]:
        """The partitions that each event is about."""
        return [[change.partition for change in each.changes] for each in self.events]

    async def submit(self, event: AlterPartition) -> tuple[IsrOutcome, ...]:
        self.events.append(event)
        await self.is_open.wait()
        return tuple(self._decide(each) for each in event.changes)

    def _decide(self, change: IsrChange) -> IsrOutcome:
        if self.refuses is not None:
            return IsrOutcome(self.refuses)
        if self.loses_answers:
            return IsrOutcome(ErrorCode.request_timed_out)
        if change.partition_epoch == self.states[change.partition].partition_epoch:
            self.write(change.partition, isr=frozenset(each for each, _ in change.isr))
        return IsrOutcome(ErrorCode.none)

    def write(self, number: int = 0, **fields: Any) -> None:
        """Write another state, of which the leader learns at once."""
        epoch = self.states[number].partition_epoch + 1
        self.states[number] = replace(self.states[number], partition_epoch=epoch, **fields)
        self._bench.take(self.states[number], number)


class Bench:
    """Partitions that this broker leads, their keeper, and the controller."""

    def __init__(self, folder: Path, loop: VirtualLoop, given: Assignment, count: int) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.bugs: list[object] = []
        loop.set_exception_handler(lambda _, context: self.bugs.append(context))
        self.partitions: list[Partition] = [
            make_partition(folder, loop, number=number)  # type: ignore[arg-type]
            for number in range(count)
        ]
        self.partition = self.partitions[0]
        self.controller = Controller(self, [given] * count)
        self.meter = IsrMeter()
        self.keeper = IsrKeeper(
            ME,
            lambda: MY_LIFE,
            self.controller.submit,
            self.clock,
            lag_max_ms=LAG_MS,
            on_bug=self.bugs.append,
            meter=self.meter,
        )
        for number in range(count):
            self.take(given, number)

    def take(self, given: Assignment, number: int = 0) -> None:
        partition = self.partitions[number]
        partition.assign(given, self.clock.monotonic_ms())
        if partition.state.is_leader:
            self.keeper.lead(partition)

    def append(self, count: int = 1) -> None:
        self.partition.append(batch(count), now_ms=NOW_MS)

    def fetch(
        self,
        follower: int = SECOND,
        offset: int | None = None,
        *,
        life: int = LIFE,
        start: int = 0,
        number: int = 0,
    ) -> None:
        partition = self.partitions[number]
        end = partition.log.log_end_offset
        partition.follower_fetched(
            follower,
            end if offset is None else offset,
            self.clock.monotonic_ms(),
            broker_epoch=life,
            log_start_offset=start,
        )

    async def turn(self, ms: float = 0) -> None:
        """Let so much time pass, and what is due happen."""
        await asyncio.sleep(ms / 1000)
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def isr(self) -> frozenset[int]:
        return self.partition.state.isr


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def led_by(given: Assignment, count: int = 1) -> Callable[[Test], Callable[[Path], None]]:
    """Run a test with so many partitions under virtual time."""

    def decorate(test: Test) -> Callable[[Path], None]:
        @wraps(test)
        def run(tmp_path: Path) -> None:
            loop = VirtualLoop()

            async def main() -> None:
                bench = Bench(tmp_path, loop, given, count)
                await test(bench)
                assert bench.bugs == []
                bench.keeper.close()
                for each in bench.partitions:
                    each.log.close()

            try:
                loop.run_until_complete(main())
            finally:
                loop.close()

        del run.__wrapped__
        return run

    return decorate


ALONE = assignment((ME,), (ME, SECOND, THIRD), epoch=1)
ALL = assignment((ME, SECOND, THIRD), epoch=1)


@led_by(ALONE)
async def test_who_has_caught_up_is_asked_into_the_isr(bench: Bench) -> None:
    bench.append(3)
    bench.fetch(offset=2)
    await bench.turn()
    assert bench.controller.events == []
    bench.fetch()
    await bench.turn()
    (event,) = bench.controller.events
    (change,) = event.changes
    assert (event.broker_id, event.broker_epoch) == (ME, MY_LIFE)
    assert (change.leader_epoch, change.partition_epoch) == (1, 0)
    assert change.isr == ((ME, MY_LIFE), (SECOND, LIFE))
    assert bench.isr == {ME, SECOND}
    assert (bench.meter.expands, bench.meter.shrinks, bench.meter.failures) == (1, 0, 0)


@led_by(ALONE)
async def test_who_still_has_deleted_records_is_not_asked_into_the_isr(bench: Bench) -> None:
    """As a leader it would bring them back."""
    bench.append(3)
    bench.partition.delete_records(2)
    bench.fetch(start=1)
    await bench.turn()
    assert bench.controller.events == []
    bench.fetch(start=2)
    await bench.turn()
    assert bench.isr == {ME, SECOND}


@led_by(ALONE)
async def test_one_request_at_a_time_carries_all_wishes(bench: Bench) -> None:
    bench.controller.is_open.clear()
    bench.fetch(SECOND)
    bench.fetch(THIRD)
    bench.fetch(SECOND)
    await bench.turn()
    assert len(bench.controller.events) == 1
    bench.controller.is_open.set()
    await bench.turn()
    assert bench.controller.asked[1:] == [((ME, MY_LIFE), (SECOND, LIFE), (THIRD, LIFE))]


@led_by(ALONE, 4)
async def test_partitions_are_asked_for_together_but_each_has_its_own_answer(bench: Bench) -> None:
    """One that waits, or that is led no more, holds up none behind it."""
    bench.controller.refuses = ErrorCode.invalid_update_version
    bench.controller.is_open.clear()
    for number in range(4):
        bench.fetch(number=number)
    await bench.turn()
    bench.take(replace(ALONE, leader=SECOND, leader_epoch=2), 1)
    bench.controller.is_open.set()
    await bench.turn()
    assert bench.controller.asked_of == [[0], [2, 3]]
    bench.controller.refuses = None
    await bench.turn(2 * ISR_RETRY_MS)
    assert [each.state.isr for each in bench.partitions] == [
        {ME, SECOND},
        {ME},
        {ME, SECOND},
        {ME, SECOND},
    ]
    assert (bench.meter.expands, bench.meter.shrinks, bench.meter.failures) == (3, 0, 3)


@led_by(ALONE)
async def test_nothing_is_asked_after_the_end(bench: Bench) -> None:
    """Not by the timer of what was refused, either."""
    bench.controller.refuses = ErrorCode.invalid_update_version
    bench.fetch()
    await bench.turn()
    bench.keeper.close()
    await bench.turn(10 * LAG_MS)
    assert len(bench.controller.events) == 1


@led_by(ALL)
async def test_who_lags_leaves_the_isr_within_one_and_a_half_times_the_lag(bench: Bench) -> None:
    bench.append()
    for _ in range(6):
        await bench.turn(LAG_MS / 4)
        bench.fetch(SECOND)
    await bench.turn()
    assert bench.controller.asked == [((ME, MY_LIFE), (SECOND, LIFE))]
    assert bench.isr == {ME, SECOND}
    assert bench.partition.state.high_watermark == 1
    assert (bench.meter.expands, bench.meter.shrinks, bench.meter.failures) == (0, 1, 0)


@led_by(ALL)
async def test_who_was_stopped_blames_no_follower_for_it(bench: Bench) -> None:
    """A breakpoint, or SIGSTOP: what the followers sent meanwhile is not read yet."""
    bench.append()
    bench.fetch(SECOND)
    bench.loop._virtual_selector.slept_s += 2 * LAG_MS / 1000
    bench.fetch(SECOND)
    await bench.turn(LAG_MS / 4)
    bench.fetch(THIRD)
    await bench.turn(LAG_MS / 2)
    assert bench.controller.events == []
    for _ in range(6):
        bench.fetch(SECOND)
        await bench.turn(LAG_MS / 4)
    assert bench.isr == {ME, SECOND}


@led_by(ALL)
async def test_who_has_lost_records_leaves_the_isr_at_once(bench: Bench) -> None:
    bench.append(4)
    bench.fetch(SECOND)
    bench.fetch(THIRD)
    bench.fetch(SECOND, offset=3)
    await bench.turn()
    assert bench.controller.asked == [((ME, MY_LIFE), (THIRD, LIFE))]
    assert bench.isr == {ME, THIRD}


def test_a_loss_of_records_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @led_by(ALL)
    async def lose(bench: Bench) -> None:
        bench.controller.is_open.clear()
        bench.append(4)
        for offset in (4, 3, 3, 4):
            bench.fetch(SECOND, offset=offset)
        await bench.turn(LAG_MS)
        bench.fetch(SECOND)

    with caplog.at_level(logging.ERROR):
        lose(tmp_path)
    (record,) = said_by(caplog)
    assert record.getMessage() == (
        "broker 2 has lost records of t-0 that it had fetched: it goes on at offset 3, "
        "and leaves the ISR"
    )


def test_a_loss_under_a_later_leadership_is_said_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @led_by(ALL)
    async def lose(bench: Bench) -> None:
        bench.append(4)
        for given in (ALL, replace(ALL, leader_epoch=3)):
            bench.take(given)
            bench.fetch(SECOND)
            bench.fetch(SECOND, offset=3)
            bench.take(replace(ALL, leader=SECOND, leader_epoch=2))
            await bench.turn(LAG_MS)

    with caplog.at_level(logging.ERROR):
        lose(tmp_path)
    assert len(said_by(caplog)) == 2


@led_by(ALONE)
async def test_inv1_an_addition_whose_answer_is_lost_counts(bench: Bench) -> None:
    """KIP-497: the controller may have added it, and elect it."""
    bench.controller.loses_answers = True
    bench.append(4)
    bench.fetch(SECOND)
    await bench.turn()
    bench.append()
    assert bench.partition.state.high_watermark == 4
    await bench.turn(60_000)
    assert bench.partition.state.high_watermark == 4
    bench.controller.write(min_insync_replicas=1)
    assert bench.partition.state.high_watermark == 5


@led_by(ALONE)
async def test_what_was_asked_is_asked_again_as_it_was_and_not_all_the_time(bench: Bench) -> None:
    bench.controller.loses_answers = True
    bench.fetch(SECOND)
    await bench.turn()
    for _ in range(15):
        bench.fetch(THIRD)
        await bench.turn(ISR_RETRY_MS / 10)
    assert bench.controller.asked == [((ME, MY_LIFE), (SECOND, LIFE))] * 2
    bench.controller.loses_answers = False
    await bench.turn(2 * ISR_RETRY_MS)
    assert bench.isr == {ME, SECOND}


@led_by(ALONE)
async def test_an_answer_that_never_comes_is_lost(bench: Bench) -> None:
    """The controller's office hangs: the others' wishes go on."""
    bench.controller.is_open.clear()
    bench.fetch(SECOND)
    await bench.turn(ISR_ANSWER_MS_MAX + 2 * ISR_RETRY_MS)
    assert len(bench.controller.events) == 2
    assert (bench.meter.expands, bench.meter.failures) == (0, 1)
    bench.controller.is_open.set()
    await bench.turn()
    assert bench.isr == {ME, SECOND}


@led_by(ALONE)
async def test_who_can_never_be_added_counts_no_more(bench: Bench) -> None:
    """KIP-903: it was registered anew since it caught up."""
    bench.controller.refuses = ErrorCode.ineligible_replica
    bench.append(4)
    bench.fetch(SECOND)
    await bench.turn()
    bench.append()
    assert bench.partition.state.high_watermark == 5
    waited: list[ErrorCode] = []
    bench.partition.on_committed(6, waited.append)
    bench.controller.is_open.clear()
    bench.fetch(SECOND)
    await bench.turn(2 * ISR_RETRY_MS)
    bench.fetch(SECOND)
    bench.append()
    await bench.turn()
    assert waited == []
    bench.controller.is_open.set()
    await bench.turn()
    assert waited == [ErrorCode.none]


@led_by(ALONE)
async def test_a_refused_follower_is_asked_for_in_its_next_life_at_once(bench: Bench) -> None:
    bench.controller.refuses = ErrorCode.ineligible_replica
    bench.fetch(SECOND)
    await bench.turn()
    bench.controller.refuses = None
    for follower in (SECOND, THIRD):
        bench.fetch(follower)
    await bench.turn()
    assert len(bench.controller.asked) == 1
    bench.append()
    bench.fetch(SECOND, life=LIFE + 1)
    await bench.turn()
    assert bench.controller.asked[1:] == [((ME, MY_LIFE), (SECOND, LIFE + 1))]
    assert bench.isr == {ME, SECOND}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.invalid_update_version,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_controller,
        ErrorCode.stale_broker_epoch,
        ErrorCode.unknown_topic_id,
    ],
)
def test_a_zombie_changes_nothing_and_asks_seldom(tmp_path: Path, error: ErrorCode) -> None:
    """A leader that was replaced and does not know it: its ISR stays as large as it was."""

    @led_by(ALL)
    async def ask(bench: Bench) -> None:
        bench.controller.refuses = error
        bench.append()
        await bench.turn(LAG_MS + LAG_MS / 2 + 1000)
        assert bench.isr == {ME, SECOND, THIRD}
        assert bench.partition.state.high_watermark == 0
        assert 2 <= len(bench.controller.events) <= 4
        bench.take(assignment((SECOND,), (ME, SECOND, THIRD), leader=SECOND, epoch=2))
        count = len(bench.controller.events)
        await bench.turn(10 * LAG_MS)
        assert len(bench.controller.events) == count

    ask(tmp_path)


@led_by(ALONE)
async def test_what_was_asked_before_a_move_is_asked_after_it(bench: Bench) -> None:
    bench.controller.loses_answers = True
    bench.fetch(SECOND)
    await bench.turn()
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    bench.controller.loses_answers = False
    bench.take(ALONE)
    await bench.turn()
    assert bench.controller.asked == [((ME, MY_LIFE), (SECOND, LIFE))] * 2
    assert bench.isr == {ME, SECOND}


@led_by(ALONE)
async def test_what_was_answered_in_vain_during_a_move_is_asked_after_it(bench: Bench) -> None:
    bench.controller.loses_answers = True
    bench.controller.is_open.clear()
    bench.fetch(SECOND)
    await bench.turn()
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    bench.controller.is_open.set()
    await bench.turn()
    bench.controller.loses_answers = False
    bench.take(ALONE)
    await bench.turn()
    assert bench.controller.asked == [((ME, MY_LIFE), (SECOND, LIFE))] * 2
    assert bench.isr == {ME, SECOND}


@led_by(ALONE)
async def test_a_newer_state_ends_the_pause_after_a_refusal(bench: Bench) -> None:
    bench.controller.refuses = ErrorCode.invalid_update_version
    bench.fetch(SECOND)
    await bench.turn()
    bench.controller.refuses = None
    bench.controller.write(min_insync_replicas=2)
    bench.fetch(SECOND)
    await bench.turn()
    assert [each.changes[0].partition_epoch for each in bench.controller.events] == [0, 1]
    assert bench.isr == {ME, SECOND}

"""What a shard decides in one step is written as one batch; shards take turns."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.shard import (
    AppendProducer,
    CoordinatorRecord,
    Decision,
    EventContext,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch
from oncelog.core.limits import COORDINATOR_APPEND_BYTES_MAX, TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX
from oncelog.protocol.batch import iter_headers
from oncelog.transaction.events import Notice, SendMarkers
from tests.unit.broker.coordination import test_markers
from tests.unit.broker.coordination.test_markers import PRODUCER, T0
from tests.unit.broker.coordination.test_runtime import EPOCH, OTHER, Bench, Memory, Put
from tests.unit.broker.support import ME, assignment


def led(bench: Bench) -> Any:
    return next(iter(bench.runtime._coordinators.values()))


def batches(bench: Bench) -> list[int]:
    """The counts of the records of each batch in the log."""
    log = bench.partition.log
    read = bytes(log.read_cold(0, 10**7, upper_bound=log.log_end_offset))
    return [header.record_count for _, header in iter_headers(read)]


def puts(count: int, producer_at: int = -1) -> list[Put]:
    producer = AppendProducer(PRODUCER, EPOCH)
    return [
        Put(f"id-{n}", f"k{n}".encode(), f"e{n}", producer if n == producer_at else None)
        for n in range(count)
    ]


async def test_what_several_events_append_is_one_batch_and_each_is_applied(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    led(bench).submit_all(puts(5))
    assert batches(bench) == [5]
    assert bench.machines[0].applied == [f"k{n}".encode() for n in range(5)]
    assert bench.effects == [f"e{n}" for n in range(5)]


class Twofold(Memory):
    """Decides two records and two effects at once."""

    def decide(self, event: Put, context: EventContext) -> Decision[Put, object, str]:
        decision = super().decide(event, context)
        more = CoordinatorRecord(b"more", b"v")
        return Decision(
            records=(*decision.records, more),
            replies=decision.replies,
            effects=(*decision.effects, "more"),
            id=decision.id,
        )


async def test_all_that_one_event_decides_is_written_and_carried_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.runtime.make_shard = lambda _: Twofold()
    bench.follow()
    assert bench.ask(Put("id", b"a", "effect")).result == b"a"
    assert batches(bench) == [2]
    assert bench.effects == ["effect", "more"]


class Impatient(Memory):
    def timed_out(self, event: Put, context: EventContext) -> Decision[Put, object, str]:
        return reply_at_once(context, ErrorCode.request_timed_out)


async def test_each_request_of_a_batch_is_answered_where_it_is_not_committed_in_time(
    tmp_path: Path,
) -> None:
    """A load has held them; once it is over they are written together."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.runtime.make_shard = lambda _: Impatient()
    bench.runtime.append_wait_ms_max = 700
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.partition.assign(assignment((ME, OTHER), epoch=1), 0)
    bench.follow()
    answers = [bench.ask(Put(f"id-{n}")) for n in range(3)]
    bench.partition.follower_fetched(OTHER, 1, 0)
    await bench.runtime.loaded()
    assert batches(bench) == [1, 3]
    bench.clock.at_ms += 700
    assert not any(answer.done for answer in answers)
    led(bench).tick()
    assert [answer.result for answer in answers] == [ErrorCode.request_timed_out] * 3


async def test_inv6_an_append_of_a_producer_has_a_batch_of_its_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    led(bench).submit_all(puts(5, producer_at=2))
    assert batches(bench) == [2, 1, 2]


async def test_a_batch_is_no_larger_than_the_topic_takes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    half = b"x" * (COORDINATOR_APPEND_BYTES_MAX // 2)
    led(bench).submit_all([Put(f"id-{n}", half) for n in range(3)])
    assert batches(bench) == [1, 1, 1]


async def test_a_batch_of_two_is_within_the_limit_with_its_header(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    log = bench.partition.log
    log.config = replace(log.config, max_message_bytes=1_000)
    for size in range(420, 480):
        end = log.log_end_offset
        led(bench).submit_all([Put(f"id-{n}", b"x" * size) for n in range(2)])
        assert log.log_end_offset == end + 2, f"{size} bytes each"
    assert set(batches(bench)) == {1, 2}


async def test_d2_nothing_of_a_batch_is_applied_before_it_is_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    led(bench).submit_all(puts(3))
    assert (batches(bench), bench.machines[0].applied, bench.effects) == ([3], [], [])
    bench.partition.follower_fetched(OTHER, 3, 0)
    assert bench.machines[0].applied == [b"k0", b"k1", b"k2"]
    assert bench.effects == ["e0", "e1", "e2"]


async def test_if_a_batch_cannot_be_written_each_of_its_decisions_has_failed(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    coordinator = led(bench)
    coordinator.submit_all(puts(3))
    assert bench.machines[0].applied == []
    assert not any(coordinator.processor.is_pending(f"id-{n}") for n in range(3))


async def test_what_is_due_in_several_shards_is_done_by_one_in_each_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    coordinator, order = led(bench), []

    class Shard:
        def __init__(self, name: str) -> None:
            self.name = name

        def tick(self, *, is_its_turn: bool) -> None:
            assert is_its_turn
            order.append(self.name)

    shards: list[Any] = [Shard("a"), Shard("b"), Shard("c")]
    for each in (*shards, shards[0]):
        bench.runtime.take_turn(each)
    turns = []
    for _ in range(4):
        await asyncio.sleep(0)
        turns.append("".join(order))
    assert turns == ["a", "ab", "abc", "abc"]
    assert coordinator is led(bench)


def owed(number: int) -> SendMarkers:
    return SendMarkers(f"id-{number}", PRODUCER, ProducerEpoch(0), 3, False, (T0,), 0)


async def test_so_many_markers_are_written_per_turn_and_reported_together(tmp_path: Path) -> None:
    bench: Any = test_markers.Bench(tmp_path)
    reported: list[int] = []
    bench.submit_all = lambda events: reported.append(len(events))
    most = TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX
    for number in range(most + 7):
        bench.writer.handle(bench, owed(number))
    await asyncio.sleep(0)
    assert reported == [most]
    await asyncio.sleep(0)
    assert reported == [most, 7]


async def test_lines_of_one_kind_are_one_line_per_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench: Any = test_markers.Bench(tmp_path)
    with caplog.at_level(logging.INFO, "oncelog.broker.coordination"):
        for turn in ((1, 2), (3,)):
            for number in turn:
                notice = Notice(f"{number} timed out", subject=f"id-{number}")
                bench.writer.handle(bench, notice)
            bench.writer.handle(bench, Notice("another"))
            await asyncio.sleep(0)
    first, together, second, alone = caplog.messages
    assert (first, second, alone) == ("another", "another", "3 timed out")
    assert together.endswith("transactional ids: id-1, id-2")

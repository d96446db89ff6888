"""The wall clock is set while a broker runs, or between two runs: nothing ends early for it, or
stays open longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.broker import Broker
from oncelog.controller.topics import TopicToCreate
from oncelog.coordinator.event_processor import CoordinatorState
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import offset_commit
from oncelog.protocol.messages.join_group import JoinGroupRequestProtocol
from oncelog.runtime.clock import SystemClock
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState
from tests.unit.broker.context import Client
from tests.unit.broker.raw import add_partition, init_producer, until

ID = "txn"
TIMEOUT_MS = 60_000
HOUR_MS = 3_600_000
MONTH_MS = 30 * 24 * HOUR_MS


class SetClock(SystemClock):
    """The machine's clocks, moved by a test."""

    __slots__ = ("passed_ms", "set_by_ms")

    def __init__(self) -> None:
        self.set_by_ms = 0
        """How far the wall clock was set."""
        self.passed_ms = 0
        """Time that passes at once, on both clocks."""

    def now_ms(self) -> int:
        return super().now_ms() + self.set_by_ms + self.passed_ms

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.passed_ms


class Run:
    """One run of the broker on a folder, its clock in the test's hand."""

    def __init__(self, broker: Broker, clock: SetClock, client: Client) -> None:
        self.broker = broker
        self.clock = clock
        self.client = client

    def sweep(self) -> None:
        """Have every shard look at what is due."""
        runtimes: tuple[Any, ...] = (self.broker.transactions, self.broker.groups)
        for runtime in runtimes:
            for coordinator in list(runtime._coordinators.values()):
                coordinator.clock_moved()

    def transaction(self) -> TransactionMetadata | None:
        for coordinator in self.broker.transactions._coordinators.values():
            shard = coordinator.processor.shard
            assert isinstance(shard, TransactionCoordinatorShard)
            if ID in shard.transactions:
                return shard.transactions[ID]
        return None

    def is_open(self) -> bool:
        found = self.transaction()
        return found is not None and found.state is TransactionState.ONGOING

    async def begin(self) -> None:
        given = await init_producer(self.client, ID, transaction_timeout_ms=TIMEOUT_MS)
        await add_partition(self.client, ID, given.producer_id, given.producer_epoch)
        assert self.is_open()


@asynccontextmanager
async def run(folder: Path, clock: SetClock) -> AsyncIterator[Run]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1",
    }
    broker = Broker(BrokerConfig(config), clock=clock)
    await broker.start()
    await broker.controller.create_topics([TopicToCreate("t")])
    for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        await broker.controller.internal_topic(topic)
    runtimes: tuple[Any, ...] = (broker.transactions, broker.groups)
    coordinators = [each for runtime in runtimes for each in runtime._coordinators.values()]
    await until(lambda: all(c.processor.state is CoordinatorState.ACTIVE for c in coordinators))
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield Run(broker, clock, client)
    finally:
        client.writer.close()
        await broker.stop()


async def test_a_clock_set_forward_aborts_no_transaction(tmp_path: Path) -> None:
    async with run(tmp_path, SetClock()) as context:
        await context.begin()
        context.clock.set_by_ms = HOUR_MS
        context.sweep()
        assert context.is_open()


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, -1, HOUR_MS])
async def test_a_transaction_times_out_in_time_wherever_the_clock_is_set(
    tmp_path: Path, set_by_ms: int
) -> None:
    async with run(tmp_path, SetClock()) as context:
        await context.begin()
        context.clock.set_by_ms = set_by_ms
        context.clock.passed_ms = TIMEOUT_MS + 100
        context.sweep()
        await until(lambda: not context.is_open())


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, HOUR_MS])
async def test_the_timeout_goes_on_after_a_restart_under_a_clock_that_was_set(
    tmp_path: Path, set_by_ms: int
) -> None:
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        clock.set_by_ms = set_by_ms
        await context.begin()
    async with run(tmp_path, clock) as context:
        context.sweep()
        assert context.is_open()
        clock.passed_ms += TIMEOUT_MS + 100
        context.sweep()
        await until(lambda: not context.is_open())


async def test_a_clock_set_back_between_two_runs_keeps_no_transaction_open(tmp_path: Path) -> None:
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        await context.begin()
    clock.set_by_ms = -HOUR_MS
    async with run(tmp_path, clock) as context:
        clock.passed_ms += TIMEOUT_MS + 100
        context.sweep()
        await until(lambda: not context.is_open())


async def test_an_id_used_after_the_clock_was_set_forward_is_not_idle(tmp_path: Path) -> None:
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        clock.set_by_ms = MONTH_MS
        await init_producer(context.client, ID, transaction_timeout_ms=TIMEOUT_MS)
        context.sweep()
        assert context.transaction() is not None
    async with run(tmp_path, clock) as context:
        context.sweep()
        assert context.transaction() is not None


async def test_offsets_committed_after_the_clock_was_set_forward_outlive_a_restart(
    tmp_path: Path,
) -> None:
    """A machine starts with a wrong clock, and is told the time a moment later."""
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        clock.set_by_ms = MONTH_MS
        part = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=(part,))
        asked = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": (topic,)}
        await context.client.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", **asked)
    async with run(tmp_path, clock) as context:
        clock.passed_ms += HOUR_MS
        context.sweep()
        context.sweep()
        (shard,) = context.broker.groups.shards()
        assert isinstance(shard, GroupCoordinatorShard)
        committed = shard.store.offsets.get("g", TopicPartition("t", 0))
        assert committed is not None
        assert committed.offset == 5


async def test_records_of_coordinators_carry_wall_time(tmp_path: Path) -> None:
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        clock.set_by_ms = HOUR_MS
        before_ms = clock.now_ms()
        await init_producer(context.client, ID, transaction_timeout_ms=TIMEOUT_MS)
        partition = context.broker.partitions.get(*TopicPartition(TRANSACTION_STATE_TOPIC, 0))
        assert partition is not None
        newest = partition.log.offset_for_timestamp(None)
        assert newest is not None
        assert newest.timestamp_ms >= before_ms


async def test_a_clock_set_forward_expires_no_member(tmp_path: Path) -> None:
    async with run(tmp_path, SetClock()) as context:
        protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
        joined = await context.client.ask(
            ApiKey.JOIN_GROUP,
            3,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        assert joined.error_code is ErrorCode.none
        context.clock.set_by_ms = HOUR_MS
        context.sweep()
        asked = {"group_id": "g", "member_id": joined.member_id}
        answer = await context.client.ask(
            ApiKey.HEARTBEAT, 3, generation_id=joined.generation_id, **asked
        )
        assert answer.error_code is ErrorCode.none


async def beat(client: Client, epoch: int, **fields: Any) -> Any:
    """A heartbeat of the new protocol; a member that joins says everything."""
    if epoch == 0:
        fields |= {
            "rebalance_timeout_ms": HOUR_MS,
            "subscribed_topic_names": ("t",),
            "topic_partitions": (),
        }
    member_id = fields.pop("member_id", "a")
    return await client.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        **fields,
    )


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, HOUR_MS])
async def test_a_clock_that_is_set_expires_no_member_of_a_consumer_group(
    tmp_path: Path, set_by_ms: int
) -> None:
    async with run(tmp_path, SetClock()) as context:
        joined = await beat(context.client, 0)
        assert joined.error_code is ErrorCode.none
        context.clock.set_by_ms = set_by_ms
        context.sweep()
        answer = await beat(context.client, joined.member_epoch)
        assert answer.error_code is ErrorCode.none
        context.clock.passed_ms = 46_000
        context.sweep()
        answer = await beat(context.client, joined.member_epoch)
        assert answer.error_code is ErrorCode.unknown_member_id


async def test_a_clock_set_back_between_two_runs_holds_up_no_assignment(tmp_path: Path) -> None:
    """The last target assignment was made in what is now the future."""
    clock = SetClock()
    async with run(tmp_path, clock) as context:
        assert (await beat(context.client, 0)).error_code is ErrorCode.none
    clock.set_by_ms = -HOUR_MS
    async with run(tmp_path, clock) as context:
        await beat(context.client, 0, member_id="b")
        clock.passed_ms += 2_000
        answer = await beat(context.client, 0, member_id="a")
        assert answer.member_epoch == 2

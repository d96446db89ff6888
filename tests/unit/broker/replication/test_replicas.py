"""Three brokers: their replicas agree byte for byte, whatever happened before.

The states of partitions are written into the store by the tests, as a controller would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.partitions.partition import Partition
from oncelog.client import Producer
from oncelog.controller.events import CreatePartitions
from oncelog.controller.layout import decode_state, encode_state, state_path
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Write
from tests.support.members import Cluster, members
from tests.unit.broker.support import NOW_MS, batch
from tests.unit.storage.context import read_all

QUICK = {"replica.fetch.backoff.ms": 20, "replica.fetch.wait.max.ms": 50}
ALL = (1, 2, 3)


async def create(
    cluster: Cluster, config: Mapping[str, str] | None = None, *, partitions: int = 1
) -> None:
    """Make topic `t` with a replica on each broker; broker 1 leads partition 0."""
    wanted = TopicToCreate("t", partitions, 3, config=config or {})
    (made,) = await office(cluster).create_topics([wanted])
    assert made.error is ErrorCode.none, made
    await cluster.agreed()


def office(cluster: Cluster) -> ControllerShell:
    """The controller: that of the broker that started last."""
    return list(cluster)[-1].broker.controller


async def elect(cluster: Cluster, leader: int, isr: tuple[int, ...] = ALL, number: int = 0) -> None:
    """Write a new leader epoch of a partition into the store."""
    path = state_path("t", number)
    stored = await cluster.store.get(path)
    assert stored is not None
    before = decode_state(stored.value)
    state = replace(
        before,
        leader=leader,
        leader_epoch=before.leader_epoch + 1,
        isr=isr,
        partition_epoch=before.partition_epoch + 1,
    )
    await cluster.store.write_all([Write(path, encode_state(state), stored.version)])


def replica(cluster: Cluster, broker_id: int, number: int = 0) -> Partition:
    found = cluster[broker_id].broker.partitions.get("t", number)
    assert found is not None
    return found


def append(cluster: Cluster, broker_id: int, count: int = 1, number: int = 0) -> None:
    """Append as the leader that this broker takes itself for."""
    held = replica(cluster, broker_id, number)
    assert held.state.is_leader
    assert held.append(batch(count), now_ms=NOW_MS).error is ErrorCode.none


async def follows(cluster: Cluster, leader: int, *others: int, number: int = 0) -> None:
    """Wait until these replicas are what the leader's is, byte for byte."""
    led = replica(cluster, leader, number)

    def is_same() -> bool:
        held = [replica(cluster, each, number) for each in others]
        return led.state.is_leader and all(
            each.log.log_end_offset == led.log.log_end_offset
            and each.state.leader_epoch == led.state.leader_epoch
            and each.state.high_watermark == led.state.high_watermark == led.log.log_end_offset
            for each in held
        )

    await cluster.until(is_same)
    end = led.log.log_end_offset
    for each in others:
        held = replica(cluster, each, number)
        assert read_all(held.log) == read_all(led.log)
        begun = [(epoch, at) for epoch, at in led.log.epochs.entries() if at < end]
        assert held.log.epochs.entries() == begun


@pytest.mark.parametrize("acks", ["all", 1])
async def test_followers_have_what_was_produced(acks: str | int) -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster, partitions=3)
        async with Producer(cluster[1].broker.bootstrap_servers, acks=acks) as producer:
            for value in range(30):
                await producer.send("t", b"%d" % value, partition=value % 3)
        for number, leader in enumerate(ALL):
            await follows(cluster, leader, *({*ALL} - {leader}), number=number)
            assert replica(cluster, leader, number).state.high_watermark == 10


async def test_replicas_agree_after_leaders_that_did_not_know_of_each_other() -> None:
    """Unreplicated records in several epochs (KIP-101, KIP-279)."""
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 5)
        await follows(cluster, 1, 2, 3)
        cluster[1].link.is_open.clear()
        await elect(cluster, 2, (2, 3))
        await cluster.until(lambda: replica(cluster, 2).state.is_leader)
        append(cluster, 1, 2)
        append(cluster, 1)
        append(cluster, 2, 3)
        await follows(cluster, 2, 3)
        cluster[2].link.is_open.clear()
        await elect(cluster, 3, (3,))
        await cluster.until(lambda: replica(cluster, 3).state.is_leader)
        append(cluster, 2, 4)
        append(cluster, 2)
        append(cluster, 3)
        for zombie in (1, 2):
            cluster[zombie].link.is_open.set()
        await follows(cluster, 3, 1, 2)
        assert replica(cluster, 3).state.high_watermark == 9
        await elect(cluster, 1)
        await follows(cluster, 1, 2, 3)
        append(cluster, 1)
        await follows(cluster, 1, 2, 3)


async def test_committed_records_stay_through_every_change_of_the_leader() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster, {"min.insync.replicas": "2"})
        async with Producer(cluster[1].broker.bootstrap_servers, acks="all") as producer:
            for leader in (2, 3, 1, 2):
                await producer.send("t", b"before %d" % leader)
                await elect(cluster, leader)
                await cluster.until(lambda at=leader: replica(cluster, at).state.is_leader)  # type: ignore[misc]
            await producer.send("t", b"last")
        await follows(cluster, 2, 1, 3)
        assert replica(cluster, 2).log.log_end_offset == 5


@pytest.mark.parametrize("ends", ["stop", "kill"])
async def test_a_follower_that_was_away_catches_up(ends: str) -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 3)
        await follows(cluster, 1, 2, 3)
        await getattr(cluster, ends)(2)
        append(cluster, 1, 4)
        await cluster.restart(2)
        await follows(cluster, 1, 2, 3)


async def test_a_leader_that_restarts_keeps_what_it_had() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 3)
        await follows(cluster, 1, 2, 3)
        await cluster.kill(1)
        await elect(cluster, 2, (2, 3))
        await follows(cluster, 2, 3)
        append(cluster, 2, 2)
        await cluster.restart(1)
        await cluster.until(lambda: not replica(cluster, 1).state.is_leader)
        await follows(cluster, 2, 1, 3)


async def test_the_log_start_moves_on_all_replicas() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 5)
        append(cluster, 1, 5)
        await follows(cluster, 1, 2, 3)
        replica(cluster, 1).delete_records(7)
        append(cluster, 1)
        await follows(cluster, 1, 2, 3)
        await cluster.until(lambda: replica(cluster, 3).log.log_start_offset == 7)
        assert replica(cluster, 2).log.log_start_offset == 7


async def test_a_follower_below_the_log_start_begins_again_there() -> None:
    """The leader's records were deleted up to the middle of a batch while it was away."""
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 3)
        await follows(cluster, 1, 2, 3)
        await cluster.kill(2)
        led = replica(cluster, 1)
        for _ in range(9):
            append(cluster, 1, 4)
            led.log.roll(led.log.log_end_offset)
        await elect(cluster, 1, (1, 3))
        await follows(cluster, 1, 3)
        led.delete_records(25)
        led.log.delete_old_segments(NOW_MS, 39)
        await cluster.restart(2)
        await cluster.until(lambda: replica(cluster, 2).log.log_end_offset == 39)
        held = replica(cluster, 2).log
        assert held.log_start_offset == 25
        assert held.segment_base_offsets == [23]
        assert read_all(held) == read_all(led.log)


async def test_new_partitions_are_followed() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        outcomes = await office(cluster).submit(CreatePartitions("t", 3))
        assert outcomes.error is ErrorCode.none
        await cluster.agreed()
        leader = cluster.leader_of("t", 2)
        await cluster.until(lambda: cluster[leader].broker.partitions.get("t", 2) is not None)
        append(cluster, leader, 2, number=2)
        await follows(cluster, leader, *({*ALL} - {leader}), number=2)


async def test_a_leader_that_forgot_the_session_is_followed_on() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1)
        await follows(cluster, 1, 2, 3)
        del cluster[1].broker.partitions.__dict__["follower_sessions"]
        append(cluster, 1)
        await follows(cluster, 1, 2, 3)


async def test_a_topic_made_again_while_a_replica_was_away_is_another() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster)
        append(cluster, 1, 9)
        await follows(cluster, 1, 2, 3)
        await cluster.kill(2)
        topic = cluster[1].broker.image.topics["t"]
        assert await office(cluster).delete_topic(topic.topic_id) is ErrorCode.none
        await cluster.agreed()
        await create(cluster)
        leader = 1
        await elect(cluster, leader, (1, 3))
        await cluster.until(lambda: replica(cluster, leader).state.leader_epoch > 0)
        append(cluster, leader, 2)
        await cluster.restart(2)
        await follows(cluster, leader, 2, 3)
        assert replica(cluster, 2).log.log_end_offset == 2


async def test_what_every_message_syncs_is_replicated_too() -> None:
    async with members(3, QUICK) as cluster:
        await create(cluster, {"flush.messages": "1"})
        async with Producer(cluster[1].broker.bootstrap_servers, acks="all") as producer:
            for value in range(5):
                await producer.send("t", b"%d" % value)
        await follows(cluster, 1, 2, 3)
        assert {replica(cluster, each).log.recovery_point for each in ALL} == {5}


async def test_a_killed_leader_is_replaced_and_follows_when_it_is_back() -> None:
    """By the controller's own elections."""
    async with members(3, QUICK) as cluster:
        await create(cluster, {"min.insync.replicas": "2"})
        async with Producer(cluster[2].broker.bootstrap_servers, acks="all") as producer:
            for turn in range(2):
                leader = cluster.leader_of("t", 0)
                append(cluster, leader, 2)
                await cluster.kill(leader)
                cluster.expire(leader)
                await cluster.until(lambda: cluster.leader_of("t", 0) not in (-1, leader))  # noqa: B023
                next_leader = cluster.leader_of("t", 0)
                await cluster.until(lambda: replica(cluster, next_leader).state.is_leader)  # noqa: B023
                sent = await producer.send("t", b"after %d" % turn)
                await cluster.restart(leader)
                await follows(cluster, next_leader, *({*ALL} - {next_leader}))
                assert replica(cluster, next_leader).log.log_end_offset == sent.offset + 1

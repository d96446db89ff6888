"""What one broker names the next one serves, though it has not read the metadata yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from oncelog.broker.controller import forwarding
from oncelog.broker.controller.office import EventVerdict
from oncelog.broker.membership import feed
from oncelog.controller.topics import TopicToCreate
from oncelog.core.cluster_limits import CATCH_UP_MS_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.metadata.store import Changes
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.logged import said_by
from tests.support.members import Cluster, Member, members
from tests.unit.broker.context import Client
from tests.unit.broker.test_several_brokers import asked, controller_of

SHORT_MS = 50


Ask: TypeAlias = Callable[[Client], Coroutine[Any, Any, ErrorCode]]


async def heartbeat(client: Client) -> ErrorCode:
    answer = await client.ask(ApiKey.HEARTBEAT, group_id="g", generation_id=1, member_id="m")
    return ErrorCode(answer.error_code)


async def init(client: Client) -> ErrorCode:
    answer = await client.ask(
        ApiKey.INIT_PRODUCER_ID, transactional_id="x", transaction_timeout_ms=9_000
    )
    return ErrorCode(answer.error_code)


async def commit_in_transaction(client: Client) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    answer = await client.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id="x",
        group_id="g",
        producer_id=5,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=CONSUMER_OFFSETS_TOPIC, partitions=(partition,)),),
    )
    return ErrorCode(answer.topics[0].partitions[0].error_code)


GROUP = (CONSUMER_OFFSETS_TOPIC, heartbeat, ErrorCode.unknown_member_id)
# No broker coordinates transactions: the group's coordinator has asked.
OFFSETS = (CONSUMER_OFFSETS_TOPIC, commit_in_transaction, ErrorCode.coordinator_not_available)
TRANSACTION = (TRANSACTION_STATE_TOPIC, init, ErrorCode.none)
APIS: dict[Ask, ApiKey] = {
    heartbeat: ApiKey.HEARTBEAT,
    commit_in_transaction: ApiKey.TXN_OFFSET_COMMIT,
    init: ApiKey.INIT_PRODUCER_ID,
}


@asynccontextmanager
async def elected(topic: str) -> AsyncIterator[tuple[Cluster, Member, Client]]:
    """A coordinator is killed; one broker names the next one, which has not heard of it."""
    async with members(3) as cluster:
        await controller_of(cluster).internal_topic(topic)
        await cluster.agreed()
        first, second, third = cluster[1].broker.image.topics[topic].partitions[0].replicas
        cluster[second].link.is_open.clear()
        await cluster.kill(first)
        cluster.expire(first)
        named = cluster[third].broker.image
        while named.topics[topic].partitions[0].leader != second:
            await asyncio.sleep(0.001)
            named = cluster[third].broker.image
        async with asked(cluster, second) as client:
            yield cluster, cluster[second], client


async def arrived(cluster: Cluster, member: Member, api: ApiKey, before: int = 0) -> None:
    """Return once the broker has got a request more."""
    await cluster.until(lambda: asked_count(member, api) > before)


def asked_count(member: Member, api: ApiKey) -> int:
    meters = member.broker.dispatcher.meters.items()
    return sum(meter.count for (key, _), meter in meters if key is api)


@pytest.mark.parametrize(("topic", "ask", "served"), [GROUP, OFFSETS, TRANSACTION])
async def test_a_coordinator_that_others_name_serves_once_it_has_heard(
    topic: str, ask: Ask, served: ErrorCode
) -> None:
    async with elected(topic) as (cluster, late, client):
        asking = asyncio.create_task(ask(client))
        await arrived(cluster, late, APIS[ask])
        assert not asking.done()
        late.link.is_open.set()
        assert await asking is served


async def test_several_requests_are_held_for_one_read() -> None:
    topic, ask, served = GROUP
    async with elected(topic) as (cluster, late, client), asked(cluster, late.broker_id) as other:
        store, reads_count = late.broker.feed.known, 0
        read = store.read

        async def counted() -> bool:
            nonlocal reads_count
            reads_count += 1
            return await read()

        store.read = counted  # type: ignore[method-assign]
        # The first one's read may begin before the others ask: these share the next one.
        tasks = [asyncio.create_task(ask(client))]
        await arrived(cluster, late, ApiKey.HEARTBEAT)
        tasks.append(asyncio.create_task(ask(other)))
        await arrived(cluster, late, ApiKey.HEARTBEAT, 1)
        connections = [asked(cluster, late.broker_id) for _ in range(3)]
        for each in connections:
            tasks.append(asyncio.create_task(ask(await each.__aenter__())))
        await arrived(cluster, late, ApiKey.HEARTBEAT, 4)
        late.link.is_open.set()
        assert await asyncio.gather(*tasks) == [served] * 5
        assert reads_count <= 3
        for each in connections:
            await each.__aexit__(None, None, None)


async def test_what_is_held_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CATCH_UP_MS_MAX", SHORT_MS)
    topic, ask, served = GROUP
    async with elected(topic) as (cluster, late, client):
        assert await ask(client) is ErrorCode.not_coordinator
        late.link.is_open.set()
        await cluster.agreed()
        assert await ask(client) is served


async def test_without_the_store_it_is_refused_at_once(caplog: pytest.LogCaptureFixture) -> None:
    topic, ask, _ = GROUP
    async with elected(topic) as (_, late, client):
        late.link.cut()
        late.link.is_open.set()
        assert await ask(client) is ErrorCode.not_coordinator
        assert late.broker.feed.health.failure is not None
    lines = [each.getMessage() for each in said_by(caplog) if each.levelno >= logging.ERROR]
    # One is of the broker that was killed.
    assert {line.partition(":")[0] for line in lines} == {
        "no metadata can be read or changed until the store answers"
    }


async def test_what_is_held_for_a_closed_connection_is_dropped() -> None:
    topic = TRANSACTION_STATE_TOPIC
    async with elected(topic) as (cluster, late, _):
        async with asked(cluster, late.broker_id) as gone:
            asking = asyncio.create_task(init(gone))
            await arrived(cluster, late, ApiKey.INIT_PRODUCER_ID)
            opened = set(late.broker.server.connections)
        asking.cancel()
        await cluster.until(lambda: bool(opened - late.broker.server.connections.keys()))
        late.link.is_open.set()
        await cluster.agreed()
        assert not late.broker.transactions._early
        (shard,) = late.broker.transactions.shards()
        assert shard.largest_producer_id == -1  # type: ignore[attr-defined]


async def test_a_lone_broker_refuses_without_reading() -> None:
    async with members(1) as cluster, asked(cluster, 1) as client:
        assert cluster[1].broker.groups.catch_up is None
        assert await heartbeat(client) is ErrorCode.not_coordinator


async def test_what_is_held_ends_with_the_coordinator_and_a_bug_ends_the_broker() -> None:
    async with members(1) as cluster, asked(cluster, 1) as client:
        broker = cluster[1].broker
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()
            raise RuntimeError("a bug")

        groups = broker.groups
        groups.catch_up = wait
        held = [groups.once_caught_up(lambda: None) for _ in range(2)]
        assert len(groups._early) == 2
        for task in [*groups._early]:
            task.cancel()
        await cluster.until(lambda: not groups._early)
        assert not any(each.done for each in held if each is not None)
        asking = asyncio.create_task(heartbeat(client))
        await arrived(cluster, cluster[1], ApiKey.HEARTBEAT)
        (task,) = groups._early
        gate.set()
        await cluster.until(lambda: isinstance(broker.stopped_because, RuntimeError))
        assert task not in groups._early
        asking.cancel()
        gate.clear()
        held = [groups.once_caught_up(lambda: None) for _ in range(2)]
        tasks = [*groups._early]
        await cluster.stop(1)
        await asyncio.sleep(0)
        assert all(each.cancelled() for each in tasks)


# ---- topics


def metadata_of(name: str) -> dict[str, Any]:
    return {"topics": (MetadataRequestTopic(name=name),), "allow_auto_topic_creation": False}


async def end_offset(client: Client, name: str) -> ErrorCode:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = (ListOffsetsTopic(name=name, partitions=(wanted,)),)
    answer = await client.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def test_a_topic_is_served_by_all_once_its_creation_is_answered() -> None:
    async with members(3) as cluster:
        for number, member in enumerate([*cluster] * 2):
            name = f"t{number}"
            new = TopicToCreate(name, 1, 3)
            (outcome,) = await member.broker.controller.create_topics([new])
            assert outcome.error is ErrorCode.none
            for other in cluster:
                async with asked(cluster, other.broker_id) as client:
                    answer = await client.ask(ApiKey.METADATA, 9, **metadata_of(name))
                    ((partition,),) = [topic.partitions for topic in answer.topics]
                async with asked(cluster, partition.leader_id) as client:
                    assert await end_offset(client, name) is ErrorCode.none
            topic_id = member.broker.image.topics[name].topic_id
            assert await member.broker.controller.delete_topic(topic_id) is ErrorCode.none
            assert not any(name in each.broker.image.topics for each in cluster)


async def test_a_creation_waits_for_the_folders_of_others() -> None:
    """A leader elsewhere serves what it is named for."""
    async with members(2) as cluster:
        late = cluster[2]
        gate = asyncio.Event()
        make = late.broker.partitions.make_folders

        async def held(work: Any) -> Any:
            await gate.wait()
            return await make(work)

        late.broker.partitions.make_folders = held  # type: ignore[method-assign]
        new = TopicToCreate("t", assignment={0: (2, 1)})
        creating = asyncio.create_task(cluster[1].broker.controller.create_topics([new]))
        await arrived(cluster, late, ApiKey.APPLIED_REVISION)
        assert not creating.done()
        gate.set()
        await creating
        async with asked(cluster, 2) as client:
            assert await end_offset(client, "t") is ErrorCode.none


async def test_a_broker_that_is_late_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CATCH_UP_MS_MAX", SHORT_MS)
    questions: list[int] = []
    ask = forwarding.Forwarding._applied_revision

    def counted(self: Any, broker_id: int, *asked: int) -> Any:
        questions.append(broker_id)
        return ask(self, broker_id, *asked)

    monkeypatch.setattr(forwarding.Forwarding, "_applied_revision", counted)
    async with members(3) as cluster:
        controller, late = cluster[1].broker.controller, cluster[3]
        late.link.is_open.clear()
        for name in ("a", "b", "c"):
            await controller.create_topics([TopicToCreate(name, 1, 2)])
            assert name in cluster[2].broker.image.topics
        assert questions.count(3) == 1
        late.link.is_open.set()
        await cluster.until(lambda: not controller._others()._waits)
        await controller.create_topics([TopicToCreate("d", 1, 2)])
        assert "d" in late.broker.image.topics
        assert not controller._others()._waits


async def test_a_broker_that_answers_from_older_metadata_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "CATCH_UP_MS_MAX", 1)
    async with members(2) as cluster:
        late = cluster[2]
        late.link.is_open.clear()
        new = [TopicToCreate("t", 1, 2)]
        creating = asyncio.create_task(cluster[1].broker.controller.create_topics(new))
        await arrived(cluster, late, ApiKey.APPLIED_REVISION, 2)
        assert not creating.done()
        late.link.is_open.set()
        await creating
        assert "t" in late.broker.image.topics


async def test_a_late_broker_is_asked_now_and_then_and_not_after_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "CATCH_UP_MS_MAX", 1)
    monkeypatch.setattr(forwarding, "CATCH_UP_MS_MAX", SHORT_MS)
    monkeypatch.setattr(forwarding, "APPLIED_LOOK_MS", 60_000)
    async with members(3, {"controlled.shutdown.enable": "false"}) as cluster:
        controller, late = cluster[1].broker.controller, cluster[3]
        late.link.is_open.clear()
        await controller.create_topics([TopicToCreate("t", 1, 2)])
        assert asked_count(late, ApiKey.APPLIED_REVISION) == 1
        waits = controller._others()._waits
        assert len(waits) == 1
        await cluster.stop(1)
        assert not waits


async def test_a_broker_that_stops_tells_its_clients_what_was_done() -> None:
    async with members(2) as cluster:
        controller, late = cluster[1].broker.controller, cluster[2]
        late.link.is_open.clear()
        creating = asyncio.create_task(controller.create_topics([TopicToCreate("t", 1, 1)]))
        await arrived(cluster, late, ApiKey.APPLIED_REVISION)
        assert not creating.done()
        await controller.close(at_once=True)
        (outcome,) = await creating
        assert outcome.error is ErrorCode.none
        assert "t" in cluster[1].broker.image.topics


async def test_a_broker_that_is_gone_is_not_waited_for() -> None:
    async with members(3) as cluster:
        await cluster.kill(3)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await cluster[1].broker.controller.create_topics([TopicToCreate("t", 1, 2)])
        assert loop.time() - began_s < CATCH_UP_MS_MAX / 1000


async def test_a_broker_reads_an_election_before_its_store_tells_of_it() -> None:
    async with members(3) as cluster:
        office = next(each for each in cluster if each.broker.controller.office.is_held)
        other, gone = (each for each in cluster if each is not office)
        changes, is_polled_again = other.link.changes, asyncio.Event()

        async def polled(after_revision: int, *, wait_ms: float = 0) -> Changes:
            if wait_ms:
                await is_polled_again.wait()
            return await changes(after_revision, wait_ms=wait_ms)

        other.link.changes = polled  # type: ignore[method-assign]
        # It hears of this one by the question that waits already, and then of no more.
        await office.broker.controller.create_topics([TopicToCreate("t", 3, 3)])
        await cluster.agreed()
        await gone.kill()
        gone.link.expire()
        await cluster.until(
            lambda: all(
                each.leader != gone.broker_id for each in other.broker.image.topics["t"].partitions
            )
        )
        is_polled_again.set()


async def test_a_change_that_is_not_decided_on_asks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with members(2) as cluster:
        office = next(each for each in cluster if each.broker.controller.office.is_held)
        (other,) = [each for each in cluster if each is not office]
        verdict = EventVerdict[Any](None, ErrorCode.request_timed_out, "the store is away")

        async def decide(event: object) -> EventVerdict[Any]:
            return verdict

        monkeypatch.setattr(office.broker.controller.office, "decide", decide)
        before = asked_count(other, ApiKey.APPLIED_REVISION)
        new = [TopicToCreate("t", 1, 2)]
        (outcome,) = await office.broker.controller.create_topics(new)
        assert outcome.error is ErrorCode.request_timed_out
        assert asked_count(other, ApiKey.APPLIED_REVISION) == before
        monkeypatch.undo()


async def test_no_other_is_told_of_an_election_by_a_lone_broker_or_after_the_end() -> None:
    async with members(2) as cluster:
        controller = cluster[1].broker.controller
        controller.office.on_elected(1 << 40)
        assert controller._reports
        await controller.close(at_once=True)
        controller.office.on_elected(1 << 40)
        assert not controller._reports
    async with members(1) as cluster:
        controller = cluster[1].broker.controller
        controller.office.on_elected(1 << 40)
        assert controller._forwarding is None

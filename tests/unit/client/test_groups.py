"""Our consumer in a group, against a broker in this process: what an application sees."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from oncelog import Admin, Consumer, EmbeddedBroker, NewTopic, Producer, TopicPartition
from oncelog.client import (
    AbortableError,
    CommitFailedError,
    IllegalStateError,
    OffsetAndMetadata,
    PartitionAssignor,
    RebalanceListener,
)
from oncelog.client.cluster import GROUP
from oncelog.client.machines.assignors import Assigned, SubscribedMember, range_assignor
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
PROTOCOLS = ("classic", "consumer")
_numbers = count()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(config=SETTINGS) as broker:
        yield broker.bootstrap_servers


async def filled(servers: str, records: int = 6, partitions: int = 2) -> str:
    """A new topic with numbered records, in turn in its partitions."""
    name = f"filled-{next(_numbers)}"
    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topics([NewTopic(name, partitions)])
        for number in range(records):
            producer.send(name, b"%d" % number, partition=number % partitions)
        await producer.flush()
    return name


@asynccontextmanager
async def member(servers: str, group: str, **options: Any) -> AsyncIterator[Consumer]:
    options.setdefault("heartbeat_interval_ms", 50)
    async with Consumer(servers, group_id=group, **options) as consumer:
        yield consumer


async def read(consumer: Consumer, wanted: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20):
        while len(found) < wanted:
            found += [int(record.value or b"") for record in await consumer.poll(100)]
    return sorted(found)


async def committed(servers: str, group: str) -> dict[int, int]:
    async with Admin(servers) as admin:
        found = await admin.group_offsets(group)
    return {at.partition: offset.offset for at, offset in found.items()}


async def expelled(servers: str, group: str) -> None:
    """Wait until the group has no member any more."""
    async with asyncio.timeout(20), Admin(servers) as admin:
        while (await admin.describe_group(group)).members:
            pass


class Told(RebalanceListener):
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[int]]] = []

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.changes.append(("revoked", [at.partition for at in partitions]))

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.changes.append(("assigned", [at.partition for at in partitions]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_close_commits_what_was_read_and_tells_the_listener(
    servers: str, protocol: str
) -> None:
    topic, told = await filled(servers), Told()
    async with member(servers, topic, group_protocol=protocol) as consumer:
        consumer.subscribe([topic], listener=told)
        assert await read(consumer, 6) == list(range(6))
        assert consumer.subscription() == [topic]
        assert told.changes == [("assigned", [0, 1])]
    assert told.changes[1:] == [("revoked", [0, 1])]
    assert await committed(servers, topic) == {0: 3, 1: 3}


async def test_what_a_poll_returned_is_committed_by_a_later_one(servers: str) -> None:
    topic = await filled(servers, partitions=1)
    async with member(servers, topic, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe([topic])
        assert len(await consumer.poll(5_000, 2)) == 2
        await consumer.poll(0, 1)
        async with asyncio.timeout(10):
            while (await committed(servers, topic)).get(0, 0) < 2:
                await consumer.poll(0, 1)


async def test_without_automatic_commits_nothing_is_committed(servers: str) -> None:
    topic = await filled(servers)
    async with member(servers, topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        await read(consumer, 6)
    assert await committed(servers, topic) == {}


async def test_a_consumer_that_assigns_commits_only_if_it_is_asked_to(servers: str) -> None:
    topic = await filled(servers, partitions=1)
    for wanted, expected in ((None, {}), (True, {0: 6})):
        async with member(servers, topic, enable_auto_commit=wanted) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await read(consumer, 6)
        assert await committed(servers, topic) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_pattern_finds_topics_that_come_later(servers: str, protocol: str) -> None:
    first = await filled(servers, 2, 1)
    options = {"group_protocol": protocol, "metadata_max_age_ms": 50}
    async with member(servers, first, **options) as consumer:
        # Compiled: the client matches it. The broker looks at an expression every 10 s only.
        consumer.subscribe(pattern=re.compile(f"{first}(-later)?"))
        assert await read(consumer, 2) == [0, 1]
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topics([NewTopic(f"{first}-later", 1)])
            await producer.send(f"{first}-later", b"7")
        assert await read(consumer, 1) == [7]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_expression_is_matched_whole(servers: str, protocol: str) -> None:
    topic = await filled(servers, 2, 1)
    async with member(servers, topic, group_protocol=protocol) as consumer:
        consumer.subscribe(pattern=f"{topic}|filled")
        assert await read(consumer, 2) == [0, 1]
        assert consumer.assignment() == [TopicPartition(topic, 0)]
        assert consumer.subscription() == []
        with pytest.raises(ValueError, match="or a pattern"):
            consumer.subscribe()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_another_subscription_replaces_the_first(servers: str, protocol: str) -> None:
    first, second = await filled(servers, 2, 1), await filled(servers, 3, 1)
    async with member(servers, first, group_protocol=protocol) as consumer:
        consumer.subscribe([first])
        assert await read(consumer, 2) == [0, 1]
        consumer.subscribe([second])
        assert await read(consumer, 3) == [0, 1, 2]
        assert consumer.assignment() == [TopicPartition(second, 0)]
        await consumer.unsubscribe()
        assert consumer.assignment() == []
        with pytest.raises(IllegalStateError, match="call subscribe or assign"):
            await consumer.poll(0)


async def test_paused_partitions_stay_and_return_nothing(servers: str) -> None:
    topic = await filled(servers)
    async with member(servers, topic) as consumer:
        consumer.subscribe([topic])
        assert len(await consumer.poll(5_000, 1)) == 1
        zero, one = consumer.assignment()
        consumer.pause([zero])
        seen = [record for _ in range(3) for record in await consumer.poll(50)]
        assert {record.partition for record in seen} <= {1}
        assert consumer.paused() == [zero]
        consumer.resume([zero])
        assert {record.partition for record in await consumer.poll(5_000)} == {0}
        assert one in consumer.assignment()


async def test_a_member_of_a_group_that_is_gone_cannot_commit_and_comes_back(servers: str) -> None:
    topic = await filled(servers)
    options = {"enable_auto_commit": False, "heartbeat_interval_ms": 2_000}
    async with member(servers, topic, **options) as consumer:
        consumer.subscribe([topic])
        await read(consumer, 6)
        leaving = (MemberIdentity(member_id=consumer.group_metadata().member_id),)
        request = LeaveGroupRequest(group_id=topic, members=leaving)
        async with Admin(servers) as admin:
            await admin._cluster.ask_coordinator(GROUP, topic, ApiKey.LEAVE_GROUP, request)
            await admin.delete_group(topic)
        with pytest.raises(CommitFailedError, match="poll again"):
            await consumer.commit()
        assert await read(consumer, 6) == list(range(6))
        await consumer.commit()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_expelled_member_cannot_commit_and_comes_back(servers: str, protocol: str) -> None:
    topic, told = await filled(servers), Told()
    options = {"group_protocol": protocol, "max_poll_interval_ms": 300}
    async with member(servers, topic, enable_auto_commit=False, **options) as consumer:
        consumer.subscribe([topic], listener=told)
        await read(consumer, 6)
        await expelled(servers, topic)
        with pytest.raises(CommitFailedError, match="poll again"):
            await consumer.commit()
        # A listener without a method for lost partitions is told of a revocation.
        assert await read(consumer, 6) == list(range(6))
        assert told.changes == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [0, 1])]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_offsets_of_a_lost_membership_abort_the_transaction(
    servers: str, protocol: str
) -> None:
    """KIP-447: a commit that names the member fails once the group goes on without it."""
    topic = await filled(servers)
    async with (
        Producer(servers, transactional_id=f"{topic}-{protocol}") as producer,
        member(servers, topic, group_protocol=protocol, enable_auto_commit=False) as consumer,
    ):
        await producer.init_transactions()
        consumer.subscribe([topic])
        await read(consumer, 6)
        old = consumer.group_metadata()
        await producer.begin_transaction()
        positions = await consumer.positions()
        with pytest.raises(AbortableError):
            await producer.send_offsets_to_transaction(positions, old._replace(generation=99))
        await producer.abort_transaction()
        consumer.seek_to_committed()
        assert await read(consumer, 6) == list(range(6))
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(
            await consumer.positions(), consumer.group_metadata()
        )
        await producer.commit_transaction()
    assert await committed(servers, topic) == {0: 3, 1: 3}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_expelled_member_cannot_commit_in_a_transaction(
    servers: str, protocol: str
) -> None:
    """KIP-447: without a generation and a member id the coordinator would check nothing."""
    topic = await filled(servers)
    options = {"group_protocol": protocol, "max_poll_interval_ms": 300}
    async with (
        Producer(servers, transactional_id=f"{topic}-{protocol}") as producer,
        member(servers, topic, enable_auto_commit=False, **options) as consumer,
    ):
        await producer.init_transactions()
        consumer.subscribe([topic])
        await read(consumer, 6)
        positions = await consumer.positions()
        await expelled(servers, topic)
        await producer.begin_transaction()
        with pytest.raises(AbortableError):
            await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        await producer.abort_transaction()
    assert await committed(servers, topic) == {}


class LastFirst:
    """An assignor of one's own: all partitions to the member with the greatest id."""

    name = "last-first"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        last = max(members, key=lambda each: each.member_id)
        empty: Assigned = {each.member_id: [] for each in members}
        return empty | range_assignor([last], counts)


async def test_an_assignor_of_ones_own_decides(servers: str) -> None:
    topic = await filled(servers)
    assert isinstance(LastFirst(), PartitionAssignor)
    options = {"partition_assignment_strategy": LastFirst()}
    async with member(servers, topic, **options) as one, member(servers, topic, **options) as two:
        one.subscribe([topic])
        two.subscribe([topic])

        def are_together() -> bool:
            """Whether both are in one generation; a member has an id before it joins."""
            generations = {each.group_metadata().generation for each in (one, two)}
            return len(generations) == 1 and len(one.assignment() + two.assignment()) == 2

        async with asyncio.timeout(20):
            while not are_together():
                await asyncio.gather(one.poll(50), two.poll(50))
        owner = max((one, two), key=lambda each: each.group_metadata().member_id)
        assert len(owner.assignment()) == 2


async def test_an_error_of_an_assignor_of_ones_own_is_raised_by_poll(servers: str) -> None:
    class Broken(LastFirst):
        def assign(self, members: object, counts: object) -> Assigned:
            raise LookupError("no idea")

    topic = await filled(servers)
    async with member(servers, topic, partition_assignment_strategy=Broken()) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(LookupError, match="no idea"):
            await consumer.poll(10_000)


async def test_subscribe_and_assign_exclude_each_other(servers: str) -> None:
    topic = await filled(servers)
    async with member(servers, topic) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(IllegalStateError, match="assign none before subscribe"):
            consumer.subscribe([topic])
        consumer.assign([])
        consumer.subscribe([topic])
        with pytest.raises(IllegalStateError, match="unsubscribe before assign"):
            consumer.assign([TopicPartition(topic, 0)])
    async with Consumer(servers) as alone:
        with pytest.raises(IllegalStateError, match="no group_id"):
            alone.subscribe([topic])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partition_assignment_strategy": "fair"}, "must be one of range, roundrobin"),
        ({"group_protocol": "new"}, "must be classic or consumer"),
        ({"heartbeat_interval_ms": 45_000}, "must be below session_timeout_ms"),
    ],
)
def test_wrong_settings_of_a_group_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Consumer("localhost:1", group_id="g", **options)


async def test_javas_names_of_assignors_are_understood(servers: str) -> None:
    settings = {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer."
        "CooperativeStickyAssignor, RoundRobinAssignor",
        "group.protocol": "CLASSIC",
    }
    topic = await filled(servers)
    async with member(servers, topic, **settings) as consumer:
        consumer.subscribe([topic])
        assert await read(consumer, 6) == list(range(6))
    async with Admin(servers) as admin:
        await admin.alter_group_offsets(topic, {TopicPartition(topic, 0): OffsetAndMetadata(0)})

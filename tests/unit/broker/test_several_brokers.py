"""What clients see of several brokers: whoever is asked, the answer is the same."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import permutations
from types import MappingProxyType
from typing import Any

import pytest

from oncelog.broker.controller.shell import ControllerShell
from oncelog.client import Admin, Consumer, Producer
from oncelog.controller import layout
from oncelog.controller.events import ElectLeaders
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.metadata.changes import change_value
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.fetch import parse_fetch_response
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsTopic
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from oncelog.protocol.produce import parse_produce_response
from tests.support.members import UNTIL_TIMEOUT_S, Cluster, members
from tests.unit.broker.context import Client
from tests.unit.broker.raw import send_fetch, send_produce
from tests.unit.broker.support import batch

IDS = (1, 2, 3)


@asynccontextmanager
async def asked(cluster: Cluster, broker_id: int) -> AsyncIterator[Client]:
    """A connection to one broker."""
    host, _, port = cluster[broker_id].broker.bootstrap_servers.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.close()


async def ask_each(cluster: Cluster, api: ApiKey, version: int | None = None, **fields: Any) -> Any:
    """Ask every broker that runs of one revision, check that all say the same, and return that."""
    answers: list[Any] = []
    revision, before = await cluster.agreed(), -1
    async with asyncio.timeout(UNTIL_TIMEOUT_S):
        while revision != before:
            answers.clear()
            for member in cluster:
                async with asked(cluster, member.broker_id) as client:
                    answers.append(await client.ask(api, version, **fields))
            revision, before = await cluster.agreed(), revision
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


def controller_of(cluster: Cluster) -> ControllerShell:
    """The broker that holds the office."""
    return cluster[next(iter(cluster)).broker.image.controller_id].broker.controller


async def create(cluster: Cluster, name: str, replicas: int | tuple[int, ...]) -> None:
    new = TopicToCreate(name, 1, replicas) if isinstance(replicas, int) else None
    if new is None:
        assert not isinstance(replicas, int)
        new = TopicToCreate(name, assignment={0: replicas})
    (outcome,) = await controller_of(cluster).create_topics([new])
    assert outcome.error is ErrorCode.none, outcome
    await cluster.agreed()


def isr_of(cluster: Cluster, name: str) -> tuple[int, ...]:
    """The ISR as the first broker that runs has applied it."""
    return next(iter(cluster)).broker.image.topics[name].partitions[0].isr


async def rewrite(cluster: Cluster, name: str, **fields: Any) -> None:
    """Write another state of a topic's partition into the store, as a controller would."""
    image = next(iter(cluster)).broker.image
    topic = image.topics[name]
    epoch = topic.partitions[0].partition_epoch + 1
    topic = replace(
        topic, partitions=(replace(topic.partitions[0], partition_epoch=epoch, **fields),)
    )
    state = layout.encode_state(topic.partitions[0], image.controller_epoch)
    await change_value(cluster.store, layout.topic_path(name), lambda _: layout.encode_topic(topic))
    await change_value(cluster.store, layout.state_path(name, 0), lambda _: state)
    await cluster.agreed()


async def partition_of(cluster: Cluster, name: str, version: int | None = None) -> Any:
    topics = (MetadataRequestTopic(name=name),)
    answer = await ask_each(cluster, ApiKey.METADATA, version, topics=topics)
    ((partition,),) = [topic.partitions for topic in answer.topics]
    return partition


async def test_every_broker_names_all_brokers_with_their_racks() -> None:
    async with members(3, starts=False) as cluster:
        for broker_id in reversed(IDS):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        for version in (1, ADVERTISED[ApiKey.METADATA].max):
            answer = await ask_each(cluster, ApiKey.METADATA, version, topics=None)
            found = [(each.node_id, each.port, each.rack) for each in answer.brokers]
            assert found == [(each, cluster[each].port, f"rack-{each}") for each in IDS]
            assert answer.controller_id in IDS
        described = await ask_each(cluster, ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)
        assert [(each.broker_id, each.port, each.rack) for each in described.brokers] == found
        assert described.controller_id == answer.controller_id


async def named(cluster: Cluster) -> set[tuple[int, ...]]:
    """The brokers that each broker names; it names no other one as a controller or a replica."""
    await cluster.agreed()
    found = set()
    for member in cluster:
        async with asked(cluster, member.broker_id) as client:
            told = await client.ask(ApiKey.METADATA, topics=None)
            described = await client.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=1)
        brokers = tuple(each.node_id for each in told.brokers)
        assert brokers == tuple(each.broker_id for each in described.brokers)
        ((partition,),) = [topic.partitions for topic in told.topics]
        roles = {told.controller_id, described.controller_id, partition.leader_id}
        assert roles | set(partition.isr_nodes) <= {-1, *brokers}
        found.add(brokers)
    return found


@pytest.mark.parametrize("order", list(permutations(IDS)), ids=str)
async def test_no_broker_names_one_that_is_gone_whatever_started_when(
    order: tuple[int, ...],
) -> None:
    first, second, third = order
    left = tuple(sorted((second, third)))
    async with members(3, starts=False) as cluster:
        await cluster.start(first, second)
        await create(cluster, "t", 2)
        await cluster.kill(first)
        # It begins while the session of the dead one, which is the controller, goes on.
        starting = asyncio.create_task(cluster[third].start())
        await cluster.until(lambda: third in cluster[second].broker.image.brokers)
        cluster.expire(first)
        await starting
        assert await named(cluster) == {left}
        await cluster.restart(second)
        assert await named(cluster) == {left}
        await cluster.start(first)
        assert await named(cluster) == {IDS}


async def test_a_replica_that_is_not_registered_is_off_line() -> None:
    async with members(1) as cluster:
        await create(cluster, "t", 1)
        await rewrite(cluster, "t", replicas=(1, 9), isr=(1, 9))
        for version in (5, ADVERTISED[ApiKey.METADATA].max):
            found = await partition_of(cluster, "t", version)
            assert (found.leader_id, found.error_code) == (1, ErrorCode.none)
            assert (found.replica_nodes, found.offline_replicas) == ((1, 9), (9,))
        found = await partition_of(cluster, "t", 0)
        assert (found.leader_id, found.error_code) == (1, ErrorCode.replica_not_available)
        assert (found.replica_nodes, found.isr_nodes) == ((1,), (1,))


async def test_a_leader_that_is_not_registered_is_none() -> None:
    async with members(1) as cluster:
        await create(cluster, "t", 1)
        await rewrite(cluster, "t", leader=9, leader_epoch=1, replicas=(9,), isr=(9,))
        for version in range(ADVERTISED[ApiKey.METADATA].max + 1):
            found = await partition_of(cluster, "t", version)
            assert (found.leader_id, found.error_code) == (-1, ErrorCode.leader_not_available)
            assert found.isr_nodes == ()
        answer = await ask_each(
            cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics=(DescribeTopicPartitionsTopic(name="t"),),
        )
        ((found,),) = [topic.partitions for topic in answer.topics]
        assert (found.leader_id, found.error_code) == (-1, ErrorCode.leader_not_available)
        assert found.offline_replicas == (9,)
        # Whoever counts the ISR sees that one is missing, and who may lead: as in Kafka.
        assert (found.isr_nodes, found.eligible_leader_replicas) == ((), (9,))


async def test_eligible_and_last_known_replicas_are_described() -> None:
    async with members(1) as cluster:
        await create(cluster, "t", 1)
        suspects = MappingProxyType({9: (0, 5)})
        await rewrite(cluster, "t", replicas=(1, 8, 9), isr=(1,), eligible=(8,), suspects=suspects)
        answer = await ask_each(
            cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics=(DescribeTopicPartitionsTopic(name="t"),),
        )
        ((found,),) = [topic.partitions for topic in answer.topics]
        assert (found.eligible_leader_replicas, found.last_known_elr) == ((8,), (9,))


async def test_an_election_asked_of_any_broker_brings_the_preferred_leader() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (2, 1, 3))
        await rewrite(cluster, "t", leader=1, leader_epoch=1)
        assert (await partition_of(cluster, "t")).leader_id == 1
        async with asked(cluster, 3) as client:
            answer = await client.ask(ApiKey.ELECT_LEADERS, election_type=0, topic_partitions=None)
            assert answer.error_code is ErrorCode.none
            ((result,),) = [one.partition_result for one in answer.replica_election_results]
            assert (result.partition_id, result.error_code) == (0, ErrorCode.none)
        assert (await partition_of(cluster, "t")).leader_id == 2


@pytest.mark.parametrize("resource", [(2, "t"), (4, None)])
async def test_the_clusters_configs_are_described_with_their_source(
    resource: tuple[int, str | None],
) -> None:
    """KAFKA-16540: what a broker's own file says has no effect."""
    kind, name = resource
    async with members(2, {"min.insync.replicas": 2}, starts=False) as cluster:
        await cluster.start(1)
        cluster[2].config["min.insync.replicas"] = 1
        await cluster.start(2)
        await create(cluster, "t", 2)
        for broker_id in (1, 2):
            async with asked(cluster, broker_id) as client:
                wanted = DescribeConfigsResource(
                    resource_type=kind,
                    resource_name=name or str(broker_id),
                    configuration_keys=("min.insync.replicas",),
                )
                answer = await client.ask(
                    ApiKey.DESCRIBE_CONFIGS, resources=(wanted,), include_synonyms=True
                )
                ((found,),) = [result.configs for result in answer.results]
                assert (found.value, found.config_source) == ("2", 3)
                assert (found.synonyms[0].value, found.synonyms[0].source) == ("2", 3)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_internal_topics_have_the_replicas_that_there_are_brokers_for(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    lone = {"__consumer_offsets": None, "__transaction_state": "1"}
    async with members(count) as cluster:
        for name in lone:
            topic = await controller_of(cluster).internal_topic(name)
            await cluster.agreed()
            assert {len(one.replicas) for one in topic.partitions} == {min(count, 3)}
            assert topic.config.get("min.insync.replicas") == (lone[name] if count == 1 else "2")
    for name in lone:
        lines = [r for r in caplog.records if f"{name} has" in r.getMessage()]
        assert [line.levelno for line in lines] == ([logging.WARNING] if count == 2 else [])


async def test_topics_made_while_a_broker_is_away_have_their_replicas_later() -> None:
    async with members(3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.until(lambda: set(cluster[1].broker.image.brokers) == {1, 2})
        await create(cluster, "t", 3)
        await create(cluster, "named", (3, 1))
        topic = await controller_of(cluster).internal_topic("__consumer_offsets")
        assert [len(one.replicas) for one in topic.partitions] == [3]
        assert (isr_of(cluster, "t"), isr_of(cluster, "named")) == ((1, 2), (1,))
        await cluster.restart(3)
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2, 3})
        await cluster.until(lambda: set(isr_of(cluster, "named")) == {1, 3})


async def test_every_broker_names_the_coordinators_of_many_ids() -> None:
    async with members(3, {"transaction.state.log.num.partitions": 3}) as cluster:
        ids = tuple(f"tx-{number}" for number in range(9))
        for version in (4, ADVERTISED[ApiKey.FIND_COORDINATOR].max):
            answer = await ask_each(
                cluster, ApiKey.FIND_COORDINATOR, version, coordinator_keys=ids, key_type=1
            )
            found = {each.key: each.node_id for each in answer.coordinators}
            assert found == {
                each: cluster.leader_of("__transaction_state", coordinator_partition(each, 3))
                for each in ids
            }
            assert set(found.values()) == set(IDS)


async def test_who_does_not_coordinate_a_transactional_id_says_so() -> None:
    async with members(2) as cluster:
        await controller_of(cluster).internal_topic("__transaction_state")
        await cluster.agreed()
        leads = cluster.leader_of("__transaction_state", 0)
        for member in cluster:
            async with asked(cluster, member.broker_id) as client:
                answer = await client.ask(
                    ApiKey.INIT_PRODUCER_ID,
                    transactional_id="tx",
                    transaction_timeout_ms=60_000,
                    producer_id=-1,
                )
            refused = ErrorCode.not_coordinator if member.broker_id != leads else ErrorCode.none
            assert answer.error_code is refused


@pytest.mark.parametrize("is_replica", [True, False])
async def test_who_does_not_lead_names_the_leader_and_its_address(is_replica: bool) -> None:
    """KIP-951."""
    async with members(3) as cluster:
        await create(cluster, "t", (2, 1) if is_replica else (2, 3))
        address = (2, "127.0.0.1", cluster[2].port, None)
        topic_id = cluster[1].broker.image.topics["t"].topic_id
        async with asked(cluster, 1) as client:
            await send_produce(client, 12, batch(1))
            frame = await client.receive()
            assert frame is not None
            produced = parse_produce_response(memoryview(frame), 12, 5)
            ((given,),) = [topic.partitions for topic in produced.topics]
            assert given.error == ErrorCode.not_leader_or_follower
            assert given.current_leader == (2, 0)
            assert [tuple(node) for node in produced.node_endpoints] == [address]
            await send_fetch(client, 16, topic_id=topic_id)
            frame = await client.receive()
            assert frame is not None
            fetched = parse_fetch_response(memoryview(frame), 16, 5)
            ((read,),) = [topic.partitions for topic in fetched.topics]
            assert (read.error, read.current_leader) == (ErrorCode.not_leader_or_follower, (2, 0))
            assert [tuple(node) for node in fetched.node_endpoints] == [address]
            # Older versions have no address, and a client may not know the broker yet.
            await send_fetch(client, 12, topic="t")
            frame = await client.receive()
            assert frame is not None
            ((read,),) = [
                topic.partitions for topic in parse_fetch_response(memoryview(frame), 12, 5).topics
            ]
            assert (read.error, read.current_leader) == (ErrorCode.not_leader_or_follower, None)


async def test_a_group_works_whoever_is_asked_first() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", 3)
        servers = [cluster[each].broker.bootstrap_servers for each in IDS]
        async with Producer(servers[0]) as producer:
            for value in range(9):
                await producer.send("t", b"%d" % value)
            await producer.flush()
        read = 0
        for start, server in enumerate(servers, 1):
            async with Consumer(server, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                while read < 3 * start:
                    read += len(await consumer.poll(1_000, max_records=3 * start - read))
                await consumer.commit()
        found = await ask_each(
            cluster, ApiKey.FIND_COORDINATOR, coordinator_keys=("g",), key_type=0
        )
        (coordinator,) = found.coordinators
        assert coordinator.node_id == cluster.leader_of("__consumer_offsets", 0)
        async with Admin(servers[2]) as admin:
            groups = await admin.list_groups()
        assert [group.group_id for group in groups] == ["g"]


async def test_a_broker_whose_disk_was_exchanged_has_its_replicas_again() -> None:
    """What no other has stays off line: an empty log in its place would lead."""
    async with members(2) as cluster:
        for name, replicas in (("t", 2), ("alone", (2,))):
            await create(cluster, name, replicas)
        async with Producer(cluster[1].broker.bootstrap_servers) as producer:
            for value in range(5):
                await producer.send("t", b"%d" % value)
            await producer.flush()
        await cluster.stop(2)
        shutil.rmtree(cluster[2].folder)
        broker = await cluster[2].start()

        def has_all() -> bool:
            partition = broker.partitions.get("t", 0)
            return partition is not None and partition.log.log_end_offset == 5

        await cluster.until(has_all)
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2})
        assert broker.image.topics["alone"].partitions[0].leader == -1


async def test_an_exchanged_disk_waits_for_who_has_the_records_and_is_down() -> None:
    """Here one that left the ISR while that was below `min.insync.replicas`."""
    async with members(2, {"min.insync.replicas": 2}) as cluster:
        await create(cluster, "t", (2, 1))
        async with Producer(cluster[1].broker.bootstrap_servers) as producer:
            await producer.send("t", b"value")
            await producer.flush()
        await cluster.stop(1)
        await cluster.until(lambda: isr_of(cluster, "t") == (2,))
        await cluster.stop(2)
        shutil.rmtree(cluster[2].folder)
        broker = await cluster[2].start()
        assert cluster.leader_of("t", 0) == -1
        await cluster[1].start()
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2})
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 1


async def test_a_disk_that_was_exchanged_is_still_at_later_starts() -> None:
    """Its broker may die before it has made the replicas, or others may have none until later."""
    async with members(2) as cluster:
        await create(cluster, "t", (2, 1))
        await cluster.stop(1)
        await cluster.until(lambda: isr_of(cluster, "t") == (2,))
        await cluster.stop(2)
        shutil.rmtree(cluster[2].folder)
        await cluster[1].start()
        await cluster[2].start()
        assert cluster.leader_of("t", 0) == -1
        event = ElectLeaders((TopicPartition("t", 0),), is_unclean=True)
        await cluster[1].broker.controller.submit(event)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 1)
        await cluster.stop(2)
        await cluster[2].start()
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2})


@pytest.mark.slow
async def test_the_controller_brings_leaderships_back_by_itself() -> None:
    async with members(2, {"leader.imbalance.check.interval.seconds": 1}) as cluster:
        await create(cluster, "t", (2, 1))
        await rewrite(cluster, "t", leader=1, leader_epoch=1)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 2)


@pytest.mark.slow
async def test_a_group_goes_on_when_its_coordinators_broker_stops() -> None:
    async with members(3, {"min.insync.replicas": 2}) as cluster:
        await create(cluster, "t", 3)
        servers = ",".join(cluster[each].broker.bootstrap_servers for each in IDS)

        async def send(values: range) -> None:
            async with Producer(servers) as producer:
                for value in values:
                    await producer.send("t", b"%d" % value)
                await producer.flush()

        read: list[bytes | None] = []

        async def read_to(consumer: Consumer, count: int) -> None:
            while len(read) < count:
                read.extend(record.value for record in await consumer.poll(500))
            await consumer.commit()

        await send(range(3))
        async with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            await read_to(consumer, 3)
            gone = cluster.leader_of("__consumer_offsets", 0)
            await cluster.stop(gone)
            await cluster.until(
                lambda: cluster.leader_of("__consumer_offsets", 0) not in (gone, -1)
            )
            await send(range(3, 6))
            await read_to(consumer, 6)
        await send(range(6, 9))
        async with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            await read_to(consumer, 9)
        assert read == [b"%d" % value for value in range(9)]


async def test_a_broker_that_stopped_is_named_no_more() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (2, 1, 3))
        await cluster.stop(2)
        await cluster.until(lambda: all(2 not in one.broker.image.brokers for one in cluster))
        await cluster.until(lambda: cluster.leader_of("t", 0) == 1)
        found = await partition_of(cluster, "t")
        assert (found.leader_id, found.offline_replicas) == (1, (2,))
        answer = await ask_each(cluster, ApiKey.METADATA, topics=None)
        assert [each.node_id for each in answer.brokers] == [1, 3]
        await cluster.start(2)
        await cluster.agreed()
        assert (await partition_of(cluster, "t")).offline_replicas == ()

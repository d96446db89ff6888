"""A cut between a broker and the controller, while both see the metadata store.

No session ends, so no other leader is elected. What needs the controller waits for the end of the
cut, and nothing is lost. A controller that is cut off from all others gives its office up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from oncelog.client import Admin, NewTopic, TopicPartition
from oncelog.core.errors import ErrorCode
from oncelog.sync import Consumer, Producer
from oncelog.testing import ControlledCluster
from tests.unit.broker.context import Client
from tests.unit.broker.test_no_controller import SOON_S, coordinator, creation, metadata

pytestmark = pytest.mark.slow

IDS = (1, 2, 3)
CONFIG = {"replica.lag.time.max.ms": 500, "auto.leader.rebalance.enable": "false"}
WAIT_S = 20


@pytest.fixture
def cluster() -> Iterator[ControlledCluster]:
    with ControlledCluster(config=CONFIG) as made:
        made.create_topic("t", len(IDS))
        yield made


def roles(cluster: ControlledCluster) -> tuple[int, int, int]:
    """The controller, and the two others."""
    controller = cluster.wait_until(lambda: cluster.controller() or 0)
    one, another = (each for each in IDS if each != controller)
    return controller, one, another


def led(cluster: ControlledCluster) -> dict[int, int]:
    """The partition of each leader, once all replicas are in sync: there is one for each broker."""
    cluster.wait_until(lambda: all(cluster.in_sync("t", number) == IDS for number in range(3)))
    found = {cluster.leader_of("t", number) or 0: number for number in range(len(IDS))}
    assert set(found) == set(IDS)
    return found


def read(servers: str, partition: int, count: int) -> list[bytes | None]:
    with Consumer(servers) as consumer:
        place = TopicPartition("t", partition)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(1_000)]
        return found


def check_whole(cluster: ControlledCluster, counts: dict[int, int]) -> None:
    """All replicas are in sync again, and each partition has its records once, in order."""
    for partition, count in counts.items():
        cluster.wait_until(lambda number=partition: cluster.in_sync("t", number) == IDS)  # type: ignore[misc]
        values = read(cluster.bootstrap_servers, partition, count)
        assert values == [b"%d" % number for number in range(count)]


def test_only_what_a_broker_leads_waits_while_it_is_cut_from_the_controller(
    cluster: ControlledCluster,
) -> None:
    controller, alone, third = roles(cluster)
    of = led(cluster)
    with Producer(cluster.bootstrap_servers) as producer:
        for partition in of.values():
            producer.send("t", b"0", partition=partition)
        producer.flush()
        with cluster.cut(alone, controller):
            waiting = producer.send("t", b"1", partition=of[alone])
            for leader in (controller, third):
                producer.send("t", b"1", partition=of[leader]).result(WAIT_S)
            cluster.wait_until(lambda: alone not in cluster.in_sync("t", of[controller]))
            # The controller is in this ISR, which only the controller could change.
            assert controller in cluster.in_sync("t", of[alone])
            assert cluster.leader_of("t", of[alone]) == alone
            assert not waiting.done()
            assert read(cluster.broker(alone).bootstrap_servers, of[alone], 1) == [b"0"]
        waiting.result(WAIT_S)
    check_whole(cluster, dict.fromkeys(of.values(), 2))


def test_nothing_is_lost_while_the_controller_is_cut_from_all_brokers(
    cluster: ControlledCluster,
) -> None:
    controller, one, another = roles(cluster)
    of = led(cluster)
    with Producer(cluster.bootstrap_servers) as producer:
        with cluster.cut(controller, one), cluster.cut(controller, another):
            waiting = [producer.send("t", b"0", partition=number) for number in of.values()]
            cluster.wait_until(lambda: cluster.in_sync("t", of[controller]) == (controller,))
            assert not any(each.done() for each in waiting)
        for each in waiting:
            each.result(WAIT_S)
    check_whole(cluster, dict.fromkeys(of.values(), 1))


def test_a_broker_cut_from_the_controller_is_replaced_when_it_stops(
    cluster: ControlledCluster,
) -> None:
    controller, alone, _ = roles(cluster)
    partition = led(cluster)[alone]
    with Producer(cluster.bootstrap_servers) as producer, cluster.cut(alone, controller):
        waiting = producer.send("t", b"0", partition=partition)
        cluster.kill(alone)
        waiting.result(WAIT_S)
    cluster.restart(alone)
    check_whole(cluster, {partition: 1})


def test_a_controller_cut_from_all_brokers_leaves_its_office_to_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ControlledCluster(config={**CONFIG, "broker.session.timeout.ms": 600}) as cluster:
        cluster.create_topic("t", len(IDS))
        controller, one, another = roles(cluster)
        of = led(cluster)
        servers = cluster.broker(one).bootstrap_servers
        with (
            Producer(servers) as producer,
            cluster.cut(controller, one),
            cluster.cut(controller, another),
        ):
            cluster.wait_until(lambda: cluster.controller() in (one, another))
            # It was in their ISRs, which the next controller changes.
            for leader in (one, another):
                producer.send("t", b"0", partition=of[leader]).result(WAIT_S)
                assert controller not in cluster.in_sync("t", of[leader])
            cluster.kill(another)
            cluster.wait_until(lambda: cluster.leader_of("t", of[another]) == one)
        cluster.restart(another)
        check_whole(cluster, {of[one]: 1, of[another]: 1})
        assert caplog.text.count("gives up the controller's office") == 1


@asynccontextmanager
async def connected(server: str) -> AsyncIterator[Client]:
    host, _, port = server.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    yield client
    client.writer.close()


async def test_changes_asked_of_a_broker_cut_from_the_controller_are_answered_soon() -> None:
    async with ControlledCluster(config=CONFIG) as cluster:
        controller, alone, _ = roles(cluster)
        server = cluster.broker(alone).bootstrap_servers
        with cluster.cut(alone, controller):
            async with (
                connected(server) as first,
                connected(server) as second,
                connected(server) as third,
                asyncio.timeout(SOON_S),
            ):
                created, named, found = await asyncio.gather(
                    creation(first, "x"), metadata(second, "y"), coordinator(third)
                )
            assert created is ErrorCode.request_timed_out
            assert named == [ErrorCode.unknown_topic_or_partition]
            assert found is ErrorCode.coordinator_not_available
            # A client that asks the controller itself, as Metadata names it, does not wait.
            async with Admin(server) as admin:
                await admin.create_topics([NewTopic("z", 1)])
        async with connected(server) as client:
            # What was answered so may have been done meanwhile.
            again = await creation(client, "x")
            assert again in (ErrorCode.none, ErrorCode.topic_already_exists)
            assert await metadata(client, "x", "y", "z") == [ErrorCode.none] * 3
            assert await coordinator(client) is ErrorCode.none

"""A cluster in one process: its brokers are killed, stopped, paused, expired and cut apart."""

from collections.abc import Iterator

import pytest

from oncelog import EmbeddedCluster
from oncelog.client import ClientError, Producer, TopicPartition
from oncelog.core.config_definition import ConfigError
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.protocol.hashing import coordinator_partition
from oncelog.sync import Consumer as SyncConsumer
from oncelog.sync import Producer as SyncProducer
from oncelog.testing import ControlledCluster, Moment

LAG_MS = 500
CONFIG = {"replica.lag.time.max.ms": LAG_MS}


@pytest.fixture
def cluster() -> Iterator[ControlledCluster]:
    with ControlledCluster(config=CONFIG) as made:
        made.create_topic("t", 1)
        yield made


def send(cluster: ControlledCluster, *values: str, to: str = "") -> None:
    with SyncProducer(to or cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value.encode(), partition=0)
        producer.flush()


def read(cluster: ControlledCluster, count: int) -> list[str]:
    with SyncConsumer(cluster.bootstrap_servers) as consumer:
        place = TopicPartition("t", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[str] = []
        while len(found) < count:
            found += [(record.value or b"").decode() for record in consumer.poll(1000)]
        return found


def whole(cluster: ControlledCluster) -> bool:
    return cluster.in_sync("t") == (1, 2, 3)


def others(broker_id: int) -> list[int]:
    return [each for each in (1, 2, 3) if each != broker_id]


def leader(cluster: ControlledCluster) -> int:
    return cluster.wait_until(lambda: cluster.leader_of("t") or 0)


def test_another_broker_leads_when_the_leader_is_killed(cluster: ControlledCluster) -> None:
    send(cluster, "a")
    killed = leader(cluster)
    cluster.kill(killed)
    assert cluster.wait_until(lambda: cluster.leader_of("t") or 0) != killed
    send(cluster, "b")
    assert read(cluster, 2) == ["a", "b"]
    cluster.restart(killed)
    cluster.wait_until(lambda: whole(cluster))


def test_a_broker_that_stops_hands_over_what_it_leads(cluster: ControlledCluster) -> None:
    stopped = leader(cluster)
    cluster.stop(stopped)
    assert leader(cluster) != stopped
    assert stopped not in cluster.in_sync("t")
    cluster.restart(stopped)
    cluster.wait_until(lambda: whole(cluster))


def test_each_broker_can_be_restarted_in_turn(cluster: ControlledCluster) -> None:
    for broker_id in (1, 2, 3):
        send(cluster, f"before {broker_id}")
        cluster.restart(broker_id)
        cluster.wait_until(lambda: whole(cluster))
    assert read(cluster, 3) == ["before 1", "before 2", "before 3"]


def test_a_paused_broker_leads_on_until_its_session_ends(cluster: ControlledCluster) -> None:
    paused = leader(cluster)
    with cluster.pause(paused):
        cluster.expire_session(paused)
        other = cluster.wait_until(lambda: cluster.leader_of("t") or 0)
        assert other != paused
        send(cluster, "meanwhile", to=cluster.broker(other).bootstrap_servers)
    cluster.wait_until(lambda: whole(cluster))
    assert read(cluster, 1) == ["meanwhile"]


def test_a_broker_whose_session_ended_registers_again(cluster: ControlledCluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.expire_session(broker_id)
        cluster.wait_until(lambda: whole(cluster))


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(
    cluster: ControlledCluster,
) -> None:
    lead = leader(cluster)
    # Its leader asks the controller for an ISR without it.
    (follower, *_) = (each for each in others(lead) if each != cluster.controller())
    with cluster.cut(lead, follower):
        cluster.wait_until(lambda: follower not in cluster.in_sync("t"))
        send(cluster, "without it")
    cluster.wait_until(lambda: whole(cluster))


def test_what_a_minority_took_is_not_acknowledged_and_is_gone(cluster: ControlledCluster) -> None:
    alone = leader(cluster)
    address = cluster.broker(alone).bootstrap_servers
    with cluster.isolate(alone):
        with SyncProducer(address, delivery_timeout_ms=1_500, request_timeout_ms=500) as producer:
            sent = producer.send("t", b"of the minority", partition=0)
            cluster.wait_until(lambda: _leads_elsewhere(cluster, alone))
            with pytest.raises(ClientError):
                sent.result(20)
        send_to = ",".join(cluster.broker(each).bootstrap_servers for each in others(alone))
        with SyncProducer(send_to) as producer:
            producer.send("t", b"of the majority", partition=0).result(20)
    cluster.wait_until(lambda: whole(cluster))
    assert read(cluster, 1) == ["of the majority"]


def _leads_elsewhere(cluster: ControlledCluster, broker_id: int) -> bool:
    for each in others(broker_id):
        image = cluster.broker(each).call(lambda broker: broker.image.partition("t", 0))
        if image is not None and image.leader not in (-1, broker_id):
            return True
    return False


def test_the_coordinators_of_ids_are_the_leaders_of_their_partitions(
    cluster: ControlledCluster,
) -> None:
    assert cluster.coordinator_of("g") is None
    for name in ("__consumer_offsets", "__transaction_state"):
        cluster.create_topic(name, 3)
    for index in range(3):
        ids = [each for each in map(str, range(20)) if coordinator_partition(each, 3) == index]
        of_groups = cluster.leader_of("__consumer_offsets", index)
        of_transactions = cluster.leader_of("__transaction_state", index)
        assert of_groups is not None
        assert {cluster.coordinator_of(each) for each in ids} == {of_groups}
        assert {cluster.coordinator_of(transactional_id=each) for each in ids} == {of_transactions}


def transact(producer: SyncProducer, *values: bytes) -> None:
    for value in values:
        producer.begin_transaction()
        producer.send("t", value, partition=0)
        producer.commit_transaction()


@pytest.mark.parametrize("moment", Moment)
def test_a_transaction_survives_a_death_at_each_moment(
    cluster: ControlledCluster, moment: Moment
) -> None:
    """Of who writes: the coordinator, or the leader of the partition that gets a marker."""
    with SyncProducer(cluster.bootstrap_servers, transactional_id="tx") as producer:
        producer.init_transactions()
        coordinator = cluster.coordinator_of(transactional_id="tx")
        victim = leader(cluster) if moment is Moment.BETWEEN_MARKERS else coordinator
        assert victim is not None
        faults = cluster.broker(victim).faults
        transact(producer, b"a")
        death = faults.kill(moment, restart=False)
        transact(producer, b"b")
        death.wait()
        transact(producer, b"c")
    assert read(cluster, 3) == ["a", "b", "c"]


def test_no_follower_is_killed_where_it_copies_a_step(cluster: ControlledCluster) -> None:
    with SyncProducer(cluster.bootstrap_servers, transactional_id="tx") as producer:
        producer.init_transactions()
        coordinator = cluster.coordinator_of(transactional_id="tx")
        assert coordinator is not None
        deaths = [
            cluster.broker(each).faults.kill(Moment.AFTER_PREPARE) for each in others(coordinator)
        ]
        transact(producer, b"a", b"b")
    assert [death.hits_count for death in deaths] == [0, 0]


def test_whose_coordinator_is_wanted_has_to_be_said(cluster: ControlledCluster) -> None:
    for ids in ({}, {"group_id": "g", "transactional_id": "tx"}):
        with pytest.raises(TypeError, match="takes a group id, or a transactional_id"):
            cluster.coordinator_of(**ids)


def test_the_report_says_who_leads(cluster: ControlledCluster) -> None:
    text = cluster.report()
    lead = leader(cluster)
    assert "controller" in text
    assert f"t-0{' ' * 37} {lead:6}" in text
    cluster.kill(others(lead)[0])
    assert f"broker {others(lead)[0]} is down" in cluster.report()


def test_an_unknown_broker_is_named() -> None:
    with (
        ControlledCluster(brokers=1) as cluster,
        pytest.raises(ValueError, match="there is no broker 9 in this cluster: it has 1"),
    ):
        cluster.kill(9)


async def test_a_cluster_is_entered_by_async_with() -> None:
    async with EmbeddedCluster(brokers=2) as cluster, Producer(cluster.bootstrap_servers) as made:
        sent = await made.send("t", b"v")
        assert sent.offset == 0
        assert len(cluster.brokers) == 2
    with pytest.raises(RuntimeError, match="is not running"):
        _ = cluster.bootstrap_servers


def test_a_cluster_begins_anew_each_time() -> None:
    cluster = ControlledCluster(brokers=2)
    for _ in range(2):
        with cluster:
            cluster.create_topic("t")


@pytest.mark.parametrize("count", [0, -1, 17])
def test_a_count_of_brokers_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="it takes 1 to 16"):
        EmbeddedCluster(brokers=count)


def test_a_node_id_for_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leave node\.id"):
        EmbeddedCluster(config={"node.id": 5})


def test_brokers_that_would_refuse_each_other_are_refused() -> None:
    authorized = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with pytest.raises(ConfigError, match=r"super\.users has to name User:ANONYMOUS"):
        EmbeddedCluster(config={**authorized, "super.users": "User:admin"})
    EmbeddedCluster(config={**authorized, "super.users": "User:admin;User:ANONYMOUS"})
    EmbeddedCluster(brokers=1, config=authorized)
    EmbeddedCluster(config=authorized, secure=True)

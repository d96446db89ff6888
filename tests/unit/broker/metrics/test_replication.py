"""What the metrics say of replicas and elections, while a leader of three brokers is away."""

from __future__ import annotations

from typing import cast

from oncelog.broker.apis.context import Context
from oncelog.broker.metrics import METRICS, Parts, lines
from oncelog.cli.metrics import parse
from oncelog.controller.topics import TopicToCreate
from tests.support.members import Cluster, members

REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
ELECTIONS = "kafka_controller_controllerstats_"
LAG = "kafka_server_fetcherlagmetrics_consumerlag"
MAX_LAG = "kafka_server_replicafetchermanager_maxlag"


def read(cluster: Cluster, broker_id: int, name: str) -> float:
    """The value of a metric on a broker, added up over its labels."""
    broker = cluster[broker_id].broker
    context = cast(Context, broker.dispatcher._context)
    parts = Parts(context, broker.dispatcher, broker.membership)
    chosen = [metric for metric in METRICS if name.startswith(metric.name)]
    return sum(one.value for one in parse("".join(lines(chosen, parts))) if one.name == name)


async def test_an_operator_sees_a_leader_leave_and_come_back() -> None:
    async with members(3) as cluster:
        topic = TopicToCreate("t", assignment={0: (2, 1, 3)}, config={"min.insync.replicas": "2"})
        await cluster[1].broker.controller.create_topics([topic])
        await cluster.agreed()
        for broker_id in (1, 2, 3):
            assert read(cluster, broker_id, f"{ELECTIONS}leaderelectionrateandtimems_count") == 0
            assert read(cluster, broker_id, f"{CONTROLLER}activebrokercount") == 3
        await cluster.kill(2)
        cluster.expire(2)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 1)
        await cluster.agreed()
        assert read(cluster, 1, f"{ELECTIONS}leaderelectionrateandtimems_count") == 1
        assert read(cluster, 1, f"{ELECTIONS}uncleanleaderelections_total") == 0
        for broker_id in (1, 3):
            assert read(cluster, broker_id, f"{CONTROLLER}activebrokercount") == 2
            assert read(cluster, broker_id, f"{CONTROLLER}fencedbrokercount") == 1
            assert read(cluster, broker_id, f"{CONTROLLER}preferredreplicaimbalancecount") == 1
            assert read(cluster, broker_id, f"{CONTROLLER}offlinepartitionscount") == 0
        assert read(cluster, 1, f"{REPLICAS}underreplicatedpartitions") == 1
        assert read(cluster, 1, f"{REPLICAS}underminisrpartitioncount") == 0
        assert read(cluster, 1, f"{REPLICAS}atminisrpartitioncount") == 1
        assert read(cluster, 3, f"{REPLICAS}atminisrpartitioncount") == 0
        await cluster.restart(2)
        await cluster.until(lambda: read(cluster, 1, f"{REPLICAS}isrexpands_total") == 1)
        await cluster.until(lambda: read(cluster, 1, f"{REPLICAS}underreplicatedpartitions") == 0)
        assert read(cluster, 1, f"{REPLICAS}isrshrinks_total") == 0
        assert read(cluster, 1, f"{REPLICAS}failedisrupdates_total") == 0


async def test_a_follower_shows_how_far_it_is_behind() -> None:
    async with members(2) as cluster:
        topic = TopicToCreate("t", assignment={0: (1, 2)})
        await cluster[1].broker.controller.create_topics([topic])
        await cluster.agreed()
        follower = cluster[2].broker.partitions.get("t", 0)
        assert follower is not None
        assert read(cluster, 2, LAG) == read(cluster, 2, MAX_LAG) == 0
        # Its leader has said that seven records are committed, and none has come yet.
        follower.state.leader_high_watermark(7)  # type: ignore[attr-defined]
        assert read(cluster, 2, LAG) == read(cluster, 2, MAX_LAG) == 7
        assert read(cluster, 1, MAX_LAG) == 0

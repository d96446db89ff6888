"""`oncelog cluster status`: what it says of brokers, leaders and replicas that are behind."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from oncelog.cli.cluster.status import _screen
from oncelog.cli.cluster.survey import BrokerStatus, ClusterStatus, PartitionTrouble, survey
from oncelog.cli.main import main
from oncelog.client import Admin, PartitionDescription, TopicPartition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.sync import Producer
from oncelog.testing import ControlledCluster
from tests.support.members import members

Oncelog = Callable[..., Result]


def broker(broker_id: int, **more: Any) -> BrokerStatus:
    plain = {
        "address": f"h{broker_id}:9092",
        "rack": None,
        "is_controller": False,
        "leads_count": 4,
        "preferred_count": 4,
        "replicas_count": 12,
        "behind_count": 0,
        "lag": 0,
        "coordinates_count": 0,
    }
    return BrokerStatus(broker_id, **{**plain, **more})


def trouble(number: int, leader: int, isr: tuple[int, ...], min_isr: int = 2) -> PartitionTrouble:
    described = PartitionDescription(number, leader, 5, (1, 2, 3), isr, (2,))
    return PartitionTrouble(TopicPartition("orders", number), described, min_isr, {2: 7})


def screen(*troubles: PartitionTrouble, **more: Any) -> str:
    brokers = [broker(1, is_controller=True), broker(2, **more), broker(3)]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(_screen(ClusterStatus("the-id", 1, brokers, 12, troubles), 100))
    return console.export_text(styles=False)


def test_a_cluster_in_sync_is_said_to_be() -> None:
    text = screen()
    assert "cluster the-id, controller 1, 12 partitions" in text
    assert "every replica is in sync" in text
    assert "Missing" not in text


def test_the_worst_of_a_partition_is_named_and_counted() -> None:
    off_line, small = trouble(0, -1, ()), trouble(1, 1, (1,))
    behind, single = trouble(2, 1, (1, 3)), trouble(3, 1, (1,), min_isr=1)
    text = screen(off_line, small, behind, single, address=None, lag=None)
    assert "1 broker away, 1 off line, 1 under min ISR, 2 under-replicated" in text
    states = [one.state for one in (off_line, small, behind, single)]
    assert states == ["off line", "under min ISR", "under-replicated", "under-replicated"]
    assert "away" in text
    assert behind.missing == (2,)
    assert replace(behind, adding=(2,)).state == "reassigning"


def test_a_replica_that_is_being_added_is_not_counted_as_lacking() -> None:
    behind = trouble(2, 1, (1, 3))
    added, away = replace(behind, adding=(2,)), trouble(0, -1, (1, 2, 3))
    status = ClusterStatus("the-id", 1, [broker(1)], 12, [behind, added, away])
    assert status.under_replicated_count == 1


async def test_a_partition_whose_broker_has_lost_the_folder_is_off_line() -> None:
    """Its broker lives, and is the last member of the ISR, so all of it seemed to be in sync."""
    async with members(2) as cluster:
        controller = cluster[1].broker.controller
        await controller.create_topics([TopicToCreate("t", assignment={0: (2,)})])
        await cluster.agreed()
        await cluster.kill(2)
        cluster.expire(2)
        shutil.rmtree(cluster[2].folder)
        await cluster.start(2)
        await cluster.agreed()
        server = cluster[1].broker.bootstrap_servers
        asked = ["cluster", "status", "--json", "--bootstrap-server", server]
        result = await asyncio.to_thread(CliRunner().invoke, main, asked)
        found = json.loads(result.stdout)
        assert (found["off_line"], found["under_replicated"]) == (1, 0)
        (shown,) = found["troubles"]
        assert (shown["leader"], shown["isr"], shown["state"]) == (-1, [2], "off line")


async def test_a_broker_coordinates_for_the_internal_partitions_that_it_leads() -> None:
    async with members(1) as cluster:
        placed = {"t": {0: (1,)}, CONSUMER_OFFSETS_TOPIC: {0: (1,), 1: (1,)}}
        topics = [TopicToCreate(name, assignment=each) for name, each in placed.items()]
        await cluster[1].broker.controller.create_topics(topics)
        async with Admin(cluster[1].broker.bootstrap_servers) as admin:
            (only,) = (await survey(admin)).brokers
        assert (only.leads_count, only.coordinates_count) == (3, 2)


def test_a_lone_broker_is_in_sync(oncelog: Oncelog, topic: str) -> None:
    found = json.loads(oncelog("cluster", "status", "--json").stdout)
    assert found["under_replicated"] == found["off_line"] == found["under_min_isr"] == 0
    (only,) = found["brokers"]
    assert found["controller"] == only["broker"]
    assert (only["state"], only["lag"], only["behind"]) == ("controller", 0, 0)
    assert only["leads"] == only["replicas"] == found["partitions"] >= 2


def test_it_looks_again_as_often_as_asked(oncelog: Oncelog) -> None:
    looked = oncelog(
        "cluster", "status", "--watch", "--count", "3", "--interval-ms", "100", "--json"
    )
    assert len(looked.stdout.splitlines()) == 3


@pytest.mark.slow
def test_a_follower_that_fetches_no_more_and_a_dead_broker_are_shown() -> None:
    with ControlledCluster(config={"replica.lag.time.max.ms": 500}) as cluster:
        cluster.create_topic("t")
        cluster.create_topic("single", 3, replication_factor=1)
        leader = cluster.leader_of("t", 0) or 0
        # The controller is not cut off: only it can take another out of the ISR.
        controller = cluster.wait_until(lambda: cluster.controller() or 0)
        others = [one for one in (1, 2, 3) if one != leader]
        behind, third = sorted(others, key=lambda one: one == controller)

        def status() -> dict[str, Any]:
            asked = ["cluster", "status", "--json", "--bootstrap-server", cluster.bootstrap_servers]
            result = CliRunner().invoke(main, asked)
            assert result.exit_code == 0, result.output
            found: dict[str, Any] = json.loads(result.stdout)
            return found

        with Producer(cluster.bootstrap_servers) as producer, cluster.cut(leader, behind):
            cluster.wait_until(lambda: behind not in cluster.in_sync("t", 0))
            for number in range(5):
                producer.send("t", b"%d" % number).result(20)
            found = status()
            (shown,) = found["troubles"]
            assert shown["lags"] == {str(leader): 0, str(behind): 5, str(third): 0}
            by_id = {one["broker"]: one for one in found["brokers"]}
            assert (by_id[behind]["behind"], by_id[behind]["lag"]) == (1, 5)
        cluster.wait_until(lambda: cluster.in_sync("t", 0) == (1, 2, 3))
        cluster.kill(leader)
        cluster.wait_until(lambda: leader not in cluster.in_sync("t", 0))
        found = status()
        away = {one["broker"]: one["state"] for one in found["brokers"]}
        assert away[leader] == "away"
        assert (found["off_line"], found["under_replicated"]) == (1, 2)
        cluster.kill(third)
        cluster.wait_until(lambda: third not in cluster.in_sync("t", 0))
        found = status()
        assert found["under_min_isr"] == 1
        # Each has every record that is committed.
        (shown,) = (one for one in found["troubles"] if one["topic"] == "t")
        assert set(shown["eligible"]) == {third}

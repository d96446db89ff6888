"""Where `oncelog cluster drain` and `grow-internal` put replicas, and both against real brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner, Result

from oncelog.broker.controller.shell import ControllerShell
from oncelog.cli.cluster.moves import Placed, drained, grown, placed
from oncelog.cli.main import main
from oncelog.client import (
    Node,
    PartitionDescription,
    PartitionReassignment,
    TopicDescription,
)
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.support.members import Cluster, members

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def nodes(*ids: int, racks: str = "") -> list[Node]:
    return [
        Node(each, "h", 9092, rack or None)
        for each, rack in zip(ids, racks or [""] * len(ids), strict=True)
    ]


def have(*replicas: tuple[int, ...]) -> list[Placed]:
    return [Placed(TopicPartition("t", n), each) for n, each in enumerate(replicas)]


def test_another_broker_takes_the_place_of_the_one_that_leaves() -> None:
    plan, stuck = drained(have((3, 1, 2), (1, 2)), nodes(1, 2, 3, 4), 3, may_shrink=False)
    assert (plan, stuck) == ({T0: (4, 1, 2)}, [])


def test_the_brokers_with_the_fewest_replicas_take_them_in_turn() -> None:
    plan, _ = drained(have((3, 1), (3, 1), (1, 3)), nodes(1, 2, 3, 4), 3, may_shrink=False)
    assert plan == {T0: (2, 1), T1: (4, 1), TopicPartition("t", 2): (1, 2)}


def test_a_rack_without_the_partition_comes_first() -> None:
    held = have((1, 2), (3,), (3,))
    plan, _ = drained(held, nodes(1, 2, 3, 4, racks="abba"), 2, may_shrink=False)
    assert plan == {T0: (1, 3)}


def test_what_no_other_can_take_is_named_or_given_up() -> None:
    held = have((1, 2, 3), (3,))
    assert drained(held, nodes(1, 2, 3), 3, may_shrink=False) == ({T1: (1,)}, [T0])
    assert drained(held, nodes(1, 2, 3), 3, may_shrink=True) == ({T0: (1, 2), T1: (1,)}, [])
    assert drained(have((3,)), nodes(3), 3, may_shrink=True) == ({}, [T0])


def test_partitions_with_fewer_replicas_get_more() -> None:
    held = have((1,), (2, 1), (1, 2, 3))
    plan = grown(held, nodes(1, 2, 3), "t", 3)
    assert plan == {T0: (1, 3, 2), T1: (2, 1, 3)}
    assert grown(held, nodes(1, 2, 3), "u", 3) == {}
    assert grown(have((1,)), nodes(1, 2), "t", 3) == {T0: (1, 2)}
    assert grown(have((1, 2)), nodes(1, 2), "t", 3) == {}


def test_what_is_under_way_counts_as_done() -> None:
    parts = tuple(PartitionDescription(n, 1, 4, (1, 2), (1, 2)) for n in (0, 1))
    topic = TopicDescription("t", None, parts)
    ongoing = {T1: PartitionReassignment((3, 2, 1), (3,), (1,))}
    assert placed([topic], ongoing) == [Placed(T0, (1, 2)), Placed(T1, (3, 2))]


async def command(cluster: Cluster, *arguments: str) -> Result:
    servers = ",".join(one.broker.bootstrap_servers for one in cluster)

    def call() -> Result:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": servers}
        return CliRunner().invoke(main, ["cluster", *arguments], env=environment)

    return await asyncio.to_thread(call)


def controller_of(cluster: Cluster) -> ControllerShell:
    return cluster[1].broker.controller


async def create(cluster: Cluster, name: str, *replicas: tuple[int, ...]) -> None:
    new = TopicToCreate(name, assignment=dict(enumerate(replicas)))
    (outcome,) = await controller_of(cluster).create_topics([new])
    assert outcome.error is ErrorCode.none
    await cluster.agreed()


def replicas_of(cluster: Cluster, name: str) -> list[tuple[int, ...]]:
    return [one.replicas for one in cluster[1].broker.image.topics[name].partitions]


async def test_a_drained_broker_has_nothing_and_can_be_forgotten() -> None:
    async with members(4) as cluster:
        await create(cluster, "t", (3, 1, 2), (1, 2, 4))
        await create(cluster, "u", (1, 3))
        first = await command(cluster, "drain", "3")
        assert (first.exit_code, first.stdout) == (
            0,
            "broker 3 has no replicas; 2 have left it\n",
        ), first.stderr
        await cluster.agreed()
        assert replicas_of(cluster, "t") == [(4, 1, 2), (1, 2, 4)]
        assert replicas_of(cluster, "u") == [(1, 2)]
        again = await command(cluster, "drain", "3")
        assert again.stdout == "broker 3 has no replicas; 0 have left it\n"
        await cluster.stop(3)
        assert (await command(cluster, "forget", "3")).exit_code == 0
        gone = await command(cluster, "drain", "3")
        assert gone.exit_code == 1
        assert "there is no broker 3, and no replica is assigned to it" in gone.stderr


async def test_a_broker_that_no_other_can_replace_is_not_drained() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (3, 1, 2))
        await create(cluster, "u", (3, 1))
        refused = await command(cluster, "drain", "3")
        assert refused.exit_code == 1
        assert "no other broker can take t-0" in refused.stderr
        assert (replicas_of(cluster, "t"), replicas_of(cluster, "u")) == ([(3, 1, 2)], [(3, 1)])
        assert (await command(cluster, "drain", "3", "--fewer-replicas")).exit_code == 0
        await cluster.agreed()
        assert (replicas_of(cluster, "t"), replicas_of(cluster, "u")) == ([(1, 2)], [(2, 1)])


@pytest.mark.parametrize("count", [3, 2])
async def test_internal_topics_grow_to_the_brokers_that_are_there(count: int) -> None:
    settings: dict[str, Any] = {
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
    }
    async with members(count, settings, starts=False) as cluster:
        await cluster.start(1)
        for name in ("__consumer_offsets", "__transaction_state"):
            await cluster[1].broker.controller.internal_topic(name)
        await cluster.start(*range(2, count + 1))
        result = await command(cluster, "grow-internal")
        assert result.exit_code == 0, result.stderr
        assert ("there are not more brokers" in result.stderr) == (count == 2)
        await cluster.agreed()
        image = cluster[1].broker.image
        for name in ("__consumer_offsets", "__transaction_state"):
            assert all(len(replicas) == count for replicas in replicas_of(cluster, name))
            assert image.topics[name].config["min.insync.replicas"] == "2"


async def test_internal_topics_that_nothing_has_used_have_nothing_to_grow() -> None:
    async with members(1) as cluster:
        result = await command(cluster, "grow-internal")
        assert result.exit_code == 0
        assert result.stdout.count("is not there yet") == 2

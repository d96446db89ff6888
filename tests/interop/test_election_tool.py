"""Apache's kafka-leader-election against three brokers, asked of one that is not the controller."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.controller.topics import TopicToCreate
from tests.support.java_tools import run_tool
from tests.support.members import Cluster, members

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java_class_path")]

CONTROLLER, PREFERRED, ASKED = 1, 2, 3
TOOL = "org.apache.kafka.tools.LeaderElectionCommand"
ERRORS = "org.apache.kafka.common.errors"
ELECTED_ALREADY = "Valid replica already elected for partitions t-0"


async def elect(cluster: Cluster, kind: str, *which: str) -> str:
    """What the tool prints."""
    servers = cluster[ASKED].broker.bootstrap_servers
    args = ("--bootstrap-server", servers, "--election-type", kind, *which)
    done = await asyncio.to_thread(run_tool, TOOL, *args)
    return done.stdout + done.stderr


def isr(cluster: Cluster) -> set[int]:
    """The in-sync replicas of t-0."""
    partition = cluster[CONTROLLER].broker.image.partition("t", 0)
    return set() if partition is None else set(partition.isr)


async def test_leaders_are_elected_with_kafkas_errors() -> None:
    async with members(3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        placed = [
            TopicToCreate("t", assignment={0: (PREFERRED, CONTROLLER, ASKED)}),
            TopicToCreate("single", assignment={0: (PREFERRED,)}),
        ]
        await cluster[CONTROLLER].broker.controller.create_topics(placed)
        await cluster.agreed()
        named = ("--topic", "t", "--partition", "0")
        assert ELECTED_ALREADY in await elect(cluster, "preferred", *named)
        await cluster.restart(PREFERRED)
        await cluster.until(lambda: cluster.leader_of("t", 0) == CONTROLLER)
        await cluster.until(lambda: isr(cluster) == {CONTROLLER, PREFERRED, ASKED})
        elected = await elect(cluster, "preferred", "--all-topic-partitions")
        assert "Successfully completed leader election (PREFERRED) for partitions t-0" in elected
        await cluster.until(lambda: cluster.leader_of("t", 0) == PREFERRED)
        await cluster.kill(PREFERRED)
        cluster.expire(PREFERRED)
        await cluster.until(lambda: cluster.leader_of("t", 0) == CONTROLLER)
        await cluster.agreed()
        refused = await elect(cluster, "preferred", *named)
        assert f"{ERRORS}.PreferredLeaderNotAvailableException" in refused
        assert ELECTED_ALREADY in await elect(cluster, "unclean", *named)
        lost = await elect(cluster, "unclean", "--topic", "single", "--partition", "0")
        assert f"{ERRORS}.EligibleLeadersNotAvailableException" in lost

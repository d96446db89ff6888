"""Apache's kafka-reassign-partitions moves replicas between four of our brokers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.support.java_tools import run_tool
from tests.support.members import Cluster, members

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java_class_path")]

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


async def tool(cluster: Cluster, main_class: str, *args: str) -> str:
    """What a tool prints that asks a broker."""
    server = cluster[1].broker.bootstrap_servers
    done = await asyncio.to_thread(run_tool, main_class, "--bootstrap-server", server, *args)
    return done.stdout + done.stderr


def plan(folder: Path, *replicas: tuple[int, ...]) -> str:
    """A file with the replicas of each partition; returns its path."""
    parts = [
        {"topic": "t", "partition": number, "replicas": each, "log_dirs": ["any"] * len(each)}
        for number, each in enumerate(replicas)
    ]
    file = folder / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": parts}))
    return str(file)


async def create(cluster: Cluster, *replicas: tuple[int, ...]) -> None:
    new = TopicToCreate("t", assignment=dict(enumerate(replicas)))
    (outcome,) = await cluster[1].broker.controller.create_topics([new])
    assert outcome.error is ErrorCode.none
    await cluster.agreed()


def replicas_of(cluster: Cluster) -> list[Any]:
    return [state.replicas for state in cluster[1].broker.image.topics["t"].partitions]


async def test_it_plans_moves_and_verifies(tmp_path: Path) -> None:
    async with members(4) as cluster:
        await create(cluster, (1, 2, 3), (2, 3, 1))
        asked = tmp_path / "topics.json"
        asked.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        generated = await tool(
            cluster,
            TOOL,
            *("--topics-to-move-json-file", str(asked), "--broker-list", "2,3,4", "--generate"),
        )
        assert "Proposed partition reassignment configuration" in generated
        file = plan(tmp_path, (4, 2, 3), (3, 4))
        begun = await tool(cluster, TOOL, "--reassignment-json-file", file, "--execute")
        assert "Successfully started partition reassignments for t-0,t-1" in begun
        await cluster.until(lambda: replicas_of(cluster) == [(4, 2, 3), (3, 4)])
        told = await tool(cluster, TOOL, "--reassignment-json-file", file, "--verify")
        for number in (0, 1):
            assert f"Reassignment of partition t-{number} is completed." in told
        assert "Clearing topic-level throttles on topic t" in told
        assert "Exception" not in told
        assert "No partition reassignments found." in await tool(cluster, TOOL, "--list")


async def test_it_lists_and_cancels_what_waits_for_a_broker(tmp_path: Path) -> None:
    async with members(4) as cluster:
        await create(cluster, (1, 2, 3))
        await cluster.kill(4)
        file = plan(tmp_path, (1, 2, 4))
        await tool(cluster, TOOL, "--reassignment-json-file", file, "--execute")
        listed = await tool(cluster, TOOL, "--list")
        assert "t-0: replicas: 1,2,4,3. adding: 4. removing: 3." in listed
        shown = await tool(cluster, TOPICS, "--describe", "--topic", "t")
        assert "Adding Replicas: 4" in shown
        assert "Removing Replicas: 3" in shown
        told = await tool(cluster, TOOL, "--reassignment-json-file", file, "--verify")
        assert "Reassignment of partition t-0 is still in progress." in told
        again = await tool(cluster, TOOL, "--reassignment-json-file", file, "--execute")
        assert "Cannot execute because there is an existing partition assignment." in again
        # Otherwise it asks the broker that is away too, and waits for it.
        how = ("--cancel", "--preserve-throttles")
        cancelled = await tool(cluster, TOOL, "--reassignment-json-file", file, *how)
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled
        await cluster.agreed()
        assert replicas_of(cluster) == [(1, 2, 3)]

"""A broker that stops in order serves until the others name the leaders after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker import handover, member
from oncelog.broker.coordination import coordinators
from oncelog.broker.peers.connections import Peers
from oncelog.controller.topics import TopicToCreate
from oncelog.core.cluster_limits import HANDOVER_LINGER_MS, HANDOVER_LOOK_MS
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from tests.support.members import Cluster, members
from tests.unit.broker.apis.producing import prepare, started
from tests.unit.broker.context import Client, running
from tests.unit.broker.test_no_controller import asking, metadata

UNAWARE = "brokers [3] may still name this one as a leader"


def leaders(cluster: Cluster, broker_id: int) -> set[int]:
    """Who leads, as a broker tells its clients."""
    image = cluster[broker_id].broker.image
    return {each.leader for topic in image.topics.values() for each in topic.partitions}


@asynccontextmanager
async def stopping(cluster: Cluster) -> AsyncIterator[asyncio.Task[None]]:
    """Broker 1 stops; broker 2 has heard who leads after it, and broker 3 is held up."""
    await cluster[1].broker.controller.create_topics([TopicToCreate("t", 3, 3)])
    await cluster.agreed()
    cluster[3].link.is_open.clear()
    stopping = asyncio.create_task(cluster.stop(1))
    await cluster.until(lambda: 1 not in leaders(cluster, 2))
    yield stopping
    await stopping


async def test_a_stop_waits_for_a_broker_that_names_it_still() -> None:
    async with members(3) as cluster, stopping(cluster) as task:
        assert 1 in leaders(cluster, 3)
        async with asking(cluster, 1) as client:
            # A listener that closed would refuse the second or the third.
            for _ in range(3):
                await metadata(client, "t")
                await asyncio.sleep(HANDOVER_LOOK_MS / 1000)
        assert not task.done()
        cluster[3].link.is_open.set()
        await task
        assert 1 not in leaders(cluster, 3)


async def test_all_topics_are_asked_for_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "HANDOVER_TOPICS_TOGETHER_COUNT_MAX", 2)
    asked: list[list[str]] = []
    ask = Peers.ask

    async def noted(peers: Peers, other: int, api: ApiKey, version: int, request: Any) -> Any:
        if api is ApiKey.METADATA:
            asked.append([topic.name for topic in request.topics])
        return await ask(peers, other, api, version, request)

    monkeypatch.setattr(Peers, "ask", noted)
    async with members(2) as cluster:
        topics = [TopicToCreate(f"t{each}", assignment={0: (1, 2)}) for each in range(5)]
        await cluster[1].broker.controller.create_topics(topics)
        await cluster.agreed()
        await cluster.stop(1)
        firsts = [each for at, each in enumerate(asked) if each not in asked[:at]]
        assert firsts == [["t0", "t1"], ["t2", "t3"], ["t4"]]
        assert leaders(cluster, 2) == {2}


async def test_a_broker_that_never_hears_of_it_keeps_the_stop_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handover, "HANDOVER_WAIT_MS_MAX", 50)
    async with members(3) as cluster, stopping(cluster) as task:
        await task
        assert 1 in leaders(cluster, 3)
    assert UNAWARE in caplog.text


async def test_a_partition_that_nobody_else_can_lead_keeps_no_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"controlled.shutdown.max.retries": 0}
    async with members(2, settings) as cluster:
        await cluster[1].broker.controller.create_topics(
            [TopicToCreate("alone", assignment={0: (1,)}), TopicToCreate("t", 3, 2)]
        )
        await cluster.agreed()
        await cluster.stop(1)
        assert leaders(cluster, 2) == {-1, 2}
    assert "may still name this one" not in caplog.text


async def init(client: Client) -> ErrorCode:
    answer = await client.ask(
        ApiKey.INIT_PRODUCER_ID, transactional_id="x", transaction_timeout_ms=60_000
    )
    return ErrorCode(answer.error_code)


async def test_a_coordinator_in_use_tells_its_producers_before_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "HANDOVER_LINGER_MS", 200)
    async with members(2) as cluster:
        state = TopicToCreate(TRANSACTION_STATE_TOPIC, assignment={0: (1, 2)})
        await cluster[1].broker.controller.create_topics([state])
        await cluster.agreed()
        async with asking(cluster, 1) as client:
            assert await init(client) is ErrorCode.none
            stopping = asyncio.create_task(cluster.stop(1))
            await cluster.until(lambda: leaders(cluster, 2) == {2})
            assert await init(client) is ErrorCode.not_coordinator
            started_s = asyncio.get_running_loop().time()
            await stopping
            # The one that is alone now has nobody to hand anything over to.
            assert asyncio.get_running_loop().time() - started_s > 0.1


async def test_a_coordinator_is_in_use_while_a_transaction_is_open_and_a_moment_longer(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as context:
        await prepare(context)
        broker = context.broker

        def is_in_use(after_ms: int) -> bool:
            now_ms = broker.clock.now_ms()
            return coordinators.is_coordinator_in_use(broker.transactions, now_ms + after_ms)

        assert not is_in_use(0)
        producing = await started(context)
        assert await producing.add() == [ErrorCode.none]
        assert is_in_use(60_000)
        assert await producing.end(commit=True) is ErrorCode.none
        assert is_in_use(0)
        assert not is_in_use(HANDOVER_LINGER_MS + 1)

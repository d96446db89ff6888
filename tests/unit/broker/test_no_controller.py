"""While no controller answers, clients are answered soon, and a broker ends without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Check, Write
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from tests.support.members import Cluster, members
from tests.unit.broker.apis.test_topics import topic
from tests.unit.broker.context import Client
from tests.unit.broker.controller.support import TroubledStore, started

SOON_S = 8
"""Far less than an event waits for a controller where nothing else bounds it."""
HAS_NO_STOP_IN_ORDER = {"controlled.shutdown.enable": "false"}


@asynccontextmanager
async def asking(cluster: Cluster, broker_id: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", cluster[broker_id].port))
    yield client
    client.writer.close()


async def metadata(client: Client, *names: str) -> list[ErrorCode]:
    topics = tuple(MetadataRequestTopic(topic_id=None, name=name) for name in names)
    answer = await client.ask(ApiKey.METADATA, topics=topics, allow_auto_topic_creation=True)
    return [ErrorCode(one.error_code) for one in answer.topics]


async def coordinator(client: Client) -> ErrorCode:
    answer = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",), key_type=0)
    return ErrorCode(answer.coordinators[0].error_code)


async def creation(client: Client, name: str) -> ErrorCode:
    answer = await client.ask(ApiKey.CREATE_TOPICS, topics=(topic(name),), timeout_ms=1)
    return ErrorCode(answer.topics[0].error_code)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_clients_are_answered_soon_while_no_controller_answers(is_killed: bool) -> None:
    async with members(2, HAS_NO_STOP_IN_ORDER) as cluster:
        await cluster[1].broker.controller.create_topics([TopicToCreate("t", 1, 2)])
        await cluster.agreed()
        if is_killed:
            await cluster.kill(1)
        else:
            cluster[1].link.is_open.clear()
        async with (
            asking(cluster, 2) as one,
            asking(cluster, 2) as another,
            asking(cluster, 2) as third,
            asyncio.timeout(SOON_S),
        ):
            named, found, created = await asyncio.gather(
                metadata(one, "t", "u", "v", "w"),
                coordinator(another),
                creation(third, "x"),
            )
        assert named == [ErrorCode.none, *[ErrorCode.unknown_topic_or_partition] * 3]
        assert found is ErrorCode.coordinator_not_available
        assert created is ErrorCode.request_timed_out


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_event_that_waits_for_a_controller_keeps_no_broker(is_killed: bool) -> None:
    async with members(2, HAS_NO_STOP_IN_ORDER) as cluster:
        await cluster.kill(1)
        broker = cluster[2].broker
        making = asyncio.create_task(broker.controller.create_topics([TopicToCreate("t")]))
        await asyncio.sleep(0)
        async with asyncio.timeout(SOON_S):
            await (cluster.kill(2) if is_killed else cluster.stop(2))
            (outcome,) = await making
        assert outcome.error is ErrorCode.request_timed_out


class HungStore(TroubledStore):
    """Answers no write while it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = asyncio.Event()
        self.moves.set()

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        await self.moves.wait()
        await super().write_all(writes, checks=checks, fence=fence)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_decision_is_written_before_a_stop_and_not_before_a_kill(is_killed: bool) -> None:
    store = HungStore()
    shell = await started(store)
    store.moves.clear()
    making = asyncio.create_task(shell.controller.create_topics([TopicToCreate("t")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing = asyncio.create_task(shell.controller.close(at_once=is_killed))
    async with asyncio.timeout(SOON_S):
        (outcome,) = await making
        if not is_killed:
            store.moves.set()
        await closing
    assert outcome.error is ErrorCode.request_timed_out
    written = await store.list("/brokers/topics/t")
    assert bool(written) is not is_killed
    (refused,) = await shell.controller.create_topics([TopicToCreate("u")])
    assert (refused.error, refused.message) == (ErrorCode.request_timed_out, "The broker stops.")


@pytest.mark.parametrize("turns_count", range(4))
async def test_an_event_is_answered_in_whichever_turn_after_it_a_broker_ends(
    turns_count: int,
) -> None:
    store = HungStore()
    shell = await started(store)
    store.moves.clear()
    making = asyncio.create_task(shell.controller.create_topics([TopicToCreate("t")]))
    for _ in range(turns_count):
        await asyncio.sleep(0)
    await shell.controller.close(at_once=True)
    (outcome,) = await making
    assert (outcome.error, outcome.message) == (ErrorCode.request_timed_out, "The broker stops.")


async def test_a_stop_in_order_without_a_controller_is_bounded() -> None:
    """By `controlled.shutdown.*`: as long as all the pauses between its tries."""
    async with members(2, {"controlled.shutdown.retry.backoff.ms": 100}) as cluster:
        await cluster[1].broker.controller.create_topics([TopicToCreate("t", 2, 2)])
        await cluster.agreed()
        await cluster.kill(1)
        async with asyncio.timeout(SOON_S):
            await cluster.stop(2)

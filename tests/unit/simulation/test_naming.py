"""The witness of answers: a broker that refuses what it names is reported, others are not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.net.dispatch import Layer
from oncelog.controller import layout
from oncelog.controller.image import ImageDelta, MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.metadata import Write
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.api import ApiKey
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.join_group import JoinGroupRequestProtocol
from oncelog.simulation import naming
from oncelog.simulation.checkers.named import REFUSED
from oncelog.simulation.naming import warn_of_unserved, watched
from tests.unit.broker.apis.test_follower_fetch import FOLLOWER, LIFE, follow, know, lead
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import error_of, fetch, produce
from tests.unit.broker.support import batch
from tests.unit.broker.test_named_by_others import heartbeat, init


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text.removeprefix(REFUSED) for text in caplog.messages if text.startswith(REFUSED)]


class Lost(dict[int, Any]):
    """The fault: the broker finds none of its shards, and goes on to name itself."""

    def get(self, key: int, default: Any = None) -> Any:
        return None


def lose_shards(context: Running) -> None:
    for runtime in (context.broker.groups, context.broker.transactions):
        runtime._coordinators = Lost()


async def test_a_coordinator_that_refuses_what_it_names_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as context:
        context.broker.dispatcher.wrap(Layer.WATCH, watched)
        client = await context.connect()
        # Nobody was named yet.
        assert await heartbeat(client) is ErrorCode.not_coordinator
        for kind, key in ((0, "g"), (1, "x")):
            await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=(key,), key_type=kind)
        assert await heartbeat(client) is ErrorCode.unknown_member_id
        assert await init(client) is ErrorCode.none
        assert reported(caplog) == []
        lose_shards(context)
        assert await heartbeat(client) is ErrorCode.not_coordinator
        assert await init(client) is ErrorCode.not_coordinator
        assert reported(caplog) == [
            "HEARTBEAT of g is answered with NOT_COORDINATOR",
            "INIT_PRODUCER_ID of x is answered with NOT_COORDINATOR",
        ]


@pytest.mark.parametrize("fault", ["unread", "store", "waited", "unnamed", ""])
async def test_a_coordinator_that_refuses_what_another_names_it_for_unread_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with running(tmp_path) as context:
        broker = context.broker
        newer: list[MetadataImage] = []
        broker.dispatcher.wrap(Layer.WATCH, lambda find: watched(find, lambda: newer))
        client = await context.connect()
        await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",), key_type=0)
        revision = broker.image.revision + (fault != "")
        newer.append(broker.image.after(ImageDelta(), revision=revision))
        lose_shards(context)
        if fault == "store":
            broker.feed.health.failed(StoreFailure("away"))
        if fault == "waited":
            monkeypatch.setattr(naming, "CATCH_UP_MS_MAX", 0)
        if fault == "unnamed":
            newer.clear()
        assert await heartbeat(client) is ErrorCode.not_coordinator
        unread = "HEARTBEAT of g is refused unread"
        assert (unread in reported(caplog)) == (fault == "unread")


async def test_what_waited_for_a_role_that_has_ended_is_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker leads again at once, in another epoch: it names itself all the time."""
    async with running(tmp_path) as context:
        broker = context.broker
        broker.dispatcher.wrap(Layer.WATCH, watched)
        client, other = await context.connect(), await context.connect()
        await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("g",), key_type=0)
        protocols = (JoinGroupRequestProtocol(name="p", metadata=b""),)
        joining = asyncio.create_task(
            client.ask(
                ApiKey.JOIN_GROUP,
                3,
                group_id="g",
                session_timeout_ms=9_000,
                rebalance_timeout_ms=9_000,
                protocol_type="consumer",
                protocols=protocols,
            )
        )
        while not (await other.ask(ApiKey.LIST_GROUPS)).groups:
            pass
        topic_image = broker.image.topics["__consumer_offsets"]
        number = coordinator_partition("g", len(topic_image.partitions))
        state = topic_image.partitions[number]
        path = layout.state_path(topic_image.name, number)
        after = replace(state, leader_epoch=state.leader_epoch + 1, partition_epoch=9)
        version = broker.feed.known.version_of(path)
        await broker.store.write_all([Write(path, layout.encode_state(after), version)])
        assert ErrorCode((await joining).error_code) is ErrorCode.not_coordinator
        assert reported(caplog) == []


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_leader_that_refuses_what_it_names_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_named: bool
) -> None:
    async with running(tmp_path) as context:
        broker = context.broker
        broker.dispatcher.wrap(Layer.WATCH, watched)
        client = await context.connect()
        assert error_of(await produce(client, 9, batch())) is ErrorCode.unknown_topic_or_partition
        created = (await create(client, topic("t")))["t"]
        assert error_of(await produce(client, 9, batch())) is ErrorCode.none
        warn_of_unserved(broker.image, broker.partitions, broker.broker_id)
        assert reported(caplog) == []
        if not is_named:
            await broker.controller.delete_topic(created.topic_id)
        else:
            served: Any = broker.partitions._partitions
            served.clear()
        await produce(client, 13, batch(), topic_id=created.topic_id)
        await fetch(client)
        warn_of_unserved(broker.image, broker.partitions, broker.broker_id)
        assert len(reported(caplog)) == (3 if is_named else 0)


async def test_a_follower_of_another_life_is_refused_and_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as context:
        context.broker.dispatcher.wrap(Layer.WATCH, watched)
        client = await context.connect()
        await create(client, topic("t"))
        know(context, FOLLOWER)
        lead(context)
        answer = await follow(context, client, replica=(FOLLOWER, LIFE - 1))
        assert error_of(answer) is ErrorCode.not_leader_or_follower
        assert reported(caplog) == []

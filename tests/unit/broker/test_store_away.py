"""A metadata store that fails stops no broker: what needs no change of the metadata is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.broker.broker import Broker
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.context import Client
from tests.unit.broker.controller.support import TroubledStore
from tests.unit.broker.raw import error_of, fetch, init_producer, produce, until, values
from tests.unit.broker.support import batch

NONE = ErrorCode.none


@asynccontextmanager
async def serving(folder: Path, store: TroubledStore) -> AsyncIterator[tuple[Broker, Client]]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
    broker = Broker(BrokerConfig(config), store=store)
    await broker.start()
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield broker, client
    finally:
        client.writer.close()
        await broker.stop()


async def named(client: Client, name: str) -> ErrorCode:
    asked = MetadataRequestTopic(topic_id=None, name=name)
    response = await client.ask(ApiKey.METADATA, topics=(asked,), allow_auto_topic_creation=True)
    return ErrorCode(response.topics[0].error_code)


async def test_a_broker_serves_on_while_its_metadata_is_away(tmp_path: Path) -> None:
    store = TroubledStore()
    async with serving(tmp_path, store) as (broker, client):
        await broker.controller.create_topics([TopicToCreate("t")])
        store.is_away = True
        broker.producer_ids._blocks.clear()
        assert (await create(client, topic("u")))["u"].error_code is ErrorCode.request_timed_out
        assert await named(client, "v") is ErrorCode.unknown_topic_or_partition
        assert await named(client, CONSUMER_OFFSETS_TOPIC) is ErrorCode.unknown_topic_or_partition
        refused = await init_producer(client, None)
        assert refused.error_code is ErrorCode.coordinator_load_in_progress
        assert error_of(await produce(client, 9, batch())) is NONE
        assert len(values((await fetch(client)).records)) == 1
        assert broker.stopped_because is None
        store.is_away = False
        await until(lambda: not broker.feed.health.pause_ms)
        assert (await create(client, topic("u")))["u"].error_code is NONE
        assert await named(client, "v") is NONE
        assert (await init_producer(client, None)).error_code is NONE


async def test_a_store_that_fails_at_the_start_is_refused(tmp_path: Path) -> None:
    store = TroubledStore()
    store.is_away = True
    with pytest.raises(StoreFailure, match="no route to the store"):
        async with serving(tmp_path, store):
            pass

"""A broker with quotas as its clients see it: Kafka's ClientQuotasRequestTest, RequestQuotaTest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from oncelog.broker.apis import HANDLERS
from oncelog.broker.quotas.mutations import MUTATIONS
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import PRIVATE, ApiKey
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from oncelog.protocol.messages.alter_client_quotas import OpData, QuotaEntryData
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.describe_client_quotas import ComponentData, EntityData
from oncelog.protocol.messages.list_offsets import ListOffsetsTopic
from oncelog.protocol.produce import ProduceResponse, parse_produce_response
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import produce, receive_fetch, send_fetch, send_produce
from tests.unit.storage.context import batch

NONE, EXCEEDED = ErrorCode.none, ErrorCode.throttling_quota_exceeded
ME = (EntityData(entity_type="user", entity_name="ANONYMOUS"),)
NEARLY_NOTHING = 1e-9


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as made:
        yield made


async def limit(context: Running, **values: float | None) -> None:
    """Set and remove quotas of all clients here, by a connection of its own."""
    client = await context.connect()
    ops = tuple(
        OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
    )
    entries = (QuotaEntryData(entity=ME, ops=ops),)
    answer = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries)
    assert [entry.error_code for entry in answer.entries] == [NONE]


async def muted(client: Client) -> bool:
    """Whether a request waits; a client that is not muted is answered in the same turn or so."""
    request = codec.request_class(ApiKey.API_VERSIONS)()
    await client.send(codec.encode_request(ApiKey.API_VERSIONS, 0, 9, "test", request))
    for _ in range(20):
        await asyncio.sleep(0)
    return not client.reader._buffer  # type: ignore[attr-defined]


async def test_a_producer_over_its_quota_is_answered_at_once_and_muted(context: Running) -> None:
    client, other = await context.connect(), await context.connect()
    await create(client, topic("t"))
    await limit(context, producer_byte_rate=100)
    assert (await produce(client, 9, batch(value=b"v" * 500))).error == 0
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await send_produce(client, 9, batch(value=b"v" * 400))
    answer = await receive_produce_whole(client, 9)
    assert answer.topics[0].partitions[0].error == 0
    assert answer.throttle_ms > 0
    assert await muted(client)
    assert not await muted(other)
    await limit(context, producer_byte_rate=None)
    await client.receive()
    assert loop.time() - begun_s >= answer.throttle_ms / 1000


async def receive_produce_whole(client: Client, version: int) -> ProduceResponse:
    frame = await client.receive()
    assert frame is not None
    return parse_produce_response(frame, version, 4 + (version >= 9))


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12])
async def test_each_version_of_a_produce_says_how_long(context: Running, version: int) -> None:
    client = await context.connect()
    await create(client, topic("t"))
    await limit(context, producer_byte_rate=1)
    await send_produce(client, version, batch())
    answer = await receive_produce_whole(client, version)
    assert answer.throttle_ms > 1_000
    assert answer.topics[0].partitions[0].error == 0


async def test_a_consumer_over_its_quota_gets_nothing_and_its_session_goes_on(
    context: Running,
) -> None:
    client = await context.connect()
    await create(client, topic("t"))
    await produce(client, 9, batch(value=b"v" * 300))
    await send_fetch(client, 12, session_epoch=0)
    opened = await receive_fetch(client, 12)
    assert opened.session_id
    await limit(context, consumer_byte_rate=20)
    id_ = opened.session_id
    await send_fetch(client, 12, session_epoch=1, session_id=id_)
    served = await receive_fetch(client, 12)
    assert served.throttle_ms == 0
    assert served.topics[0].partitions[0].records
    await send_fetch(client, 12, session_epoch=2, session_id=id_)
    throttled = await receive_fetch(client, 12)
    assert (throttled.error, throttled.session_id) == (0, opened.session_id)
    assert throttled.topics == []
    assert throttled.throttle_ms > 1_000
    assert await muted(client)
    await limit(context, consumer_byte_rate=None)
    other = await context.connect()
    await send_fetch(other, 12, session_epoch=3, session_id=id_)
    again = await receive_fetch(other, 12)
    assert again.error == 0
    assert again.topics[0].partitions[0].records


async def test_a_full_fetch_over_the_quota_opens_no_session(context: Running) -> None:
    client, other = await context.connect(), await context.connect()
    await create(client, topic("t"))
    await produce(client, 9, batch(value=b"v" * 300))
    await limit(context, consumer_byte_rate=1)
    await send_fetch(client, 12)
    await receive_fetch(client, 12)
    await send_fetch(other, 12, session_epoch=0)
    throttled = await receive_fetch(other, 12)
    assert (throttled.error, throttled.session_id, throttled.topics) == (0, 0, [])
    assert len(context.broker.partitions.fetch_sessions) == 0


async def test_a_fetch_returns_at_most_what_its_quota_has_ever_room_for(context: Running) -> None:
    client = await context.connect()
    await create(client, topic("t"))
    for _ in range(4):
        await produce(client, 9, batch(value=b"v" * 300))
    await limit(context, consumer_byte_rate=80)
    await send_fetch(client, 12)
    answer = await receive_fetch(client, 12)
    records = answer.topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert 300 < len(records) <= 800


@pytest.mark.parametrize(
    "api",
    sorted(HANDLERS.keys() - PRIVATE - {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS,
                                        ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}),
    ids=lambda api: api.name,
)  # fmt: skip
async def test_every_api_is_throttled(context: Running, api: ApiKey) -> None:
    """Kafka's RequestQuotaTest; what brokers ask and what comes before a login are left out."""
    await limit(context, request_percentage=NEARLY_NOTHING)
    client = await context.connect()
    version = 3 if api is ApiKey.ADD_PARTITIONS_TO_TXN else None
    answer = await client.ask(api, version, **BODIES.get(api, {}))
    (meter,) = [one for one in context.broker.dispatcher.meters.values() if one.throttled_count]
    assert (meter.api.key, meter.throttled_count) == (api, 1)
    assert 0 < meter.throttle_ms <= 1_000
    if "throttle_time_ms" in {field.name for field in fields(answer)}:
        assert answer.throttle_time_ms == meter.throttle_ms
    assert await muted(client)


BODIES: dict[ApiKey, dict[str, Any]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: {"transactions": (AddPartitionsToTxnTransaction(),)},
    ApiKey.LIST_OFFSETS: {"topics": (ListOffsetsTopic(name="t"),)},
}


async def test_who_has_no_quota_is_not_throttled(context: Running) -> None:
    client = await context.connect()
    someone = (EntityData(entity_type="user", entity_name="someone"),)
    ops = (OpData(key="request_percentage", value=NEARLY_NOTHING),)
    await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, entries=(QuotaEntryData(entity=someone, ops=ops),))
    assert (await client.ask(ApiKey.METADATA, topics=None)).throttle_time_ms == 0
    assert not await muted(client)


async def test_partitions_over_the_quota_are_refused_topic_by_topic(context: Running) -> None:
    """KIP-599: a request may overdraw the bucket once."""
    await limit(context, controller_mutation_rate=0.001)
    client = await context.connect()
    wanted = tuple(
        CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"
    )
    answer = await client.ask(ApiKey.CREATE_TOPICS, topics=wanted)
    errors = {result.name: result.error_code for result in answer.topics}
    assert errors == {"a": NONE, "b": EXCEEDED, "c": EXCEEDED}
    assert answer.throttle_time_ms > 60_000
    assert await muted(client)
    for api, asked in (
        (ApiKey.DELETE_TOPICS, DeleteTopicState(name="a")),
        (ApiKey.CREATE_PARTITIONS, CreatePartitionsTopic(name="a", count=3, assignments=None)),
    ):
        other = await context.connect()
        answer = await other.ask(api, topics=(asked,))
        results = getattr(answer, MUTATIONS[api].answered)
        assert [(result.name, result.error_code) for result in results] == [("a", EXCEEDED)]
    assert len(context.broker.image.topics["a"].partitions) == 2


async def test_older_clients_are_served_and_throttled(context: Running) -> None:
    await limit(context, controller_mutation_rate=0.001)
    client = await context.connect()
    wanted = (CreatableTopic(name="a", num_partitions=2, replication_factor=1),)
    answer = await client.ask(ApiKey.CREATE_TOPICS, 5, topics=wanted)
    assert answer.topics[0].error_code is NONE
    assert answer.throttle_time_ms > 60_000


async def test_quotas_outlive_a_restart_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await limit(context, request_percentage=NEARLY_NOTHING)
    for _ in range(2):
        async with running(tmp_path) as context:
            client = await context.connect()
            assert (await client.ask(ApiKey.METADATA, topics=None)).throttle_time_ms > 0


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {"u", "u,c", "c"}),
        ([], True, set()),
        ([("user", 2, None)], False, {"u", "u,c"}),
        ([("user", 2, None)], True, {"u"}),
        ([("user", 0, "u")], False, {"u", "u,c"}),
        ([("user", 0, "u"), ("client-id", 1, None)], True, {"u,c"}),
        ([("client-id", 1, None)], False, {"u,c", "c"}),
        ([("client-id", 0, "x")], False, set()),
    ],
)
async def test_quotas_are_described(
    context: Running,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    found: set[str],
) -> None:
    client = await context.connect()
    user = EntityData(entity_type="user", entity_name="u")
    default = EntityData(entity_type="client-id", entity_name=None)
    entities = {"u": (user,), "u,c": (user, default), "c": (default,)}
    ops = (OpData(key="request_percentage", value=50.0),)
    await client.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        entries=tuple(QuotaEntryData(entity=entity, ops=ops) for entity in entities.values()),
    )
    asked = tuple(
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    )
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=asked, strict=strict)
    assert {entry.entity for entry in answer.entries} == {entities[name] for name in found}
    assert {entry.values[0].value for entry in answer.entries} <= {50.0}

"""A follower's Fetch against a running broker: who may say it, what it moves, what it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import BrokerImage, ImageDelta
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
)
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import (
    error_of,
    fetch,
    produce,
    receive_fetch,
    receive_produce,
    send_fetch,
    send_produce,
    until,
    values,
)
from tests.unit.broker.support import NOW_MS, assignment, batch

FOLLOWER, STRANGER = 2, 3
LIFE = 7
EPOCH = 4
LONG_MS = 60_000
VERSION = 18


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[Running]:
    """A broker that leads a partition, and knows a follower of it."""
    async with running(folder / "data") as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        know(started, FOLLOWER, rack="west")
        know(started, STRANGER)
        lead(started)
        yield started


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with followed(tmp_path) as started:
        yield started


def know(context: Running, broker_id: int, rack: str | None = None) -> None:
    feed = context.broker.feed
    other = BrokerImage(broker_id, "127.0.0.1", 9, rack, broker_epoch=LIFE)
    brokers = {**feed.image.brokers, broker_id: other}
    feed.image = feed.image.after(ImageDelta(), brokers=brokers)


def lead(context: Running, isr: Sequence[int] = (1, FOLLOWER), **fields: Any) -> Partition:
    partition = partition_of(context)
    given = assignment(tuple(isr), **{"replicas": (1, FOLLOWER), "epoch": EPOCH, **fields})
    partition.assign(given, context.broker.clock.monotonic_ms())
    return partition


def partition_of(context: Running) -> Partition:
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def send_follow(
    context: Running,
    client: Client,
    offset: int = 0,
    *,
    replica: tuple[int, int] = (FOLLOWER, LIFE),
    epoch: int = EPOCH,
    last_epoch: int = -1,
    version: int = VERSION,
    start: int = 0,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
    max_bytes: int = 2**20,
    sends_topic: bool = True,
) -> None:
    topic_id = context.broker.image.topics["t"].topic_id
    asked = FetchPartition(0, offset, 2**20, epoch, last_epoch, start)
    topic = FetchTopic("t" if version < 13 else None, topic_id, [asked])
    topics = [topic] if sends_topic else []
    request = FetchRequest(
        max_wait_ms,
        1,
        max_bytes,
        0,
        *session,
        topics,
        replica_id=replica[0],
        replica_epoch=replica[1],
    )
    await client.send(encode_fetch_request(version, 78, "test", request))


async def follow(context: Running, client: Client, offset: int = 0, **options: Any) -> Any:
    await send_follow(context, client, offset, **options)
    answer = await receive_fetch(client, options.get("version", VERSION))
    return answer.topics[0].partitions[0]


async def test_a_follower_reads_what_is_not_committed_and_commits_it(context: Running) -> None:
    """Its fetch is recorded before it is answered, so the answer has the new high watermark."""
    client, producer = await context.connect(), await context.connect()
    await produce(producer, 9, batch(3), acks=1)
    found = await follow(context, client)
    assert (values(found.records), found.high_watermark) == ([b"value"] * 3, 0)
    await send_produce(producer, 9, batch())
    await until(lambda: partition_of(context).log.log_end_offset == 4)
    assert (await follow(context, client, 3)).high_watermark == 3
    found = await follow(context, client, 4)
    assert (found.records, found.high_watermark) == (b"", 4)
    assert (await receive_produce(producer, 9)).error == 0


async def test_an_append_wakes_a_follower_before_it_is_committed(context: Running) -> None:
    client, producer = await context.connect(), await context.connect()
    await send_follow(context, client, max_wait_ms=LONG_MS)
    await until(lambda: bool(partition_of(context).fetches))
    await send_produce(producer, 9, batch(2))
    answer = await receive_fetch(client, VERSION)
    assert values(answer.topics[0].partitions[0].records) == [b"value"] * 2
    await follow(context, client, 2)
    assert (await receive_produce(producer, 9)).base_offset == 0


@pytest.mark.parametrize(
    ("replica", "epoch", "expected"),
    [
        ((STRANGER, LIFE), EPOCH, ErrorCode.unknown_leader_epoch),
        ((9, LIFE), EPOCH, ErrorCode.unknown_leader_epoch),
        ((1, 1), EPOCH, ErrorCode.unknown_leader_epoch),
        ((FOLLOWER, LIFE - 1), EPOCH, ErrorCode.not_leader_or_follower),
        ((FOLLOWER, LIFE + 1), EPOCH, ErrorCode.unknown_leader_epoch),
        ((FOLLOWER, LIFE), EPOCH - 1, ErrorCode.fenced_leader_epoch),
        ((FOLLOWER, LIFE), EPOCH + 1, ErrorCode.unknown_leader_epoch),
        ((FOLLOWER, LIFE), -1, ErrorCode.unknown_leader_epoch),
    ],
)
async def test_who_is_no_follower_is_told_so_and_moves_nothing(
    context: Running, replica: tuple[int, int], epoch: int, expected: ErrorCode
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    found = await follow(context, client, 3, replica=replica, epoch=epoch)
    assert error_of(found) is expected
    assert not found.records
    assert partition_of(context).state.high_watermark == 0


async def test_without_a_broker_epoch_a_fetch_is_a_consumers(context: Running) -> None:
    """Before version 15 anybody could say a replica id: it reads and moves nothing."""
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    found = await follow(context, client, 0, version=14)
    assert (error_of(found), found.records) == (ErrorCode.none, b"")
    assert partition_of(context).state.high_watermark == 0


async def test_a_log_that_diverges_is_told_where_and_counts_for_nothing(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    lead(context, epoch=EPOCH + 2)
    await produce(client, 9, batch(2), acks=1)
    for offset, last_epoch in ((5, EPOCH), (4, EPOCH + 1), (9, EPOCH)):
        found = await follow(context, client, offset, epoch=EPOCH + 2, last_epoch=last_epoch)
        assert (found.error, found.diverging_epoch) == (0, (EPOCH, 3))
        assert not found.records
    assert partition_of(context).state.high_watermark == 0
    found = await follow(context, client, 3, epoch=EPOCH + 2, last_epoch=EPOCH)
    assert (found.diverging_epoch, values(found.records)) == (None, [b"value"] * 2)
    assert partition_of(context).state.high_watermark == 3


async def test_a_follower_outside_of_the_log_learns_its_start(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    lead(context, (1,))
    partition_of(context).delete_records(2)
    for offset in (1, 4):
        found = await follow(context, client, offset)
        assert error_of(found) is ErrorCode.offset_out_of_range
        assert found.log_start_offset == 2


async def test_followers_keep_their_sessions_whatever_clients_open(tmp_path: Path) -> None:
    slots = {"max.incremental.fetch.session.cache.slots": 1}
    async with running(tmp_path, slots) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        know(context, FOLLOWER)
        lead(context)
        client, consumer = await context.connect(), await context.connect()

        async def follow_on(session: tuple[int, int], **options: Any) -> FetchResponse:
            await send_follow(context, client, session=session, **options)
            return await receive_fetch(client, VERSION)

        begun = await follow_on((0, 0))
        assert begun.session_id > 0
        for _ in range(3):
            await send_fetch(consumer, session_epoch=0)
            assert (await receive_fetch(consumer)).error is ErrorCode.none
        await produce(consumer, 9, batch(), acks=1)
        more = await follow_on((begun.session_id, 1), sends_topic=False)
        assert values(more.topics[0].partitions[0].records) == [b"value"]


async def test_a_followers_answer_has_bounded_bytes(context: Running) -> None:
    client = await context.connect()
    for _ in range(4):
        await produce(client, 9, batch(10), acks=1)
    found = await follow(context, client, max_bytes=1)
    assert len(values(found.records)) == 10


async def test_what_a_follower_fetches_is_not_counted_as_clients_bytes(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    await follow(context, client)
    assert partition_of(context).meter.bytes_out == 0


async def test_a_parked_follower_learns_that_the_leader_is_another(context: Running) -> None:
    client = await context.connect()
    await send_follow(context, client, max_wait_ms=LONG_MS)
    await until(lambda: bool(partition_of(context).fetches))
    given = assignment((FOLLOWER,), (1, FOLLOWER), leader=FOLLOWER, epoch=EPOCH + 1)
    partition_of(context).assign(given, 0)
    found = (await receive_fetch(client, VERSION)).topics[0].partitions[0]
    assert error_of(found) is ErrorCode.fenced_leader_epoch
    assert found.current_leader == (FOLLOWER, EPOCH + 1)


# --- the nearest replica

RACKS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.rack": "east",
}


@pytest.fixture
async def racks(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data", RACKS) as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        know(started, FOLLOWER, rack="west")
        lead(started)
        yield started


async def consume(
    client: Client, rack: str, offset: int = 0, version: int = 12, last_epoch: int = -1
) -> Any:
    topics = [FetchTopic("t", None, [FetchPartition(0, offset, 2**20, -1, last_epoch)])]
    request = FetchRequest(0, 1, 2**20, topics=topics, rack_id=rack)
    await client.send(encode_fetch_request(version, 78, "test", request))
    return (await receive_fetch(client, version)).topics[0].partitions[0]


async def test_a_consumer_is_sent_to_the_replica_in_its_rack(racks: Running) -> None:
    client = await racks.connect()
    await produce(client, 9, batch(3), acks=1)
    await follow(racks, client, 3)
    for rack, offset, expected in (("west", 0, FOLLOWER), ("west", 3, FOLLOWER), ("north", 0, -1)):
        found = await consume(client, rack, offset)
        assert (found.error, found.preferred_read_replica) == (0, expected)
        assert bool(found.records) is (expected == -1)
    assert (await consume(client, "east")).preferred_read_replica == -1
    assert (await consume(client, "")).preferred_read_replica == -1


async def test_no_consumer_is_sent_to_who_is_not_in_sync_or_lacks_the_offset(
    racks: Running,
) -> None:
    client = await racks.connect()
    await produce(client, 9, batch(3), acks=1)
    await follow(racks, client, 2)
    await produce(client, 9, batch(1), acks=1)
    assert (await consume(client, "west", 3)).preferred_read_replica == -1
    lead(racks, (1,))
    assert (await consume(client, "west", 0)).preferred_read_replica == -1


async def test_a_replica_that_the_cluster_no_longer_knows_is_not_named(racks: Running) -> None:
    gone = 9
    lead(racks, (1, FOLLOWER, gone), replicas=(1, FOLLOWER, gone))
    found = await consume(await racks.connect(), "west")
    assert (found.error, found.preferred_read_replica) == (0, FOLLOWER)


async def test_a_follower_serves_consumers_below_its_own_high_watermark(racks: Running) -> None:
    """INV-7; one that names no rack was not sent here, and has to find the leader."""
    client = await racks.connect()
    await produce(client, 9, batch(1), acks=1)
    await produce(client, 9, batch(2), acks=1)
    await follow(racks, client, 1)
    partition = partition_of(racks)
    given = assignment((1, FOLLOWER), leader=FOLLOWER, epoch=EPOCH + 1)
    partition.assign(given, 0)
    found = await consume(client, "east")
    assert (found.error, found.high_watermark) == (0, 1)
    assert values(found.records) == [b"value"]
    assert error_of(await consume(client, "east", 9)) is ErrorCode.offset_out_of_range
    assert error_of(await consume(client, "")) is ErrorCode.not_leader_or_follower
    partition.is_being_cut = True
    assert error_of(await consume(client, "east")) is ErrorCode.not_leader_or_follower
    partition.is_being_cut = False
    assert error_of(await fetch(client, leader_epoch=EPOCH)) is ErrorCode.fenced_leader_epoch
    partition.resign(ErrorCode.not_leader_or_follower)
    assert error_of(await consume(client, "east")) is ErrorCode.not_leader_or_follower


async def test_a_follower_that_lags_tells_no_consumer_that_its_records_are_gone(
    racks: Running,
) -> None:
    """Its end is no end of the epoch: the leader has the records that the consumer has read."""
    client = await racks.connect()
    await produce(client, 9, batch(3), acks=1)
    given = assignment((1, FOLLOWER), leader=FOLLOWER, epoch=EPOCH + 1)
    partition_of(racks).assign(given, 0)
    found = await consume(client, "east", 5, last_epoch=EPOCH)
    assert found.diverging_epoch is None
    assert error_of(found) is ErrorCode.offset_out_of_range


async def test_a_parked_follower_learns_a_high_watermark_at_once_for_its_consumers(
    racks: Running,
) -> None:
    client = await racks.connect()
    partition = partition_of(racks)
    given = assignment((1, FOLLOWER, STRANGER), epoch=EPOCH)
    partition.assign(given, racks.broker.clock.monotonic_ms())
    await produce(client, 9, batch(3), acks=1)
    assert (await follow(racks, client, 3)).high_watermark == 0
    await send_follow(racks, client, 3, max_wait_ms=LONG_MS)
    await until(lambda: bool(partition.fetches))
    partition.follower_fetched(STRANGER, 3, 0)
    found = (await receive_fetch(client, VERSION)).topics[0].partitions[0]
    assert (found.records, found.high_watermark) == (b"", 3)
    await send_follow(racks, client, 3, max_wait_ms=LONG_MS)
    await until(lambda: bool(partition.fetches))
    partition.append(batch(), now_ms=NOW_MS)
    assert (await receive_fetch(client, VERSION)).topics[0].partitions[0].records

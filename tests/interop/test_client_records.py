"""Our producer, consumer and admin against a real broker."""

import uuid

import pytest

from oncelog.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    FatalError,
    NewTopic,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    Producer,
    TopicPartition,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import iter_headers

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture
def servers(bootstrap_servers: str) -> str:
    return bootstrap_servers


@pytest.fixture
async def topic(servers: str) -> str:
    """A topic that keeps records of 1970, which retention would delete when it next looks."""
    name = f"client-{uuid.uuid4().hex[:12]}"
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name, 1, configs={"retention.ms": "-1"})])
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_whole_and_in_order(servers: str, topic: str, codec: str) -> None:
    async with Producer(servers, compression_type=codec, linger_ms=2) as producer:
        headers = [("h", b"1"), ("empty", None)]
        sent = [
            producer.send(topic, b"v%d" % i, key=b"k", headers=headers, timestamp_ms=1_000 + i)
            for i in range(1_000)
        ]
        producer.send(topic, None, key=b"tombstone", timestamp_ms=5_000)
        await producer.flush()
        assert [future.result().offset for future in sent] == list(range(1_000))
    async with Consumer(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records: list[ConsumerRecord] = []
        while len(records) < 1_001:
            records += await consumer.poll(2_000, max_records=300)
    assert [r.offset for r in records] == list(range(1_001))
    assert [r.value for r in records[:1_000]] == [b"v%d" % i for i in range(1_000)]
    assert records[7].timestamp_ms == 1_007
    assert records[7].headers == (("h", b"1"), ("empty", None))
    assert (records[-1].key, records[-1].value) == (b"tombstone", None)


async def test_batches_are_fetched_as_bytes_from_any_offset(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    async with Producer(servers) as producer, Consumer(servers) as consumer:
        for i in range(3):
            await producer.send(topic, b"%d" % i)
        fetched = await consumer.fetch_batches(tp, 1)
        offsets = [header.base_offset for _position, header in iter_headers(fetched.batches)]
        assert offsets == [1, 2]
        assert (fetched.next_offset, fetched.high_watermark, fetched.last_stable_offset) == (
            3,
            3,
            3,
        )
        at_end = await consumer.fetch_batches(tp, 3, max_wait_ms=1)
        assert (bytes(at_end.batches), at_end.next_offset) == (b"", 3)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.fetch_batches(tp, 99)


async def test_positions_are_sought_committed_and_taken_up_again(servers: str, topic: str) -> None:
    tp, group = TopicPartition(topic, 0), f"g-{topic}"
    async with Producer(servers) as producer:
        for i in range(5):
            await producer.send(topic, b"%d" % i)
    async with Consumer(servers, group_id=group) as consumer:
        consumer.assign([tp])
        assert [r.value for r in await consumer.poll(2_000, max_records=2)] == [b"0", b"1"]
        assert await consumer.position(tp) == 2
        await consumer.commit()
        assert await consumer.committed() == {tp: OffsetAndMetadata(2, "", 0)}
        consumer.seek(tp, 4)
        assert [r.value for r in await consumer.poll(2_000)] == [b"4"]
    async with Consumer(servers, group_id=group) as consumer:
        consumer.assign([tp])
        assert (await consumer.poll(2_000))[0].offset == 2


async def test_an_admin_describes_what_it_made(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        cluster = await admin.describe_cluster()
        assert cluster.nodes
        described = await admin.describe_topic(topic)
        assert (await admin.list_topics())[topic] == described
        with pytest.raises(FatalError) as raised:
            await admin.create_topics([NewTopic(topic, 1)])
        assert raised.value.code is ErrorCode.topic_already_exists
        await admin.delete_topics([topic])
        with pytest.raises(FatalError) as raised:
            await admin.describe_topic(topic)
        assert raised.value.code is ErrorCode.unknown_topic_or_partition


async def test_offsets_are_found_by_time(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    async with Producer(servers) as producer, Admin(servers) as admin:
        for time_ms in (1_000, 2_000, 3_000):
            await producer.send(topic, b"v", timestamp_ms=time_ms)
        assert await admin.list_offsets({tp: "earliest"}) == {tp: 0}
        assert await admin.list_offsets({tp: "latest"}) == {tp: 3}
        assert await admin.list_offsets({tp: 1_500}) == {tp: 1}
        assert await admin.list_offsets({tp: 9_000}) == {tp: -1}

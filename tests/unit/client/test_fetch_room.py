"""What a consumer fetches ahead stays within its memory, and every partition has its turn."""

from collections.abc import Iterator

import pytest

from oncelog import Consumer, EmbeddedBroker, NewTopic, TopicPartition, sync
from oncelog.client import ConsumerConfig
from oncelog.client.machines.fetch_room import RECORD_OVERHEAD, FetchRoom, held_size
from oncelog.client.values import ConsumerRecord
from oncelog.protocol.record import Record, build_batch

PARTITIONS = [TopicPartition("ahead", n) for n in range(12)]
VALUE = bytes(10_000)
COUNT = 60
PARTITION_SIZE = COUNT * len(VALUE)
ROOM_KB = 512
OPTIONS: ConsumerConfig = {
    "max.partition.fetch.bytes": 128 * 1024,
    "queued.max.messages.kbytes": ROOM_KB,
}


@pytest.fixture(scope="module", params=["none", "gzip"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Twelve partitions of 600 KB each, or of 1 KB where they are compressed."""
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with sync.Admin(servers) as admin:
            admin.create_topics([NewTopic("ahead", len(PARTITIONS))])
        with sync.Producer(
            servers, compression_type=request.param, batch_size=100_000, linger_ms=5
        ) as producer:
            for _ in range(COUNT):
                for tp in PARTITIONS:
                    producer.send("ahead", VALUE, partition=tp.partition)
        yield servers


def held(consumer: Consumer) -> int:
    """The bytes of values that the consumer has fetched and not returned."""
    fetched = consumer._reading._fetched.values()
    return sum(len(record.value or b"") for each in fetched for record in each.records)


async def test_what_is_fetched_ahead_stays_within_the_room(servers: str) -> None:
    async with Consumer(servers, OPTIONS) as consumer:
        consumer.assign(PARTITIONS)
        counts = dict.fromkeys(PARTITIONS, 0)
        most = 0
        while sum(counts.values()) < COUNT * len(PARTITIONS):
            for record in await consumer.poll(max_records=7):
                counts[TopicPartition(record.topic, record.partition)] += 1
            most = max(most, held(consumer))
        assert set(counts.values()) == {COUNT}
        # One partition's fetch may come on top; compressed, it is all of the partition.
        assert most <= ROOM_KB * 1024 + PARTITION_SIZE


async def test_no_partition_starves_behind_those_that_fill_the_room(servers: str) -> None:
    async with Consumer(servers, {**OPTIONS, "fetch.max.bytes": 1}) as consumer:
        consumer.assign(PARTITIONS)
        first: list[int] = []
        while len(set(first)) < len(PARTITIONS):
            first.append((await consumer.poll())[0].partition)
        assert len(first) == len(PARTITIONS), "one batch of each in turn"


async def test_paused_partitions_give_their_room_to_others(servers: str) -> None:
    async with Consumer(servers, {**OPTIONS, "queued.max.messages.kbytes": 64}) as consumer:
        consumer.assign(PARTITIONS)
        offsets: dict[int, list[int]] = {tp.partition: [] for tp in PARTITIONS}
        for _ in PARTITIONS:
            (record,) = await consumer.poll(max_records=1)
            offsets[record.partition].append(record.offset)
            consumer.pause([TopicPartition(record.topic, record.partition)])
            assert held(consumer) <= 64 * 1024 + PARTITION_SIZE
        assert all(offsets.values())
        consumer.resume(PARTITIONS)
        while sum(map(len, offsets.values())) < COUNT * len(PARTITIONS):
            for record in await consumer.poll():
                offsets[record.partition].append(record.offset)
        assert all(found == list(range(COUNT)) for found in offsets.values())


def test_the_room_is_shared_among_brokers_and_shrinks_by_what_grows() -> None:
    room = FetchRoom(1_000)
    room.begin(200)
    assert room.share(2) == 400
    full = []
    for tp in PARTITIONS[:2]:
        room.accept(tp, fetched=100, held=700)
        full.append(room.is_full)
    assert full == [False, True]
    room.begin(0)
    assert 140 < room.share(1) < 300
    assert room.share(10_000) == 1


def test_those_come_first_that_were_served_longest_ago() -> None:
    room = FetchRoom(1_000)
    one, two, three = PARTITIONS[:3]
    for served in (one, two):
        room.begin(0)
        room.accept(served, 1, 1)
    assert room.in_turn([one, two, three]) == [three, one, two]
    assert room.in_turn([two, one]) == [one, two]


def test_compressed_records_count_as_they_are_held_and_others_as_their_batch() -> None:
    headers = (("one", b"1"), ("two", None), ("three", b"333"))
    record = ConsumerRecord("ahead", 0, 0, 0, 0, b"key", b"value", headers)
    plain = build_batch([Record(0, 0, b"key", b"value", headers)])
    packed = build_batch([Record(0, 0, b"key", b"value", headers)], codec="gzip")
    bytes_held = RECORD_OVERHEAD + len("keyvalue") + len("one1two" + "three333")
    assert held_size(plain, [record]) == RECORD_OVERHEAD + len(plain)
    assert held_size(packed, [record]) == bytes_held
    assert held_size(None, [record]) == bytes_held

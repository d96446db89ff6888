"""Clients that write to and read from several brokers, one of which does not answer."""

import asyncio
from typing import Any

import pytest

from oncelog.client import ClientError, Consumer, OffsetAndMetadata, Producer, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import metadata
from oncelog.runtime.network import ProtocolFactory
from tests.support.counted_clock import CountedClock
from tests.unit.client.scripted_broker import TOPIC_ID, ScriptedBroker
from tests.unit.client.test_consumer import batch
from tests.unit.runtime.memory_network import MemoryNetwork

HUNG = "hung"
HELD, READ = TopicPartition("t", 0), TopicPartition("t", 1)


class GoneNetwork(MemoryNetwork):
    """One host refuses every connection."""

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if host == HUNG:
            raise ConnectionRefusedError(host)
        await super().connect(host, port, protocol_factory)


class HungNetwork(MemoryNetwork):
    """Connections to one host come about only once it `goes_on`."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network.on_frame)
        self.goes_on = asyncio.Event()

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if host == HUNG:
            await self.goes_on.wait()
        await super().connect(host, port, protocol_factory)


def held_up(broker: ScriptedBroker) -> HungNetwork:
    """Partition 0 is led by a broker that hangs, partition 1 by one that answers."""
    tell(broker)
    return HungNetwork(broker.network)


def tell(broker: ScriptedBroker, times: int = 1) -> None:
    """Answer so many requests for metadata with another leader of partition 0."""
    places = tuple(
        metadata.MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=0)
        for i, leader in enumerate((2, 1))
    )
    topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=places)
    nodes = (
        metadata.MetadataResponseBroker(node_id=1, host="b", port=1),
        metadata.MetadataResponseBroker(node_id=2, host=HUNG, port=2),
    )
    answer = metadata.MetadataResponse(brokers=nodes, topics=(topic,))
    broker.on(ApiKey.METADATA, *([answer] * times))


async def test_a_leader_that_does_not_answer_holds_up_its_own_partitions_only() -> None:
    broker = ScriptedBroker()
    client = Producer("b:1", network=held_up(broker))
    await client.start()
    held = client.send("t", b"held up", partition=0)
    sent = client.send("t", b"sent", partition=1)
    async with asyncio.timeout(5):
        assert (await sent).partition == 1
    assert not held.done()
    await client.close()
    with pytest.raises(ClientError):
        await held


def reader(broker: ScriptedBroker, network: MemoryNetwork, **options: Any) -> Consumer:
    """A consumer of both partitions, whose logs have one record at each of three offsets."""
    broker.records = {offset: batch(offset, b"x") for offset in range(3)}
    broker.end_offset = 3
    consumer = Consumer("b:1", network=network, **options)
    consumer.assign([HELD, READ])
    consumer.seek(HELD, 0)
    consumer.seek(READ, 0)
    return consumer


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """The partitions and offsets of that many records."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(record.partition, record.offset) for record in await consumer.poll(1_000)]
    return sorted(found)


async def test_a_leader_that_does_not_answer_does_not_keep_others_from_being_read() -> None:
    broker = ScriptedBroker()
    consumer = reader(broker, held_up(broker))
    async with asyncio.timeout(5), consumer:
        for offset in range(3):
            (record,) = await consumer.poll(1_000)
            assert (record.partition, record.offset) == (1, offset)


async def test_what_a_slow_leader_answers_is_returned_by_a_later_poll() -> None:
    broker = ScriptedBroker()
    network = held_up(broker)
    async with asyncio.timeout(5), reader(broker, network) as consumer:
        assert [record.partition for record in await consumer.poll(1_000)] == [1]
        network.goes_on.set()
        assert await read(consumer, 5) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


async def test_what_was_fetched_before_a_seek_is_not_returned_after_it() -> None:
    broker = ScriptedBroker()
    network = held_up(broker)
    async with asyncio.timeout(5), reader(broker, network) as consumer:
        assert [record.partition for record in await consumer.poll(1_000)] == [1]
        consumer.seek(HELD, 2)
        network.goes_on.set()
        assert await read(consumer, 3) == [(0, 2), (1, 1), (1, 2)]


async def test_a_poll_ends_at_its_timeout_and_the_next_takes_the_answer() -> None:
    broker = ScriptedBroker()
    network = held_up(broker)
    async with asyncio.timeout(5), reader(broker, network) as consumer:
        consumer.assign([HELD])
        for timeout_ms in (0, 20):
            assert await consumer.poll(timeout_ms) == []
        network.goes_on.set()
        assert await read(consumer, 1) == [(0, 0)]
        assert [fetch.max_wait_ms for fetch in broker.requests(ApiKey.FETCH)] == [0]


@pytest.mark.parametrize(("fetch_max_wait_ms", "timeout_ms"), [(0, 20), (500, 0.9)])
async def test_a_poll_for_a_held_up_leader_waits_instead_of_spinning(
    fetch_max_wait_ms: int, timeout_ms: float
) -> None:
    broker, clock = ScriptedBroker(), CountedClock()
    options = {"fetch_max_wait_ms": fetch_max_wait_ms, "clock": clock}
    async with asyncio.timeout(5), reader(broker, held_up(broker), **options) as consumer:
        assert [record.partition for record in await consumer.poll(1_000)] == [1]
        consumer.pause([READ])
        clock.reads_count = 0
        assert await consumer.poll(timeout_ms) == []
        assert clock.reads_count <= 10 + 10 * timeout_ms


GONE_TIMES = 1_000


@pytest.mark.parametrize("times", [1, GONE_TIMES], ids=["until it is asked again", "for good"])
async def test_a_leader_that_is_gone_is_looked_for_again_when_a_position_is_checked(
    times: int,
) -> None:
    """By its epoch, before the first fetch; the partitions of other leaders are read meanwhile."""
    broker = ScriptedBroker()
    tell(broker, times)
    broker.epoch_ends = {0: (0, 3)}
    options: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
    async with (
        asyncio.timeout(5),
        reader(broker, GoneNetwork(broker.network.on_frame), **options) as consumer,
    ):
        for place in (HELD, READ):
            consumer.seek(place, OffsetAndMetadata(0, "", 0))
        expected = [(1, 0), (1, 1), (1, 2)]
        if times == 1:
            expected = [(0, 0), (0, 1), (0, 2), *expected]
        assert await read(consumer, len(expected)) == expected
    asked_count = len(broker.requests(ApiKey.METADATA))
    assert asked_count > 1


async def test_a_leader_that_is_gone_keeps_no_other_partition_from_its_first_position() -> None:
    broker = ScriptedBroker()
    tell(broker, GONE_TIMES)
    options: dict[str, Any] = {
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
        "auto_offset_reset": "earliest",
    }
    broker.records = {0: batch(0, b"x")}
    broker.end_offset = 1
    consumer = Consumer("b:1", network=GoneNetwork(broker.network.on_frame), **options)
    consumer.assign([HELD, READ])
    async with asyncio.timeout(5), consumer:
        assert await read(consumer, 1) == [(1, 0)]

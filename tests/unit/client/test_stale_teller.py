"""A client whose broker is cut off from its cluster, and tells of leaders that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.client import Consumer
from oncelog.client.cluster import IN_VAIN_COUNT_MAX
from oncelog.client.machines.metadata import MetadataCache
from oncelog.client.values import Node, TopicDescription
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import metadata
from oncelog.runtime.network import ProtocolFactory
from tests.unit.client.scripted_broker import TOPIC_ID, ScriptedBroker
from tests.unit.client.test_consumer import TP, batch
from tests.unit.runtime.memory_network import MemoryNetwork


class Hosts(MemoryNetwork):
    """Scripted brokers by host. Others refuse."""

    def __init__(self, **brokers: ScriptedBroker) -> None:
        super().__init__(lambda transport, frame: None)
        self._brokers = brokers

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if host not in self._brokers:
            raise ConnectionRefusedError(host)
        await self._brokers[host].network.connect(host, port, protocol_factory)


def tell_of_the_past(broker: ScriptedBroker) -> None:
    """Its metadata stays as it was: the leader is gone since, and it has not heard of the next."""
    place = metadata.MetadataResponsePartition(partition_index=0, leader_id=2, leader_epoch=0)
    topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=(place,))
    nodes = tuple(
        metadata.MetadataResponseBroker(node_id=number, host=host, port=1)
        for number, host in ((1, "aware"), (2, "gone"), (3, "cut"))
    )
    answer = metadata.MetadataResponse(brokers=nodes, topics=(topic,))
    broker.on(ApiKey.METADATA, *([answer] * 1_000))


async def test_another_broker_is_asked_where_one_tells_nothing_new() -> None:
    cut, aware = ScriptedBroker(), ScriptedBroker()
    tell_of_the_past(cut)
    aware.host, aware.leader_epoch = "aware", 1
    aware.records, aware.end_offset = {0: batch(0, b"x")}, 1
    options: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
    network = Hosts(cut=cut, aware=aware)
    async with asyncio.timeout(5), Consumer("cut:1", network=network, **options) as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 0)
        while not (records := await consumer.poll(100)):
            pass
    assert [record.value for record in records] == [b"x"]
    assert len(cut.requests(ApiKey.METADATA)) <= 1 + IN_VAIN_COUNT_MAX


def test_others_come_in_turn_and_those_that_cannot_be_reached_do_not() -> None:
    cache = MetadataCache()
    cache.update_cluster([Node(each, f"h{each}", 1) for each in range(4)], "c", 0)
    down = {("h2", 1): 1}

    def another(turn: int) -> int | None:
        return cache.another("h0:1", turn, lambda place: down.get(place, 0))

    assert [another(turn) for turn in range(3)] == [1, 3, 1]
    down |= {("h1", 1): 2, ("h3", 1): 1}
    assert another(0) is None


def test_an_answer_is_news_unless_it_repeats_what_is_not_fresh() -> None:
    cache = MetadataCache()
    topic = TopicDescription("t", TOPIC_ID, (), False)
    assert cache.update_topic(topic)
    assert cache.update_topic(topic), "it was fresh"
    cache.mark_stale("t")
    assert not cache.update_topic(topic)
    cache.mark_stale("t")
    assert cache.update_topic(TopicDescription("t", TOPIC_ID, (), True))

"""A producer whose batches go to several brokers, one of which does not answer."""

import asyncio

import pytest

from oncelog.client import ClientError, Producer
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import metadata
from oncelog.runtime.network import ProtocolFactory
from tests.unit.client.scripted_broker import TOPIC_ID, ScriptedBroker
from tests.unit.runtime.memory_network import MemoryNetwork

HUNG = "hung"


class HungNetwork(MemoryNetwork):
    """Connections to one host never come about."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network.on_frame)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if host == HUNG:
            await asyncio.Event().wait()
        await super().connect(host, port, protocol_factory)


async def test_a_leader_that_does_not_answer_holds_up_its_own_partitions_only() -> None:
    broker = ScriptedBroker()
    places = tuple(
        metadata.MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=0)
        for i, leader in enumerate((2, 1))
    )
    topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=places)
    nodes = (
        metadata.MetadataResponseBroker(node_id=1, host="b", port=1),
        metadata.MetadataResponseBroker(node_id=2, host=HUNG, port=2),
    )
    broker.on(ApiKey.METADATA, metadata.MetadataResponse(brokers=nodes, topics=(topic,)))
    network = HungNetwork(broker.network)
    client = Producer("b:1", network=network)
    await client.start()
    held = client.send("t", b"held up", partition=0)
    sent = client.send("t", b"sent", partition=1)
    async with asyncio.timeout(5):
        assert (await sent).partition == 1
    assert not held.done()
    await client.close()
    with pytest.raises(ClientError):
        await held

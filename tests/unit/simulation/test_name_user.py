"""A client that asks each coordinator as soon as another broker names it."""

from __future__ import annotations

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicName
from oncelog.protocol.api import ApiKey
from oncelog.simulation.run import undisturbed
from tests.scenarios.cluster.stage import Stage

APIS: dict[TopicName, ApiKey] = {
    CONSUMER_OFFSETS_TOPIC: ApiKey.HEARTBEAT,
    TRANSACTION_STATE_TOPIC: ApiKey.END_TXN,
}


def asked(stage: Stage, topic: TopicName) -> dict[int, int]:
    """How often each broker was asked as a coordinator of that topic, in this life."""
    found = {}
    for node in stage.world.nodes:
        meters = {} if node.broker is None else node.broker.dispatcher.meters
        found[node.index] = sum(
            meter.count for (key, _), meter in meters.items() if key is APIS[topic]
        )
    return found


def led(stage: Stage, topic: TopicName) -> dict[int, int]:
    """How many partitions each broker leads."""
    broker = stage.world.broker.broker
    assert broker is not None
    leaders = [each.leader for each in broker.image.topics[topic].partitions]
    return {node.index: leaders.count(node.index) for node in stage.world.nodes}


def test_each_coordinator_is_asked_once_as_soon_as_another_broker_names_it() -> None:
    stage = Stage()
    with undisturbed(stage.world):
        stage.world.use_names()
        stage.begin()
        before = {topic: led(stage, topic) for topic in APIS}
        assert {topic: asked(stage, topic) for topic in APIS} == before
        stage.perform("broker 1 dies")
        stage.perform("wait 3")
        for topic, leaders in before.items():
            now = asked(stage, topic)
            assert now[0] + now[2] == sum(leaders.values())

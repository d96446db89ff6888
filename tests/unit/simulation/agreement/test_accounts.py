"""What a broker counts, what is left of requests, and what it names after a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from oncelog.simulation.agreement.accounts import accounts, leftovers
from oncelog.simulation.agreement.metadata import differences
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import PeerWire
from tests.unit.simulation.peers.world import play, world

TOPIC = TopicImage("t", UUID(int=1), (PartitionImage(1, 5, (1,), (1,)),), {"retention.ms": "9"})


def image(topic: TopicImage = TOPIC, revision: int = 7) -> MetadataImage:
    return MetadataImage(
        cluster_id="c",
        revision=revision,
        topics=[topic],
        brokers=[BrokerImage(1, "host", 1, None)],
        controller_id=1,
    )


def with_epoch(epoch: int) -> TopicImage:
    return replace(TOPIC, partitions=(replace(TOPIC.partitions[0], leader_epoch=epoch),))


def test_a_wrong_count_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            wire = PeerWire(w.context("c1"), JAVA)
            await wire.open()
            assert list(accounts(w.broker)) == []
            w.broker.server.unread_bytes += 5
            w.broker.partitions.fetch_sessions.partitions_count += 1
            assert len(list(accounts(w.broker))) == 2
            w.broker.server.unread_bytes -= 5
            wire.close()

    play(story())


def test_a_parked_fetch_of_a_connection_that_is_gone_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            wire = PeerWire(w.context("c1"), JAVA)
            connection = await wire.open()
            asked = FetchTopic("t", None, [FetchPartition(0, 0, 1_000)])
            number = connection.next_correlation_id()
            request = FetchRequest(10_000, 1, topics=[asked])
            frame = encode_fetch_request(4, number, "c1", request)
            answer = connection.submit(ApiKey.FETCH, 4, (frame,))
            await wire.context.clock.sleep(100)
            assert list(leftovers(w.broker)) == ["t-0 has 1 parked fetches"]
            wire.close()
            await wire.context.clock.sleep(100)
            assert list(leftovers(w.broker)) == []
            assert answer.exception() is not None

    play(story())


@pytest.mark.parametrize(
    ("after", "was_stopped", "count"),
    [
        (image(), True, 0),
        (image(with_epoch(6)), True, 1),
        (image(with_epoch(6)), False, 0),
        (image(with_epoch(7)), False, 1),
        (image(with_epoch(4)), False, 1),
        (image(revision=6), False, 1),
        (image(replace(TOPIC, config={})), False, 1),
        (image(replace(TOPIC, topic_id=UUID(int=2))), False, 1),
        (image(replace(TOPIC, name="u")), False, 2),
    ],
)
def test_a_restart_changes_nothing_but_leader_epochs(
    after: MetadataImage, was_stopped: bool, count: int
) -> None:
    assert len(list(differences(image(), after, was_stopped=was_stopped, is_lone=True))) == count

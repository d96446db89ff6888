"""Notes of deletions, while the coordinators that may name a deleted topic move."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.controller.events import (
    BrokersChanged,
    BrokerShuttingDown,
    DeletionsConfirmed,
    ElectLeaders,
    ForgetBroker,
    LedCoordinator,
)
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.layout import deleted_path
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition
from tests.unit.controller.cluster import ID, Metadata, broker, registration

NAMES = sorted(INTERNAL_TOPICS)


def metadata(name: str, leader: int = 1, *holders: int) -> Metadata:
    """A partition of an internal topic, and the note of a topic that was deleted."""
    state = PartitionImage(leader, 5, (1, 2, 3), (1, 2, 3), partition_epoch=9)
    topic = TopicImage(name, UUID(int=8), (state,), {"min.insync.replicas": "2"})
    found = Metadata(deleted={"t": {ID: holders}, "old": {UUID(int=4): ()}})
    image = found.image
    found.contents.image = type(image)(
        cluster_id="c",
        topics=[topic],
        brokers=image.brokers.values(),
        deleted=image.deleted,
        directories=image.directories,
    )
    return found


def confirmed(broker_id: int, *led: LedCoordinator) -> DeletionsConfirmed:
    return DeletionsConfirmed(broker_id, frozenset({ID}), frozenset(led))


@pytest.mark.parametrize("name", NAMES)
def test_a_coordinator_that_is_elected_is_asked_again(name: str) -> None:
    on = metadata(name, 1, 1, 2)
    assert on.submit(confirmed(2)).error is ErrorCode.none
    assert on.image.deleted["t"] == {ID: (1,)}
    on.live(broker(2), broker(3))
    on.submit(BrokersChanged())
    assert on.image.topics[name].partitions[0].leader == 2
    assert on.image.deleted == {"t": {ID: (1, 2)}, "old": {UUID(int=4): ()}}


@pytest.mark.parametrize("name", NAMES)
def test_a_confirmation_from_before_an_election_counts_not(name: str) -> None:
    on = metadata(name, 1, 1, 2)
    late = confirmed(2), confirmed(2, LedCoordinator(name, 0, 4))
    on.submit(BrokerShuttingDown(1, 1))
    (state,) = on.image.topics[name].partitions
    assert (state.leader, state.leader_epoch) == (2, 6)
    for event in late:
        assert on.submit(event).error is ErrorCode.fenced_leader_epoch
        assert on.image.deleted["t"] == {ID: (1, 2)}
    assert on.submit(confirmed(1)).error is ErrorCode.none
    assert on.submit(confirmed(2, LedCoordinator(name, 0, 6))).error is ErrorCode.none
    assert "t" not in on.image.deleted


def test_a_coordinator_that_leads_in_a_new_epoch_is_asked_again() -> None:
    on = metadata(NAMES[0], 1, 1, 2)
    assert on.submit(confirmed(1, LedCoordinator(NAMES[0], 0, 5))).error is ErrorCode.none
    uncertain = {TopicPartition(NAMES[0], 0): (5, 17)}
    on.live(broker(1, 2), broker(2), broker(3))
    on.submit(registration(1, 2, uncertain=uncertain))
    assert 1 in on.image.deleted["t"][ID]


def test_notes_are_written_before_the_election_and_once() -> None:
    on = metadata(NAMES[1], 3, 3)
    decision = on.decide(ElectLeaders((TopicPartition(NAMES[1], 0),)))
    paths = [path for path, _ in decision.writes]
    assert paths[0] == deleted_path("old") or paths[0] == deleted_path("t")
    assert len(set(paths)) == len(paths)
    on.write(decision.writes)
    assert on.image.deleted["t"] == {ID: (3, 1)}


def test_an_election_keeps_what_the_same_write_says_of_a_note() -> None:
    on = metadata(NAMES[0], 1, 1, 3)
    on.live(broker(2), broker(3))
    on.submit(BrokersChanged())
    on.live(broker(2))
    on.submit(ForgetBroker(1))
    assert on.image.deleted["t"] == {ID: (3, 2)}

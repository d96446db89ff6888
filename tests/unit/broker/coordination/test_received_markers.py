"""Markers of coordinators on other brokers: whose count, and how often they are appended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordination.markers import LocalLeaders
from oncelog.broker.coordination.received_markers import MarkerSender, ReceivedMarkers
from oncelog.controller.image import BrokerImage, MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction.events import SendMarkers
from tests.unit.broker.coordination.test_markers import Partitions
from tests.unit.broker.support import ME, NOW_MS, HandLoop, batch, make_partition

OTHER = 2
PRODUCER = ProducerId(5)
T0 = TopicPartition("t", 0)
NONE = ErrorCode.none
SHOWN = MetadataImage(cluster_id="c", brokers=[BrokerImage(OTHER, "h", 1, broker_epoch=7)])


class Bench:
    """One partition with a replica on another broker, in which a transaction is open."""

    def __init__(self, folder: Path) -> None:
        self.partition = make_partition(folder, HandLoop(), (ME, OTHER))
        partitions: Any = Partitions(self.partition)
        self.received = ReceivedMarkers(LocalLeaders(partitions))
        self.outcomes: list[tuple[ErrorCode, bool]] = []
        self.open(epoch=0)

    def open(self, epoch: int) -> None:
        data = batch(producer_id=PRODUCER, epoch=epoch, sequence=0, transactional=True)
        assert self.partition.append(data, now_ms=NOW_MS).error is NONE

    def take(self, _: TopicPartition, error: ErrorCode, /, has_ended: bool = False) -> None:
        self.outcomes.append((error, has_ended))

    def write(self, *, leader_epoch: int = 0, epoch: int = 0, coordinator_epoch: int = 3) -> None:
        markers = SendMarkers("", PRODUCER, ProducerEpoch(epoch), coordinator_epoch, True, (T0,), 0)
        self.received.write(T0, leader_epoch, markers, self.take)

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    def replicate(self) -> None:
        self.partition.follower_fetched(OTHER, self.end, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("leader_epoch", [-1, 1])
def test_inv4_a_marker_for_another_leader_is_not_appended(bench: Bench, leader_epoch: int) -> None:
    """It may be late: it was sent to this broker before another led the partition for a while."""
    bench.write(leader_epoch=leader_epoch)
    assert bench.outcomes == [(ErrorCode.not_leader_or_follower, False)]
    assert bench.end == 1


def test_inv4_a_marker_is_settled_when_it_is_committed(bench: Bench) -> None:
    bench.write()
    assert (bench.end, bench.outcomes) == (2, [])
    bench.replicate()
    assert bench.outcomes == [(NONE, False)]


def test_a_marker_that_waits_is_not_appended_again(bench: Bench) -> None:
    """Replicas may be away for minutes, and it is asked for many times a second."""
    for _ in range(3):
        bench.write()
    assert bench.end == 2
    bench.replicate()
    assert bench.outcomes == [(NONE, False)]
    bench.write()
    assert bench.end == 3


def test_a_marker_of_a_later_coordinator_is_appended_beside_one_that_waits(bench: Bench) -> None:
    bench.write()
    bench.write(coordinator_epoch=4)
    assert bench.end == 3
    bench.replicate()
    assert bench.outcomes == [(NONE, False), (NONE, False)]


def test_a_marker_that_waited_for_a_lost_leadership_is_appended_by_the_next(bench: Bench) -> None:
    bench.write()
    bench.partition.stop(ErrorCode.not_leader_or_follower)
    assert bench.outcomes == [(ErrorCode.not_leader_or_follower, False)]
    bench.write()
    assert bench.end == 3


def test_a_refused_marker_says_whether_its_producer_is_idle(bench: Bench) -> None:
    bench.open(epoch=1)
    bench.write()
    assert bench.outcomes == [(ErrorCode.invalid_producer_epoch, False)]
    bench.write(epoch=1)
    bench.write()
    assert len(bench.outcomes) == 1
    bench.replicate()
    assert sorted(bench.outcomes[1:]) == [
        (NONE, False),
        (ErrorCode.invalid_producer_epoch, True),
    ]


def admitted(received: ReceivedMarkers, *sender: int, image: MetadataImage = SHOWN) -> bool:
    return received.admits(MarkerSender(*sender), image)


def test_only_a_life_of_a_broker_that_is_registered_counts(bench: Bench) -> None:
    received = bench.received
    assert not admitted(received, OTHER, 6, 0)
    assert not admitted(received, OTHER, 8, 0)
    assert not admitted(received, 3, 7, 0)
    assert not admitted(received, OTHER, 7, 0, image=MetadataImage(cluster_id="c"))
    assert admitted(received, OTHER, 7, 0)


def test_inv4_a_connection_that_its_sender_has_given_up_counts_no_more(bench: Bench) -> None:
    received = bench.received
    assert admitted(received, OTHER, 7, 0)
    assert admitted(received, OTHER, 7, 2)
    assert not admitted(received, OTHER, 7, 1)
    assert admitted(received, OTHER, 7, 2)
    again = MetadataImage(cluster_id="c", brokers=[BrokerImage(OTHER, "h", 1, broker_epoch=9)])
    assert admitted(received, OTHER, 9, 0, image=again)

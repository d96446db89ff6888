"""End markers: reported when they are committed, and not asked for where the topic is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.coordination.markers import LocalLeaders, MarkerWriter
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction.events import MarkersWritten, SendMarkers
from tests.unit.broker.support import ME, NOW_MS, HandLoop, batch, make_partition

OTHER = 2
PRODUCER = ProducerId(5)
T0 = TopicPartition("t", 0)
U0 = TopicPartition("u", 0)
GONE = TopicPartition("gone", 0)


class Partitions:
    """What the broker holds: one partition of one topic."""

    def __init__(self, held: Partition) -> None:
        self.held = held
        self.clock = self

    def now_ms(self) -> int:
        return NOW_MS

    def get(self, topic: str, index: int) -> Partition | None:
        return self.held if (topic, index) == T0 else None


class Bench:
    """As much of a broker as markers need, and the shard to which they are reported."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = (ME,), epoch: int = 0) -> None:
        self.partition = make_partition(folder, HandLoop(), isr)
        self.reports: list[MarkersWritten] = []
        partitions: Any = Partitions(self.partition)
        self.writer = MarkerWriter(LocalLeaders(partitions), self.stop_because)
        self.show(T0.topic, deleted=GONE.topic)
        first = batch(producer_id=PRODUCER, epoch=epoch, sequence=0, transactional=True)
        assert self.partition.append(first, now_ms=NOW_MS).error is ErrorCode.none

    def show(self, *topics: str, deleted: str = "") -> None:
        """The metadata shows these topics, and may name one deleted."""
        led = (PartitionImage(ME, 0, (ME,), (ME,)),)
        shown = [TopicImage(name, UUID(int=at), led) for at, name in enumerate(topics, 1)]
        named = {deleted: {UUID(int=99): (ME,)}} if deleted else {}
        self.writer.apply(MetadataImage(cluster_id="", topics=shown, deleted=named))

    def stop_because(self, error: BaseException) -> None:
        raise error

    def submit_all(self, events: list[MarkersWritten]) -> None:
        self.reports += events

    def submit(self, event: MarkersWritten) -> None:
        self.reports.append(event)

    async def send(self, *partitions: TopicPartition) -> None:
        """Markers leave in the next turn of the loop, after the reply to EndTxn."""
        epoch = ProducerEpoch(0)
        shard: Any = self
        markers = SendMarkers("txn", PRODUCER, epoch, 3, True, partitions, 0, ordinal=7)
        self.writer.handle(shard, markers)
        assert self.reports == []
        await asyncio.sleep(0)


def report(
    *outcomes: tuple[TopicPartition, ErrorCode], deleted: tuple[TopicPartition, ...] = ()
) -> MarkersWritten:
    return MarkersWritten("txn", PRODUCER, ProducerEpoch(0), 3, outcomes, deleted, 7)


async def test_a_marker_is_written_and_reported_in_the_next_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.send(T0)
    assert bench.reports == [report((T0, ErrorCode.none))]
    assert not bench.partition.log.producers.transaction_is_open(PRODUCER, 0)


async def test_inv4_a_marker_is_reported_only_when_it_is_committed(tmp_path: Path) -> None:
    """COMPLETE stands on the report: a leader lost before would take the marker with it."""
    bench = Bench(tmp_path, (ME, OTHER))
    await bench.send(T0)
    marker_end = bench.partition.log.log_end_offset
    bench.partition.follower_fetched(OTHER, marker_end - 1, 0)
    assert bench.reports == []
    bench.partition.follower_fetched(OTHER, marker_end, 0)
    assert bench.reports == [report((T0, ErrorCode.none))]


async def test_a_marker_of_a_leadership_that_ends_first_is_reported_as_failed(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    await bench.send(T0)
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    assert bench.reports == [report((T0, ErrorCode.not_leader_or_follower))]


async def test_a_topic_deleted_before_its_marker_is_committed_is_not_unknown(
    tmp_path: Path,
) -> None:
    """The partition hears of a deletion first; at the retry the metadata names it."""
    bench = Bench(tmp_path, (ME, OTHER))
    await bench.send(T0)
    bench.partition.resign(ErrorCode.unknown_topic_or_partition)
    bench.show(deleted=T0.topic)
    assert bench.reports.pop() == report((T0, ErrorCode.not_leader_or_follower))
    await bench.send(T0)
    assert bench.reports == [report(deleted=(T0,))]


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_deleted_partition_is_reported_as_deleted_and_not_retried(
    tmp_path: Path, is_held: bool
) -> None:
    """By the metadata image: the broker may still hold the folder, or have removed it already."""
    bench = Bench(tmp_path)
    gone = T0 if is_held else GONE
    bench.show(deleted=gone.topic)
    end = bench.partition.log.log_end_offset
    await bench.send(gone)
    assert bench.reports == [report(deleted=(gone,))]
    assert bench.partition.log.log_end_offset == end


@pytest.mark.parametrize("is_held", [True, False])
async def test_inv4_a_marker_stays_owed_where_the_metadata_shows_no_topic(
    tmp_path: Path, is_held: bool
) -> None:
    """Absence is no deletion: the image may be a change behind, or the store an older copy."""
    bench = Bench(tmp_path)
    absent = T0 if is_held else U0
    bench.show(deleted=GONE.topic)
    end = bench.partition.log.log_end_offset
    await bench.send(GONE, absent)
    failed = (absent, ErrorCode.unknown_topic_or_partition)
    assert bench.reports == [report(failed, deleted=(GONE,))]
    assert bench.partition.log.log_end_offset == end


async def test_inv4_every_marker_stays_owed_whose_topic_the_metadata_does_not_show(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.show(T0.topic)
    await bench.send(T0, U0, GONE)
    unknown = ErrorCode.unknown_topic_or_partition
    assert bench.reports == [report((U0, unknown), (GONE, unknown), (T0, ErrorCode.none))]


class Shard:
    """Another shard to which markers are reported."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def submit_all(self, events: list[MarkersWritten]) -> None:
        self.told += [event.transactional_id for event in events]


async def test_each_shard_is_told_of_its_own_markers_in_the_same_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    one, other = Shard(), Shard()
    for name, shard in (("a", one), ("b", other)):
        to: Any = shard
        bench.writer.handle(to, SendMarkers(name, PRODUCER, ProducerEpoch(0), 3, True, (T0,), 0))
    await asyncio.sleep(0)
    assert (one.told, other.told) == (["a"], ["b"])


async def test_a_partition_that_a_newer_topic_does_not_have_is_deleted(tmp_path: Path) -> None:
    """Topics do not shrink: one with fewer partitions, made under a deleted name, is another."""
    bench = Bench(tmp_path)
    bench.show(T0.topic)
    beyond = TopicPartition(T0.topic, 1)
    await bench.send(beyond)
    assert bench.reports == [report((beyond, ErrorCode.unknown_topic_or_partition))]
    bench.reports.clear()
    bench.show(T0.topic, deleted=T0.topic)
    await bench.send(beyond)
    assert bench.reports == [report(deleted=(beyond,))]


async def test_what_is_left_of_a_transaction_is_marked_where_a_topic_is_gone(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    await bench.send(GONE, T0)
    assert bench.reports == [report((T0, ErrorCode.none), deleted=(GONE,))]


async def test_a_partition_that_is_led_elsewhere_is_reported_as_such(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    await bench.send(T0)
    assert bench.reports == [report((T0, ErrorCode.not_leader_or_follower))]


async def test_a_failed_marker_is_reported_while_another_partition_is_slow(
    tmp_path: Path,
) -> None:
    """Its retry must not wait for a replica of a partition that has nothing to do with it."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.show(T0.topic, U0.topic, deleted=GONE.topic)
    await bench.send(GONE, T0, U0)
    failed = report((U0, ErrorCode.not_leader_or_follower), deleted=(GONE,))
    assert bench.reports == [failed]
    bench.partition.follower_fetched(OTHER, bench.partition.log.log_end_offset, 0)
    assert bench.reports == [failed, report((T0, ErrorCode.none))]


async def test_markers_that_are_written_are_reported_together(tmp_path: Path) -> None:
    """One report for a transaction is the usual case: only failures are worth more."""
    bench = Bench(tmp_path, (ME, OTHER))
    await bench.send(T0, T0)
    bench.partition.follower_fetched(OTHER, bench.partition.log.log_end_offset, 0)
    assert bench.reports == [report((T0, ErrorCode.none), (T0, ErrorCode.none))]


def bump(bench: Bench) -> None:
    """A batch of the same producer id outside of transactions, with a higher epoch."""
    data = batch(producer_id=PRODUCER, epoch=1, sequence=0)
    assert bench.partition.append(data, now_ms=NOW_MS).error is ErrorCode.none


async def test_a_marker_that_is_refused_where_nothing_is_open_has_nothing_to_end(
    tmp_path: Path,
) -> None:
    """What was verified for it may open nothing any more either (INV-3)."""
    bench = Bench(tmp_path)
    await bench.send(T0)
    bump(bench)
    bench.reports.clear()
    verifications = bench.partition.log.producers.verifications
    waiting = verifications.begin(PRODUCER, 0, 0, bumps_epoch=False, now_ms=NOW_MS)
    await bench.send(T0)
    (told,) = bench.reports
    assert (told.outcomes, told.closed) == ((), ((T0, ErrorCode.invalid_producer_epoch),))
    assert not verifications.allows(waiting)


async def test_inv4_a_marker_that_is_refused_where_a_transaction_is_open_is_owed(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, epoch=1)
    await bench.send(T0)
    assert bench.reports == [report((T0, ErrorCode.invalid_producer_epoch))]


def refused() -> MarkersWritten:
    """The report of a marker that came after somebody else's had ended the transaction."""
    closed = ((T0, ErrorCode.invalid_producer_epoch),)
    return replace(report(), closed=closed)


async def test_inv4_what_ended_the_transaction_instead_is_committed_first(tmp_path: Path) -> None:
    """COMPLETE stands on this report, too."""
    bench = Bench(tmp_path, (ME, OTHER))
    end_by_other(bench)
    await bench.send(T0)
    assert bench.reports == []
    bench.partition.follower_fetched(OTHER, bench.partition.log.log_end_offset, 0)
    assert bench.reports == [refused()]


@pytest.mark.parametrize(
    "error", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition]
)
async def test_a_leadership_that_ends_meanwhile_has_the_marker_sent_again(
    tmp_path: Path, error: ErrorCode
) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    end_by_other(bench)
    await bench.send(T0)
    bench.partition.resign(error)
    assert bench.reports == [report((T0, ErrorCode.not_leader_or_follower))]


def end_by_other(bench: Bench) -> None:
    """Somebody's marker, of a newer epoch of the producer."""
    bench.partition.append_marker(
        PRODUCER, 1, 3, commit=False, now_ms=NOW_MS, transaction_version=0
    )

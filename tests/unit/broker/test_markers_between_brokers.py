"""Markers of a coordinator on one broker for partitions that others lead, over real connections."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from oncelog.transaction.events import MarkersWritten, SendMarkers
from tests.support.members import Cluster, members
from tests.unit.broker.support import NOW_MS, batch
from tests.unit.broker.test_several_brokers import asked, controller_of

PRODUCER, EPOCH = ProducerId(77), ProducerEpoch(0)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
ALONE = TopicPartition("alone", 0)
PLACED = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
NONE = ErrorCode.none
RETRY_MS = 10


class Coordinator:
    """The shard of a transaction on one broker: it sends again what has failed."""

    def __init__(self, cluster: Cluster, broker_id: int = 1) -> None:
        self.markers = cluster[broker_id].broker.markers
        self.owed: set[TopicPartition] = set()
        self.errors: dict[TopicPartition, list[ErrorCode]] = {}
        self.closed: list[TopicPartition] = []
        self._sent: SendMarkers

    def commit(self, *partitions: TopicPartition, coordinator_epoch: int = 0) -> None:
        self.owed |= set(partitions)
        self._sent = SendMarkers(
            "txn", PRODUCER, EPOCH, coordinator_epoch, True, partitions, transaction_version=0
        )
        self._send(self._sent)

    def submit(self, event: MarkersWritten) -> None:
        for label, error in event.outcomes:
            self.errors.setdefault(label, []).append(error)
        for label, _ in event.closed:
            self.closed.append(label)
        done = {label for label, error in event.outcomes if error is NONE}
        failed = {label for label, _ in event.outcomes} - done
        self.owed -= {*done, *self.closed}
        if failed:
            self._send(replace(self._sent, partitions=tuple(failed), delay_ms=RETRY_MS))

    def _send(self, sent: SendMarkers) -> None:
        shard: Any = self
        self.markers.handle(shard, sent)


@asynccontextmanager
async def three() -> AsyncIterator[Cluster]:
    """Three brokers, and a transaction that is open in the partitions of two topics."""
    config = {"min.insync.replicas": 1, "replica.lag.time.max.ms": 600_000}
    async with members(3, config) as cluster:
        topics = [
            TopicToCreate("t", assignment=PLACED),
            TopicToCreate("alone", assignment={0: (2,)}),
            TopicToCreate(TRANSACTION_STATE_TOPIC, assignment={0: (1,)}),
        ]
        for outcome in await controller_of(cluster).create_topics(topics):
            assert outcome.error is NONE, outcome
        await cluster.agreed()
        for label in (T0, T1, T2, ALONE):
            open_transaction(cluster, label)
        await cluster.until(
            lambda: all(led(cluster, label).state.high_watermark == 1 for label in (T0, T1, T2))
        )
        yield cluster


def led(cluster: Cluster, label: TopicPartition) -> Partition:
    """A partition, at its leader."""
    found = cluster[cluster.leader_of(*label)].broker.partitions.get(*label)
    assert found is not None
    return found


def open_transaction(cluster: Cluster, label: TopicPartition) -> None:
    data = batch(producer_id=PRODUCER, epoch=EPOCH, sequence=0, transactional=True)
    assert led(cluster, label).append(data, now_ms=NOW_MS).error is NONE


def is_open(cluster: Cluster, label: TopicPartition) -> bool:
    return led(cluster, label).log.producers.transaction_is_open(PRODUCER, EPOCH)


async def test_the_leaders_on_three_brokers_end_a_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """None of them takes the coordinator for somebody who ends it past its coordinator."""
    async with three() as cluster:
        coordinator = Coordinator(cluster)
        with caplog.at_level(logging.WARNING):
            coordinator.commit(T0, T1, T2)
            await cluster.until(lambda: not coordinator.owed)
        assert not any(is_open(cluster, label) for label in (T0, T1, T2))
        assert is_open(cluster, ALONE)
        assert [text for text in caplog.messages if "WriteTxnMarkers" in text] == []


async def test_inv4_the_next_leader_writes_the_marker_of_one_that_dies() -> None:
    async with three() as cluster:
        await cluster.kill(2)
        coordinator = Coordinator(cluster)
        coordinator.commit(T0, T1, T2)
        await cluster.until(lambda: T1 in coordinator.errors)
        assert coordinator.owed >= {T1}
        cluster.expire(2)
        await cluster.until(lambda: not coordinator.owed)
        assert cluster.leader_of(*T1) == 3
        assert not is_open(cluster, T1)


async def test_a_partition_whose_replica_is_away_holds_up_only_itself() -> None:
    """Its marker is written once, however often it is asked for."""
    async with three() as cluster:
        await cluster.kill(3)
        end = led(cluster, T1).log.log_end_offset
        coordinator = Coordinator(cluster)
        coordinator.commit(T1, ALONE)
        await cluster.until(lambda: len(coordinator.errors.get(T1, ())) >= 2)
        assert coordinator.owed == {T1}
        assert coordinator.errors[ALONE] == [NONE]
        assert set(coordinator.errors[T1]) == {ErrorCode.request_timed_out}
        assert led(cluster, T1).log.log_end_offset == end + 1
        cluster.expire(3)
        await cluster.until(lambda: not coordinator.owed)


async def mark(cluster: Cluster, label: TopicPartition, coordinator_epoch: int) -> None:
    """An administrator's marker."""
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        coordinator_epoch=coordinator_epoch,
        topics=(WritableTxnMarkerTopic(name=label.topic, partition_indexes=(label.partition,)),),
    )
    async with asked(cluster, cluster.leader_of(*label)) as client:
        answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, markers=(marker,))
        assert answer.markers[0].topics[0].partitions[0].error_code is NONE


async def test_a_marker_that_is_refused_elsewhere_has_nothing_to_end() -> None:
    async with three() as cluster:
        await mark(cluster, T1, coordinator_epoch=99)
        coordinator = Coordinator(cluster)
        coordinator.commit(T1, T2)
        await cluster.until(lambda: not coordinator.owed)
        assert coordinator.closed == [T1]


async def test_inv4_a_coordinator_that_was_replaced_ends_nothing() -> None:
    """Its partition has a later leader epoch in the store."""
    async with three() as cluster:
        await mark(cluster, T1, coordinator_epoch=99)
        coordinator = Coordinator(cluster)
        coordinator.commit(T1, coordinator_epoch=-1)
        await cluster.until(lambda: T1 in coordinator.errors)
        assert coordinator.closed == []
        assert set(coordinator.errors[T1]) == {ErrorCode.not_coordinator}


async def test_inv4_a_life_that_is_over_ends_nothing() -> None:
    """What a broker sends counts while it is registered in the life in which it sends it."""
    async with three() as cluster:
        end = led(cluster, T1).log.log_end_offset
        membership = cluster[1].broker.membership
        membership.broker_epoch -= 1
        coordinator = Coordinator(cluster)
        coordinator.commit(T1)
        await cluster.until(lambda: T1 in coordinator.errors)
        assert set(coordinator.errors[T1]) == {ErrorCode.not_leader_or_follower}
        assert led(cluster, T1).log.log_end_offset == end
        membership.broker_epoch += 1
        await cluster.until(lambda: not coordinator.owed)

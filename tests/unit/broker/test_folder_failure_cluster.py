"""A log directory of one broker of several fails: others lead its partitions, nothing is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.client import Producer
from oncelog.controller.image import PartitionImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.support.members import Cluster, members
from tests.unit.broker.test_folder_failure import BreakingDisk
from tests.unit.storage.context import read_all

ALL = (1, 2, 3)
PARTITIONS_COUNT = 4
SETTINGS = {"min.insync.replicas": 2, "replica.fetch.backoff.ms": 20}


@asynccontextmanager
async def with_a_bad_disk(*names: str) -> AsyncIterator[tuple[Cluster, BreakingDisk]]:
    """Three brokers; broker 1 has these folders, and leads every partition of topic `t`."""
    disk = BreakingDisk()
    try:
        async with members(3, SETTINGS, starts=False) as cluster:
            member = cluster[1]
            member.disk = disk
            member.config["log.dirs"] = ",".join(f"{member.folder}/{name}" for name in names)
            await cluster.start(*ALL)
            new = TopicToCreate("t", assignment=dict.fromkeys(range(PARTITIONS_COUNT), ALL))
            (made,) = await member.broker.controller.create_topics([new])
            assert made.error is ErrorCode.none, made
            await cluster.agreed()
            yield cluster, disk
    finally:
        disk.close()


def folder_of(cluster: Cluster, number: int) -> str:
    partition = cluster[1].broker.partitions.get("t", number)
    assert partition is not None
    return partition.log.directory.rpartition("/")[0]


def states(cluster: Cluster) -> tuple[PartitionImage, ...]:
    """As broker 2 shows them."""
    return cluster[2].broker.image.topics["t"].partitions


async def send(producer: Producer, count: int) -> None:
    """Have so many records acknowledged in each partition."""
    for number in range(PARTITIONS_COUNT):
        for value in range(count):
            await producer.send("t", b"%d" % value, partition=number)


async def all_agree(cluster: Cluster, records_count: int) -> None:
    """Return once every replica is in sync and holds so many records, the same everywhere."""
    await cluster.until(lambda: all({*one.isr} == {*ALL} for one in states(cluster)))
    for number in range(PARTITIONS_COUNT):
        logs = []
        for member in cluster:
            partition = member.broker.partitions.get("t", number)
            assert partition is not None
            logs.append(partition.log)
        await cluster.until(
            lambda logs=logs: all(log.log_end_offset == records_count for log in logs)  # type: ignore[misc]
        )
        assert len({read_all(log) for log in logs}) == 1


async def test_partitions_of_a_failed_folder_are_led_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_a_bad_disk("a", "b") as (cluster, disk):
        bad = folder_of(cluster, 0)
        lost = [n for n in range(PARTITIONS_COUNT) if folder_of(cluster, n) == bad]
        assert 0 < len(lost) < PARTITIONS_COUNT
        servers = cluster[2].broker.bootstrap_servers
        async with Producer(servers, acks="all") as producer:
            await send(producer, 5)
            disk.broken[bad] = errno.EIO
            await send(producer, 5)
            await cluster.until(
                lambda: all({*states(cluster)[number].isr} == {2, 3} for number in lost)
            )
            for number, state in enumerate(states(cluster)):
                assert state.leader == (2 if number in lost else 1)
                assert state.offline_replicas == ((1,) if number in lost else ())
                assert len(state.isr) == (2 if number in lost else 3)
            disk.broken.clear()
            await cluster.restart(1)
            await send(producer, 5)
        await all_agree(cluster, 15)
    assert "unclean election" not in caplog.text


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_broker_whose_only_folder_fails_is_replaced(
    caplog: pytest.LogCaptureFixture, number: int
) -> None:
    async with with_a_bad_disk("a") as (cluster, disk):
        broker = cluster[1].broker
        servers = ",".join(cluster[each].broker.bootstrap_servers for each in (2, 3))
        async with Producer(servers, acks="all") as producer:
            await send(producer, 5)
            disk.broken[folder_of(cluster, 0)] = number
            sending = asyncio.create_task(send(producer, 5))
            await broker.wait_until_stop_is_requested()
            await cluster.stop(1)
            await sending
            assert {(one.leader, one.isr) for one in states(cluster)} == {(2, (2, 3))}
            disk.broken.clear()
            await cluster.start(1)
            await send(producer, 5)
        await all_agree(cluster, 15)
    assert "unclean election" not in caplog.text

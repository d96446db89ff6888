"""The disk of a broker is exchanged for an empty one, with records that no other may have."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.client import Producer
from oncelog.controller.events import ElectLeaders
from oncelog.core.ids import TopicPartition
from oncelog.storage import PartitionLog
from tests.support.members import Cluster, members
from tests.unit.broker.test_several_brokers import create, isr_of
from tests.unit.storage.context import read_all

T0 = TopicPartition("t", 0)


async def send(cluster: Cluster, *values: bytes) -> None:
    async with Producer(next(iter(cluster)).broker.bootstrap_servers, acks="all") as producer:
        for value in values:
            await producer.send("t", value)
        await producer.flush()


@asynccontextmanager
async def with_an_exchanged_disk(earlier: Path) -> AsyncIterator[Cluster]:
    """Broker 2 alone was in sync, and had record `b`; its folder of then is at `earlier`."""
    async with members(2) as cluster:
        await create(cluster, "t", (2, 1))
        await send(cluster, b"a")
        await cluster.until(lambda: len({one.log_end_offset for one in logs(cluster)}) == 1)
        await cluster.stop(1)
        await cluster.until(lambda: isr_of(cluster, "t") == (2,))
        await send(cluster, b"b")
        await cluster.stop(2)
        shutil.copytree(cluster[2].folder, earlier)
        shutil.rmtree(cluster[2].folder)
        await cluster.start(1, 2)
        assert cluster.leader_of("t", 0) == -1
        yield cluster


def logs(cluster: Cluster) -> list[PartitionLog]:
    found = [member.broker.partitions.get("t", 0) for member in cluster]
    return [one.log for one in found if one is not None]


async def elect_uncleanly(cluster: Cluster) -> None:
    await cluster[1].broker.controller.submit(ElectLeaders((T0,), is_unclean=True))
    await cluster.until(lambda: cluster.leader_of("t", 0) == 1)


async def all_agree(cluster: Cluster, *values: bytes) -> None:
    await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2})
    await send(cluster, *values)
    await cluster.until(lambda: len({one.log_end_offset for one in logs(cluster)}) == 1)
    first, second = logs(cluster)
    assert read_all(first) == read_all(second)


async def test_a_lost_replica_is_made_again_once_another_broker_leads(tmp_path: Path) -> None:
    async with with_an_exchanged_disk(tmp_path / "earlier") as cluster:
        broker = cluster[2].broker
        assert broker.partitions.get("t", 0) is None
        assert broker.logs.missing
        await elect_uncleanly(cluster)
        await all_agree(cluster, b"c")
        # Nothing waits for that disk any more, so that deletions and removals can be confirmed.
        await cluster.until(lambda: not broker.logs.missing)


async def test_a_disk_that_comes_back_after_that_is_cut_to_its_leader(tmp_path: Path) -> None:
    async with with_an_exchanged_disk(tmp_path / "earlier") as cluster:
        await elect_uncleanly(cluster)
        await all_agree(cluster, b"c", b"d")
        await cluster.stop(2)
        shutil.rmtree(cluster[2].folder)
        shutil.copytree(tmp_path / "earlier", cluster[2].folder)
        await cluster.start(2)
        await all_agree(cluster, b"e")
        assert {one.log_end_offset for one in logs(cluster)} == {4}  # Without `b`.


async def test_an_empty_broker_counts_in_no_isr_that_it_was_in() -> None:
    """Also where it is the first that is back: it waits for one that has the records."""
    async with members(3, {"min.insync.replicas": 2}) as cluster:
        await create(cluster, "t", (3, 1, 2))
        await send(cluster, b"a", b"b")
        for broker_id in (1, 2, 3):
            await cluster.kill(broker_id)
            cluster.expire(broker_id)
        shutil.rmtree(cluster[3].folder)
        await cluster.start(3)
        await cluster.until(lambda: 3 not in isr_of(cluster, "t"))
        await cluster.until(lambda: [log.log_end_offset for log in logs(cluster)] == [0])
        assert cluster.leader_of("t", 0) == -1
        await cluster.start(2)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 2)
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {2, 3})
        assert [log.log_end_offset for log in logs(cluster)] == [2, 2]


async def test_an_empty_broker_leads_again_with_all_that_was_acknowledged() -> None:
    async with members(3, {"min.insync.replicas": 2}) as cluster:
        await create(cluster, "t", (3, 1, 2))
        await send(cluster, b"a")
        await cluster.kill(3)
        shutil.rmtree(cluster[3].folder)
        cluster.expire(3)
        await send(cluster, b"b")
        await cluster.start(3)
        await send(cluster, b"c")
        await cluster.until(lambda: set(isr_of(cluster, "t")) == {1, 2, 3})
        for broker_id in (1, 2):
            await cluster.kill(broker_id)
            cluster.expire(broker_id)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 3)
        assert [log.log_end_offset for log in logs(cluster)] == [3]

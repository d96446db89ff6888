"""Which fetcher fetches for which partition of this broker.

`num.replica.fetchers` for each broker that leads some of them. A partition has one fetcher at a
time: a new leader has it dropped from the old one first.
"""

from __future__ import annotations

import asyncio
from zlib import crc32

from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.partitions.following import Following
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.peers.connections import PeerNetwork
from oncelog.broker.replication.fetcher import FetcherParts, FetchSettings, ReplicaFetcher
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicPartition
from oncelog.replication.follower import FollowerState
from oncelog.runtime.clock import Clock

__all__ = ["Fetchers", "make_fetchers"]


class Fetchers:
    """The fetchers of one broker."""

    def __init__(self, parts: FetcherParts, per_leader_count: int) -> None:
        self._parts = parts
        self._per_leader_count = per_leader_count
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._of: dict[TopicPartition, tuple[Partition, ReplicaFetcher]] = {}
        self._new: list[ReplicaFetcher] = []
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._of)

    def follow(self, partition: Partition) -> None:
        """Fetch for a partition by its role as it is now, or no more if it is no follower's."""
        label, state = partition.topic_partition, partition.state
        fetcher = None
        if isinstance(state, FollowerState) and state.leader >= 0:
            fetcher = self._fetcher(label, state.leader)
        before = self._of.get(label)
        if before != (partition, fetcher):
            self.forget(label)
        if fetcher is not None:
            self._of[label] = partition, fetcher
            fetcher.follow(partition)

    def forget(self, label: TopicPartition) -> None:
        """Fetch for a partition no more."""
        held = self._of.pop(label, None)
        if held is not None:
            partition, fetcher = held
            fetcher.drop(partition)

    async def run(self) -> None:
        """Run the fetchers, until cancelled. Raises what must not happen."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for fetcher in self._new:
                        tasks.create_task(fetcher.run())
                    self._new.clear()
                    self._changed.clear()
                    await self._changed.wait()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _fetcher(self, label: TopicPartition, leader_id: int) -> ReplicaFetcher:
        index = crc32(str(label).encode()) % self._per_leader_count
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, index] = ReplicaFetcher(leader_id, self._parts)
            self._new.append(fetcher)
            self._changed.set()
        return fetcher


def make_fetchers(
    following: Following,
    config: BrokerConfig,
    network: PeerNetwork,
    clock: Clock,
    feed: MetadataFeed,
) -> Fetchers:
    """Make those of a broker. Leaders are sought in the metadata that it knows, applied or not."""
    broker_id = config.get_int("node.id")

    def broker_epoch() -> int:
        me = feed.known.image.brokers.get(broker_id)
        return -1 if me is None else me.broker_epoch

    parts = FetcherParts(
        broker_id,
        FetchSettings.of(config),
        network,
        clock,
        lambda leader_id: feed.known.image.brokers.get(leader_id),
        broker_epoch,
        following,
    )
    return Fetchers(parts, config.get_int("num.replica.fetchers"))

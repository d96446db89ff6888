"""Asks the other brokers whom they name as leaders, before a broker that stops closes its listener.

What one reply names the next request finds: a client to which another broker names this one
must still be served, or be told of the next leader. Apache Kafka's controller lets a broker
go on the same condition, once the heartbeats of all active brokers have passed the hand-over
(KIP-631, `BrokerHeartbeatManager`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection
from typing import Final

from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.peers.connections import PeerNetwork, Peers
from oncelog.core.cluster_limits import (
    HANDOVER_LOOK_MS,
    HANDOVER_TOPICS_TOGETHER_COUNT_MAX,
    HANDOVER_WAIT_MS_MAX,
)
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.runtime.clock import Clock

__all__ = ["Handover"]

log = logging.getLogger(__name__)

_VERSION: Final = 4
"""The first one that creates no topic."""


class Handover:
    """Waits until no other broker names this one as a leader."""

    def __init__(
        self,
        broker_id: int,
        feed: MetadataFeed,
        network: PeerNetwork,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._broker_id = broker_id
        self._feed = feed
        self._clock = clock
        self._peers = Peers(
            network,
            f"broker-{broker_id}-handover",
            lambda: feed.known.stored,
            HANDOVER_WAIT_MS_MAX,
            clock,
            rng,
        )

    def led(self) -> set[TopicPartition]:
        """Return the partitions that this broker leads."""
        return {
            TopicPartition(name, number)
            for name, topic in self._feed.known.stored.topics.items()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == self._broker_id
        }

    async def heard(self, partitions: Collection[TopicPartition]) -> None:
        """Return once all others that answer have applied that this broker leads none of these.

        One that does not learn of it keeps the stop for `HANDOVER_WAIT_MS_MAX`.
        """
        others = set(self._feed.known.stored.brokers) - {self._broker_id}
        unaware: set[int] = set()
        names = sorted({each.topic for each in partitions})
        try:
            async with asyncio.timeout(HANDOVER_WAIT_MS_MAX / 1000):
                for begin in range(0, len(names), HANDOVER_TOPICS_TOGETHER_COUNT_MAX):
                    asked = names[begin : begin + HANDOVER_TOPICS_TOGETHER_COUNT_MAX]
                    unaware = others
                    while unaware := await self._unaware(sorted(unaware), asked, partitions):
                        await self._clock.sleep(HANDOVER_LOOK_MS)
        except TimeoutError:
            log.warning("brokers %s may still name this one as a leader", sorted(unaware))
        finally:
            await self._peers.close()

    async def _unaware(
        self, others: list[int], names: list[str], partitions: Collection[TopicPartition]
    ) -> set[int]:
        """Return those that name this broker as the leader of a partition of these topics."""
        asked = tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        are = await asyncio.gather(
            *(self._is_unaware(each, request, partitions) for each in others)
        )
        return {each for each, is_unaware in zip(others, are, strict=True) if is_unaware}

    async def _is_unaware(
        self, other: int, request: MetadataRequest, partitions: Collection[TopicPartition]
    ) -> bool:
        try:
            response = await self._peers.ask(other, ApiKey.METADATA, _VERSION, request)
        except (OncelogError, OSError):
            return False  # It tells no client anything either.
        return any(
            partition.leader_id == self._broker_id
            and TopicPartition(topic.name or "", partition.partition_index) in partitions
            for topic in response.topics
            for partition in topic.partitions
        )

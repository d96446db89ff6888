"""Asks a cluster how its brokers and replicas are, for ``oncelog cluster status``.

What it asks is Kafka's: DescribeCluster, DescribeTopicPartitions, ListPartitionReassignments,
DescribeConfigs of topics whose replicas are not all in sync, and of each broker where its logs end
(ListOffsets as any replica).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from oncelog.client import Admin, ClusterDescription, PartitionDescription

__all__ = ["BrokerStatus", "ClusterStatus", "PartitionTrouble", "survey"]

MIN_ISR = "min.insync.replicas"
ANSWER_S_MAX = 5.0
"""The time that each broker has to say where its logs end."""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker; an address of None means that it is away."""

    broker_id: int
    address: str | None
    rack: str | None
    is_controller: bool
    leads_count: int
    preferred_count: int
    """The partitions that it would lead if all brokers were in sync."""
    replicas_count: int
    behind_count: int
    """Its replicas that are not in the ISR."""
    lag: int | None
    """Records that its replicas lack of what their leaders have; None where it does not say."""
    coordinates_count: int
    """The partitions of the internal topics that it leads: it coordinates their groups and ids."""


@dataclass(frozen=True, slots=True)
class PartitionTrouble:
    """A partition of which not all replicas are in sync."""

    label: TopicPartition
    partition: PartitionDescription
    min_isr: int
    lags: Mapping[int, int]
    """By broker, the records that its replica lacks of what the leader has."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        return tuple(one for one in self.partition.replicas if one not in self.partition.isr)

    @property
    def state(self) -> str:
        """The worst that is to be said of it."""
        if self.partition.leader < 0:
            return "off line"
        if len(self.partition.isr) < min(self.min_isr, len(self.partition.replicas)):
            return "under min ISR"
        if set(self.missing) <= set(self.adding):
            return "reassigning"
        return "under-replicated"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One look at a cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: Sequence[BrokerStatus]
    partitions_count: int
    troubles: Sequence[PartitionTrouble]

    def count(self, state: str) -> int:
        """The partitions of a state."""
        return sum(one.state == state for one in self.troubles)

    @property
    def under_replicated_count(self) -> int:
        """The partitions that lack a replica in sync, beside those that are being added."""
        return sum(not set(one.missing) <= set(one.adding) for one in self.troubles)


_Partitions = Mapping[TopicPartition, "PartitionDescription"]
_Ends = Mapping[int, Mapping[TopicPartition, int]]


async def survey(admin: Admin) -> ClusterStatus:
    """Look once."""
    cluster = await admin.describe_cluster()
    topics = await admin.describe_replicas()
    partitions = {
        TopicPartition(name, one.index): one
        for name, topic in sorted(topics.items())
        for one in topic.partitions
    }
    troubled = {label: one for label, one in partitions.items() if _is_troubled(one)}
    min_isrs = await _min_isrs(admin, sorted({label.topic for label in troubled}))
    moving = await admin.list_partition_reassignments() if troubled else {}
    ends = await _ends(admin, cluster, partitions)
    troubles = [
        PartitionTrouble(
            label,
            one,
            min_isrs[label.topic],
            _lags(label, one, ends),
            moving[label].adding if label in moving else (),
        )
        for label, one in troubled.items()
    ]
    return ClusterStatus(
        cluster.cluster_id,
        cluster.controller_id,
        _brokers(cluster, partitions, ends),
        len(partitions),
        troubles,
    )


def _is_troubled(one: PartitionDescription) -> bool:
    # All of an ISR may be away: the last one to leave it stays in.
    return one.leader < 0 or set(one.isr) != set(one.replicas)


async def _min_isrs(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    configs = await admin.describe_configs(topics) if topics else {}
    return {name: int(found[MIN_ISR].value or 1) for name, found in configs.items()}


async def _ends(
    admin: Admin, cluster: ClusterDescription, partitions: _Partitions
) -> dict[int, Mapping[TopicPartition, int]]:
    """Return where the logs of each broker end that answers soon."""
    from oncelog.client import ClientError

    found: dict[int, Mapping[TopicPartition, int]] = {}

    async def ask(broker_id: int) -> None:
        held = [label for label, one in partitions.items() if broker_id in one.replicas]
        # One that hangs must not keep the others from being shown.
        with contextlib.suppress(TimeoutError, ClientError):
            async with asyncio.timeout(ANSWER_S_MAX):
                found[broker_id] = await admin.log_ends(broker_id, held)

    await asyncio.gather(*(ask(node.node_id) for node in cluster.nodes))
    return found


def _lags(label: TopicPartition, one: PartitionDescription, ends: _Ends) -> dict[int, int]:
    """Return how far each replica is behind the leader, as far as both say where they end."""
    end = ends.get(one.leader, {}).get(label)
    if end is None:
        return {}
    return {
        broker: max(0, end - ends[broker][label])
        for broker in one.replicas
        if label in ends.get(broker, {})
    }


def _brokers(
    cluster: ClusterDescription, partitions: _Partitions, ends: _Ends
) -> list[BrokerStatus]:
    leads = Counter(one.leader for one in partitions.values())
    coordinates = Counter(
        one.leader for label, one in partitions.items() if label.topic in INTERNAL_TOPICS
    )
    preferred = Counter(one.replicas[0] for one in partitions.values())
    holds = Counter(broker for one in partitions.values() for broker in one.replicas)
    in_sync = Counter(broker for one in partitions.values() for broker in one.isr)
    lags: Counter[int] = Counter()
    for label, one in partitions.items():
        lags.update(_lags(label, one, ends))
    live = {node.node_id: node for node in cluster.nodes}
    return [
        BrokerStatus(
            broker_id,
            f"{live[broker_id].host}:{live[broker_id].port}" if broker_id in live else None,
            live[broker_id].rack if broker_id in live else None,
            broker_id == cluster.controller_id,
            leads[broker_id],
            preferred[broker_id],
            holds[broker_id],
            max(0, holds[broker_id] - in_sync[broker_id]),
            lags[broker_id] if broker_id in ends else None,
            coordinates[broker_id],
        )
        for broker_id in sorted({*live, *holds})
    ]

"""Plans which brokers replicas move to: pure functions of what a cluster has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oncelog.core.ids import TopicPartition

if TYPE_CHECKING:
    from oncelog.client import Node, PartitionReassignment, TopicDescription

__all__ = ["Placed", "drained", "grown", "placed"]


class Placed(NamedTuple):
    """A partition with the replicas that it has, or will have when what is under way is done."""

    label: TopicPartition
    replicas: tuple[int, ...]


def placed(
    topics: Iterable[TopicDescription],
    ongoing: Mapping[TopicPartition, PartitionReassignment],
) -> list[Placed]:
    """Return all partitions in order."""
    found = []
    for topic in sorted(topics, key=lambda one: one.name):
        for one in topic.partitions:
            label = TopicPartition(topic.name, one.index)
            moving = ongoing.get(label)
            replicas = one.replicas if moving is None else moving.replicas
            going = () if moving is None else moving.removing
            staying = tuple(broker for broker in replicas if broker not in going)
            found.append(Placed(label, staying))
    return found


def drained(
    partitions: Sequence[Placed], nodes: Sequence[Node], broker_id: int, *, may_shrink: bool
) -> tuple[dict[TopicPartition, tuple[int, ...]], list[TopicPartition]]:
    """Return new replicas for all that a broker has, and the partitions that no other can take.

    Another broker takes each place: one in a rack where the partition has fewest replicas, then the
    one with fewest replicas. With `may_shrink` a place that none can take is given up, but not the
    last one.
    """
    counts = Counter(broker for one in partitions for broker in one.replicas)
    others = [node for node in nodes if node.node_id != broker_id]
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    stuck = []
    for one in partitions:
        if broker_id not in one.replicas:
            continue
        left = tuple(broker for broker in one.replicas if broker != broker_id)
        chosen = _chosen(left, others, counts)
        if chosen is not None:
            counts[chosen] += 1
            plan[one.label] = tuple(
                chosen if broker == broker_id else broker for broker in one.replicas
            )
        elif may_shrink and left:
            plan[one.label] = left
        else:
            stuck.append(one.label)
    return plan, stuck


def grown(
    partitions: Sequence[Placed], nodes: Sequence[Node], topic: str, factor: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return replicas for the partitions of a topic that have fewer than `factor`.

    The present ones keep their places.
    """
    counts = Counter(broker for one in partitions for broker in one.replicas)
    plan = {}
    for one in partitions:
        if one.label.topic != topic or len(one.replicas) >= factor:
            continue
        replicas = one.replicas
        while len(replicas) < factor and (added := _chosen(replicas, nodes, counts)) is not None:
            counts[added] += 1
            replicas = (*replicas, added)
        if replicas != one.replicas:
            plan[one.label] = replicas
    return plan


def _chosen(held: Sequence[int], nodes: Sequence[Node], counts: Counter[int]) -> int | None:
    """Return the broker for one more replica beside those held; None where all have one."""
    racks = Counter(node.rack or "" for node in nodes if node.node_id in held)
    free = [node for node in nodes if node.node_id not in held]
    best = min(
        free,
        key=lambda one: (racks[one.rack or ""], counts[one.node_id], one.node_id),
        default=None,
    )
    return None if best is None else best.node_id

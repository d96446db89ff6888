"""Looks at how replicas move, and has more of them move, in steps that can be repeated.

A command that was interrupted is begun again: the cluster goes on meanwhile, and what is done is
not asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.cli.cluster.moves import Placed, placed
from oncelog.cli.output import say
from oncelog.core.ids import TopicPartition

if TYPE_CHECKING:
    from oncelog.client import Admin, Node

__all__ = ["LOOK_INTERVAL_S", "Seen", "ask", "look"]

LOOK_INTERVAL_S: Final = 0.5
ASKED_TOGETHER_COUNT_MAX: Final = 200
"""Partitions in one request: the controller writes them in one step."""


class Seen(NamedTuple):
    """What the cluster answered."""

    nodes: Sequence[Node]
    partitions: Sequence[Placed]
    removing: Mapping[TopicPartition, tuple[int, ...]]
    """What each reassignment under way removes."""


async def look(admin: Admin) -> Seen:
    """Ask for brokers, partitions and reassignments."""
    # What is under way is read first: what begins after that is seen in the next look.
    ongoing = await admin.list_partition_reassignments()
    topics = await admin.list_topics()
    cluster = await admin.describe_cluster()
    removing = {label: one.removing for label, one in ongoing.items()}
    return Seen(cluster.nodes, placed(topics.values(), ongoing), removing)


async def ask(admin: Admin, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Begin the reassignments of a plan."""
    left = iter(plan.items())
    while part := dict(islice(left, ASKED_TOGETHER_COUNT_MAX)):
        for label, replicas in part.items():
            say(f"{label}: to {', '.join(map(str, replicas))}", style="dim")
        await admin.alter_partition_reassignments(part)

"""Options and queries about partitions that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from oncelog.cli.tool import Failure

if TYPE_CHECKING:
    from oncelog.client import Admin, TopicDescription
    from oncelog.core.ids import TopicPartition

__all__ = ["chosen_partitions", "partition_option", "partition_sizes"]

partition_option = click.option(
    "--partition",
    "indexes",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Only this partition; repeatable. Default: all.",
)
"""``--partition``, which gives a command the numbers that `chosen_partitions` takes."""


def chosen_partitions(topic: TopicDescription, indexes: Sequence[int]) -> list[TopicPartition]:
    """The partitions of these numbers, all for none. Raises `Failure` for one that is not there."""
    from oncelog.core.ids import TopicPartition

    known = [p.index for p in topic.partitions]
    for index in indexes:
        if index not in known:
            raise Failure(f"{topic.name} has no partition {index}: it has 0 to {max(known)}")
    return [TopicPartition(topic.name, index) for index in sorted(set(indexes or known))]


async def partition_sizes(
    admin: Admin, leaders: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Bytes of each partition's log at its leader, as far as brokers tell."""
    from oncelog.client import ClientError

    found: dict[TopicPartition, int] = {}
    for node_id in sorted({node_id for node_id in leaders.values() if node_id >= 0}):
        try:
            folders = await admin.describe_data_folders(node_id)
        except ClientError:
            # A user without the permission to read sizes still gets the rest of the description.
            continue
        for folder in folders:
            found |= {
                tp: size
                for tp, size in folder.partition_sizes.items()
                if leaders.get(tp) == node_id
            }
    return found

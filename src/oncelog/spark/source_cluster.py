"""What the source asks the cluster: which partitions there are, and where they begin and end.

One loop and one set of connections for as long as a query's planner lives.
"""

import re
from collections.abc import Sequence
from typing import Literal

from oncelog.client.admin import Admin
from oncelog.client.transactions import TransactionDriver
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import BackgroundLoop
from oncelog.spark.errors import UsageError
from oncelog.spark.source_options import SourceOptions, parse_offsets

__all__ = ["SourceCluster", "loss_message", "starting_offsets"]


class SourceCluster:
    """The planner's questions to the cluster, asked on one loop with connections that last."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = BackgroundLoop("oncelog-source")
        self._admin = self._loop.call(self._connect())

    def partitions(self) -> list[TopicPartition]:
        """All partitions subscribed to, now."""
        return self._loop.call(self._partitions())

    def offsets(
        self, partitions: Sequence[TopicPartition], spec: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """Where the partitions begin or end.

        The end is the last stable offset under read_committed.
        """
        if not partitions:
            return {}
        return dict(
            self._loop.call(
                self._admin.list_offsets(
                    dict.fromkeys(partitions, spec), isolation_level=self._options.isolation_level
                )
            )
        )

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """What the group committed, waiting for transactions that are still ending."""
        return self._loop.call(self._group_offsets(group_id))

    def close(self) -> None:
        """Close connections and loop."""
        self._loop.call(self._admin.close())
        self._loop.close()

    async def _connect(self) -> Admin:
        return Admin(self._options.bootstrap_servers)

    async def _partitions(self) -> list[TopicPartition]:
        options = self._options
        topics = await self._admin.list_topics()
        if options.pattern is not None:
            names = [
                name
                for name, topic in topics.items()
                if re.fullmatch(options.pattern, name) and not topic.is_internal
            ]
        else:
            missing = [name for name in options.topics if name not in topics]
            if missing:
                raise UsageError(f"topic {missing[0]!r} does not exist")
            names = list(options.topics)
        return sorted(
            TopicPartition(name, partition.index)
            for name in names
            for partition in topics[name].partitions
        )

    async def _group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        async with TransactionDriver(self._options.bootstrap_servers, group_id) as driver:
            committed = await driver.fetch_offsets(group_id, None, require_stable=True)
        return {topic_partition: offset.offset for topic_partition, offset in committed.items()}


def starting_offsets(
    cluster: SourceCluster, options: SourceOptions, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each partition begins, as the option ``startingOffsets`` says."""
    spec = options.starting_offsets
    if spec == "earliest" or spec == "latest":
        return cluster.offsets(partitions, "earliest" if spec == "earliest" else "latest")
    earliest = cluster.offsets(partitions, "earliest")
    if spec == "group":
        assert options.group_id is not None
        committed = cluster.group_offsets(options.group_id)
        return {tp: committed.get(tp, earliest[tp]) for tp in partitions}
    given = parse_offsets(spec)
    unknown = [tp for tp in given if tp not in earliest]
    if unknown:
        raise UsageError(
            f"startingOffsets names {unknown[0]}, which is not subscribed to or does not exist"
        )
    latest = cluster.offsets([tp for tp, offset in given.items() if offset == -1], "latest")
    explicit = {tp: offset for tp, offset in given.items() if offset >= 0}
    return {**earliest, **latest, **explicit}


def loss_message(what: str) -> str:
    """One message for all losses: what was found, and how to go on."""
    lost = "Records were deleted before this query read them"
    return f"{what}. {lost}; failOnDataLoss=false goes on without them"

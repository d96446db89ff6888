"""Reads one partition's whole batches, from its leader or a nearer replica (KIP-392).

`machines.fetching` decides what of an answer is visible (INV-3), `machines.nearest` from where it
is read. `AssignedReader` reads many partitions with it, and remembers positions.
"""

from dataclasses import dataclass
from typing import Literal

from oncelog.client.cluster import Cluster
from oncelog.client.errors import ClientError, FatalError, Operation, classify
from oncelog.client.fetching import fetch_from
from oncelog.client.machines.fetching import Aborted, BadBatch, visible_batches
from oncelog.client.machines.nearest import NearestReplicas
from oncelog.client.machines.positions import NO_EPOCH, Diverged, Position, compare
from oncelog.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from oncelog.client.validation import truncation, validate
from oncelog.client.values import FetchedPartition
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.fetch import FetchPartition, FetchPartitionResponse

__all__ = [
    "BatchReads",
    "IsolationLevel",
    "OffsetReset",
    "ReaderOptions",
    "unreadable",
    "wanted_at",
]

IsolationLevel = Literal["read_committed", "read_uncommitted"]
OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What `Consumer` is given for its fetches; see there."""

    isolation_level: IsolationLevel
    reset: OffsetReset
    wait_ms: int
    partition_bytes: int
    fetch_bytes: int
    retry_timeout_ms: float
    check_crcs: bool
    queued_kbytes: int
    rack_id: str
    """Empty: it reads from leaders only."""
    metadata_max_age_ms: float

    def __post_init__(self) -> None:
        if self.isolation_level not in ("read_committed", "read_uncommitted"):
            raise ValueError(f"isolation_level {self.isolation_level!r}")
        if self.reset not in ("earliest", "latest", "none"):
            raise ValueError(f"auto_offset_reset {self.reset!r} must be earliest, latest or none")

    @property
    def isolation(self) -> int:
        """The level's number on the wire."""
        is_committed = self.isolation_level == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED


class BatchReads:
    """The fetches of one consumer."""

    def __init__(self, cluster: Cluster, options: ReaderOptions) -> None:
        self._cluster = cluster
        self._isolation = options.isolation
        self._wait_ms = options.wait_ms
        self._retry_timeout_ms = options.retry_timeout_ms
        self._check_crcs = options.check_crcs
        self._rack_id = options.rack_id
        self.nearest = NearestReplicas(options.metadata_max_age_ms)

    def source(self, topic_partition: TopicPartition, leader: int) -> int:
        """Return the broker to read from now."""
        nodes, now_ms = self._cluster.metadata.nodes, self._cluster.clock.monotonic_ms()
        return self.nearest.source(topic_partition, leader, nodes, now_ms)

    def prefer(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Read from the replica that the leader has named, once its address is known."""
        if broker_id not in self._cluster.metadata.nodes:
            self._cluster.metadata.mark_stale(topic_partition.topic)
        self.nearest.named(topic_partition, broker_id, self._cluster.clock.monotonic_ms())

    async def fetch_batches(
        self,
        topic_partition: TopicPartition,
        at: Position,
        max_bytes: int,
        max_wait_ms: int | None,
        topic_id: TopicId | None,
    ) -> FetchedPartition:
        """See `Consumer.fetch_batches`."""
        wait_ms = self._wait_ms if max_wait_ms is None else max_wait_ms

        async def call() -> FetchedPartition:
            nonlocal at
            checked = await validate(self._cluster, {topic_partition: at})
            at = _agreed(topic_partition, at, checked[topic_partition])
            leader = await self._cluster.leader(topic_partition)
            await self._check_identity(topic_partition.topic, topic_id)
            return await self._fetch_one(topic_partition, at, leader, wait_ms, max_bytes)

        return await self._cluster.retrying(call, self._retry_timeout_ms)

    async def _fetch_one(
        self, topic_partition: TopicPartition, at: Position, leader: int, wait_ms: int, size: int
    ) -> FetchedPartition:
        """Fetch from the nearest replica, and from the leader what that does not give."""

        async def fetch(node_id: int, rack_id: str) -> FetchPartitionResponse:
            wanted = {topic_partition: wanted_at(topic_partition, at, size)}
            ((_, answer),) = await fetch_from(
                self._cluster, node_id, wanted, self._isolation, wait_ms, size, rack_id
            )
            return answer

        def checked(answer: FetchPartitionResponse) -> FetchedPartition:
            if answer.diverging_epoch is not None:
                found = compare(at, *answer.diverging_epoch, at.validated)
                _agreed(topic_partition, at, found)
            return self.visible(topic_partition, at, answer)

        source = self.source(topic_partition, leader)
        if source == leader:
            answer = await fetch(leader, self._rack_id)
            if answer.preferred_read_replica < 0:
                return checked(answer)
            self.prefer(topic_partition, answer.preferred_read_replica)
            source = self.source(topic_partition, leader)
        if source != leader:
            try:
                return checked(await fetch(source, self._rack_id))
            except ClientError:
                # What a nearer replica says counts only as far as it gives records.
                self.nearest.forget(topic_partition)
        return checked(await fetch(leader, ""))

    def visible(
        self, topic_partition: TopicPartition, position: Position, answer: FetchPartitionResponse
    ) -> FetchedPartition:
        """Return what is visible of a broker's answer. Raises its error."""
        code = ErrorCode(answer.error)
        if code is not ErrorCode.none:
            if code.retriable:
                self._cluster.metadata.mark_stale(topic_partition.topic)
            raise classify(code, Operation.FETCH, f"{topic_partition} at offset {position.offset}")
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [Aborted(first, pid) for pid, first in answer.aborted_transactions or ()]
        records = answer.records if isinstance(answer.records, bytes | memoryview) else b""
        try:
            visible = visible_batches(
                records, position.offset, aborted, check_crcs=self._check_crcs
            )
        except BadBatch as bad:
            raise unreadable(topic_partition, bad) from bad
        return FetchedPartition(
            topic_partition,
            visible.batches,
            visible.next_offset,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            visible.leader_epoch if visible.next_offset > position.offset else position.epoch,
        )

    async def _check_identity(self, name: str, topic_id: TopicId | None) -> None:
        metadata = self._cluster.metadata
        if topic_id is None or metadata.topic_id(name) in (None, topic_id):
            return
        # The cache may have the id of a deleted topic of that name.
        await self._cluster.refresh([name])
        known = metadata.topic_id(name)
        if known not in (None, topic_id):
            text = f"topic {name} has the id {known}, not {topic_id}"
            raise FatalError(ErrorCode.inconsistent_topic_id, text)


def unreadable(topic_partition: TopicPartition, bad: BadBatch) -> FatalError:
    """Return the error of a batch that cannot be read, with its place."""
    text = f"{topic_partition} cannot be read at offset {bad.offset}: {bad.message}"
    return FatalError(bad.code, text)


def wanted_at(
    topic_partition: TopicPartition, position: Position, max_bytes: int
) -> FetchPartition:
    """Return the part of a Fetch request that asks for what follows a position."""
    leader_epoch = NO_EPOCH if position.validated is None else position.validated.leader_epoch
    return FetchPartition(
        topic_partition.partition, position.offset, max_bytes, leader_epoch, position.epoch
    )


def _agreed(
    topic_partition: TopicPartition, position: Position, found: Position | Diverged
) -> Position:
    if isinstance(found, Diverged):
        raise truncation(topic_partition, position, found)
    return found

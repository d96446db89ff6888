"""Asks the cluster for the source's partitions and their offsets.

One event loop and one set of connections exist per planner process of a query.
"""

import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from oncelog.client.cluster import Cluster
from oncelog.client.errors import ClientError
from oncelog.client.machines.positions import NO_EPOCH, Diverged, Position
from oncelog.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from oncelog.client.requests import EARLIEST, LATEST
from oncelog.client.settings import Role
from oncelog.client.transactions import TransactionDriver
from oncelog.client.validation import validate
from oncelog.client.values import OffsetAndMetadata, TopicDescription
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import StoppableLoop
from oncelog.spark.errors import PipelineError, UsageError
from oncelog.spark.source_offsets import ClusterState, Places, SourceOffset
from oncelog.spark.source_options import Bound, SourceOptions

__all__ = ["SourceCluster", "beginning", "check_beginning", "places_at"]

T = TypeVar("T")

CONNECT_TIMEOUT_MS: Final = 10_000
"""A bootstrap server that has not replied within this time counts as a wrong address.

A restarting broker replies sooner.
"""

CALL_TIMEOUT_MS: Final = 60_000
"""``default.api.timeout.ms`` of Java's consumer."""

NO_MATCH: Final = -1
"""The offset that ListOffsets returns when no record has this timestamp or a later one."""


class SourceCluster:
    """Sends the planner's requests to the cluster, on one event loop with open connections.

    Raises `PipelineError` when the cluster does not reply.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # A broker may restart whenever a process of Spark's begins.
        self._settings = {"first_contact_ms": None, **options.client_settings(Role.ADMIN)}
        self._timeout_ms = self._settings.pop("timeout_ms", CALL_TIMEOUT_MS)
        self._gone: set[str] = set()
        """Topics that stayed missing for a whole wait.

        Without this set each micro-batch would wait again.
        """
        self._loop = StoppableLoop("oncelog-source")
        try:
            self._cluster = self._call(self._connect())
        except PipelineError:
            self._loop.close()
            raise

    def state(
        self, start: SourceOffset | None = None, *, may_be_gone: bool = False
    ) -> ClusterState:
        """Return the subscribed partitions, their topic ids and their end offsets.

        The end is the last stable offset under read_committed. A broker that has just started may
        not know its topics yet. So topics in `start`, and topics subscribed to by name, are
        requested again (``fetchOffset.numRetries``) before they count as missing. Raises
        `UsageError` for a topic that is subscribed to by name, does not exist, and is not in
        `start`; with `may_be_gone` such a topic is left out.
        """
        return self._call(self._state(start, may_be_gone))

    def offsets(self, wanted: Mapping[TopicPartition, int], isolation: int | None = None) -> Places:
        """Return the offsets at these timestamps, by partition.

        A timestamp is `EARLIEST`, `LATEST` or a time in ms; the offset is that of the first record
        at that time or later, -1 if there is none. Source: ListOffsets.
        """
        return self._call(self._offsets(wanted, isolation))

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Places:
        """Return the log start offsets."""
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Places:
        """Return the high watermarks, where a reader of uncommitted records ends."""
        return self.offsets(dict.fromkeys(partitions, LATEST), READ_UNCOMMITTED)

    def diverged(self, read: Mapping[TopicPartition, Position]) -> Places:
        """Return the offsets at which truncated logs diverge from what the query read (KIP-320)."""
        return self._call(self._diverged(read))

    def group_offsets(self, group_id: str) -> Places:
        """Return the group's committed offsets, once no transaction on them is open."""
        return self._call(self._group_offsets(group_id))

    def close(self) -> None:
        """Close the connections and the loop."""
        self._loop.call(self._cluster.close())
        self._loop.close()

    def _call(self, question: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.call(question)
        except ClientError as error:
            servers = self._options.bootstrap_servers
            raise PipelineError(f"the source asked bootstrapServers {servers!r}: {error}") from None

    async def _connect(self) -> Cluster:
        cluster = Cluster(self._options.bootstrap_servers, **self._settings)
        await cluster.retrying(cluster.any_connection, CONNECT_TIMEOUT_MS)
        return cluster

    async def _state(self, start: SourceOffset | None, may_be_gone: bool) -> ClusterState:
        options = self._options
        known = {tp.topic for tp in start.ends} if start is not None else set()
        named = {*options.topics, *(tp.topic for tp in options.assigned)}
        awaited = (known | named) - self._gone
        topics = await self._topics(known | named)
        for _ in range(options.fetch_offset_attempts - 1):
            if topics.keys() >= awaited:
                break
            await self._cluster.clock.sleep(options.fetch_offset_interval_ms)
            topics = await self._topics(known | named)
        self._gone = (known | named) - topics.keys()
        partitions = self._subscribed(topics)
        if not may_be_gone:
            for name in sorted(self._gone - known):
                raise UsageError(f"topic {name!r} does not exist")
            for tp in sorted(options.assigned - set(partitions)):
                if start is None or tp not in start.ends:
                    raise UsageError(f"partition {tp} does not exist")
        subscribed = {tp.topic for tp in partitions}
        found = await self._listed(dict.fromkeys(partitions, LATEST))
        return ClusterState(
            {tp: at.offset for tp, at in found.items()},
            {name: topic_id for name in subscribed if (topic_id := topics[name].topic_id)},
            self._cluster.metadata.cluster_id,
            frozenset(topics.keys() & known - subscribed),
            {tp: at.leader_epoch for tp, at in found.items() if at.leader_epoch != NO_EPOCH},
        )

    async def _diverged(self, read: Mapping[TopicPartition, Position]) -> Places:
        async def ask() -> dict[TopicPartition, Position | Diverged]:
            return await validate(self._cluster, read)

        checked = await self._cluster.retrying(ask, self._timeout_ms)
        return {
            tp: max(found.end_offset, 0)
            for tp, found in checked.items()
            if isinstance(found, Diverged)
        }

    async def _topics(self, names: set[str]) -> Mapping[str, TopicDescription]:
        """Return the topics with these names from Metadata; for a pattern, all topics."""
        cluster = self._cluster

        async def ask() -> None:
            wanted = None if self._options.pattern is not None else names
            for error in (await cluster.refresh(wanted)).values():
                raise error

        await cluster.retrying(ask, self._timeout_ms)
        return cluster.metadata.topics

    def _subscribed(self, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
        options = self._options
        everything = [
            TopicPartition(name, partition.index)
            for name, topic in sorted(topics.items())
            if options.pattern is None or not topic.is_internal
            for partition in topic.partitions
        ]
        if options.assigned:
            return [tp for tp in everything if tp in options.assigned]
        if options.pattern is None:
            return [tp for tp in everything if tp.topic in options.topics]
        matches = re.compile(options.pattern).fullmatch
        return [tp for tp in everything if matches(tp.topic)]

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int | None = None
    ) -> Places:
        return {tp: at.offset for tp, at in (await self._listed(wanted, isolation)).items()}

    async def _listed(
        self, wanted: Mapping[TopicPartition, int], isolation: int | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if not wanted:
            return {}
        if isolation is None:
            committed = self._options.isolation_level == "read_committed"
            isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        return await list_offsets(self._cluster, wanted, isolation, self._timeout_ms)

    async def _group_offsets(self, group_id: str) -> Places:
        servers = self._options.bootstrap_servers
        async with TransactionDriver(servers, group_id, **self._settings) as driver:
            committed = await driver.fetch_offsets(group_id, None, require_stable=True)
        return {topic_partition: offset.offset for topic_partition, offset in committed.items()}


def beginning(cluster: SourceCluster, options: SourceOptions) -> SourceOffset:
    """Return the offset at which a streaming query with an empty checkpoint begins.

    Raises `UsageError` for a topic that does not exist, and for what `places_at` refuses.
    """
    state = cluster.state()
    bound = options.starting or Bound("startingOffsets", "latest")
    places = places_at(cluster, options, bound, state.ends)
    return SourceOffset(places, state.topic_ids, state.cluster_id, places, dict(state.epochs))


def check_beginning(options: SourceOptions) -> None:
    """Raise what `beginning` raises, before a query starts; `PipelineError` without a cluster."""
    options.check_stream()
    cluster = SourceCluster(options)
    try:
        beginning(cluster, options)
    finally:
        cluster.close()


def places_at(cluster: SourceCluster, options: SourceOptions, bound: Bound, ends: Places) -> Places:
    """Return each partition's offset at `bound`. `ends` are the end offsets of all partitions.

    Raises `UsageError` for an option that omits a partition or names one that is not subscribed to,
    and for a time after the last record.
    """
    if bound.where == "latest":
        return dict(ends)
    if bound.where == "earliest":
        return cluster.beginnings(ends)
    if bound.where == "group":
        assert options.group_id is not None
        return {**cluster.beginnings(ends), **_only(cluster.group_offsets(options.group_id), ends)}
    if bound.where == "offsets":
        _check_complete(bound, ends)
        words = {tp: place for tp, place in bound.places.items() if place < 0}
        return {**bound.places, **cluster.offsets(words)}
    if bound.where == "times":
        _check_complete(bound, ends)
    times = bound.places if bound.where == "times" else dict.fromkeys(ends, bound.time_ms)
    found = cluster.offsets(times)
    without = sorted(tp for tp, offset in found.items() if offset == NO_MATCH)
    if without and bound.name.startswith("starting") and options.on_no_match == "error":
        raise UsageError(
            f"{bound.name} is after the last record of {_list(without)}; "
            "startingOffsetsByTimestampStrategy=latest begins at the end there"
        )
    return {**found, **_only(ends, without)}


def _check_complete(bound: Bound, ends: Places) -> None:
    left_out = sorted(ends.keys() - bound.places.keys())
    if left_out:
        words = " (-2 earliest, -1 latest)" if bound.where == "offsets" else ""
        raise UsageError(
            f"{bound.name} leaves out {_list(left_out)}; it must name every partition{words}"
        )
    unknown = sorted(bound.places.keys() - ends.keys())
    if unknown:
        raise UsageError(f"{bound.name} names {_list(unknown)}, not subscribed to or not existing")


def _only(places: Places, partitions: Iterable[TopicPartition]) -> Places:
    return {tp: places[tp] for tp in partitions if tp in places}


def _list(partitions: list[TopicPartition]) -> str:
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    return ", ".join(str(tp) for tp in partitions[:5]) + more

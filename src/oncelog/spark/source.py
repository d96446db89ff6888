"""The source: the Python data source ``oncelog``.

    spark.dataSource.register(OncelogSource)
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}
    spark.readStream.format("oncelog").options(**options).load()

Columns and options are those of Spark's own Kafka source (`oncelog.spark.source_settings`). The
reader runs on Spark's driver, in one planner process per query; `read` runs in tasks and keeps its
connection until the worker process ends.

It reads up to the last stable offset (INV-3, INV-7), so every planned offset can be read. A batch's
offsets alone determine which records it reads (`oncelog.spark.source_offsets`): a batch that runs
again reads the same records, or fails because they were deleted.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.spark.errors import DataLossError, UsageError, loss_message
from oncelog.spark.source_cluster import SourceCluster, beginning, places_at
from oncelog.spark.source_offsets import (
    ClusterState,
    Gap,
    GapKind,
    Places,
    SourceOffset,
    begins_of,
    compare_with,
    next_offset,
    parts_of,
    places_json,
    positions_after,
    split_range,
    to_validate,
    waiting,
)
from oncelog.spark.source_options import Bound, SourceOptions
from oncelog.spark.source_read import OffsetRange, read_range
from oncelog.spark.source_writes import SourceWrites

__all__ = ["OncelogSource"]

logger = logging.getLogger(__name__)

SCHEMA_DDL: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
HEADERS_DDL: Final = ", headers array<struct<key:string,value:binary>>"

Offsets = dict[str, Any]


class OncelogSource(SourceWrites, DataSource):
    """Register with ``spark.dataSource.register(OncelogSource)``, then ``format("oncelog")``.

    The options are those of Spark's Kafka source; docs/spark.md, section "Source options", lists
    them with the differences. One value is added: ``startingOffsets=group`` starts at the offsets
    that the group `groupId` committed. ``load()`` raises `UsageError` for an invalid option.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "oncelog"

    @cached_property
    def _options(self) -> SourceOptions:
        """Return the checked options.

        Spark creates the source for a write too; `SourceWrites` refuses that.
        """
        return SourceOptions.parse(self.options)

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source.

        `headers` is null for a record without headers. A name that is not UTF-8 has replacement
        characters, as from Spark's own source. A record from before Kafka 0.10 has the time -1.
        """
        return SCHEMA_DDL + HEADERS_DDL if self._options.include_headers else SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query. Raises `UsageError`."""
        return OncelogStreamReader(self._options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query, which ends at the offsets of now.

        Raises `UsageError`.
        """
        return OncelogBatchReader(self._options, schema)


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches.

    One planner process calls it, one call at a time. Only `read` runs elsewhere: in tasks, on a
    pickled copy. Tests pass `connect` and `now_s` (seconds).
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[SourceOptions], SourceCluster] = SourceCluster,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        options.check_stream()
        self._options = options
        self._schema = schema
        self._connect = connect
        self._now_s = now_s
        self._cluster: SourceCluster | None = None
        self._target: ClusterState | None = None
        self._is_target_checked = False
        self._planned: SourceOffset | None = None
        self._planned_at_s: float | None = None
        self._last_ends: Places = {}
        self._warned: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names from here on
        """Return the offsets at which the query starts, as JSON.

        Spark does not store the result, and calls this again after a crash in batch 0. The end
        offset of batch 0 holds the start.
        """
        return beginning(self._connected(), self._options).to_json()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # type: ignore[override,unused-ignore]  # noqa: N802
        """Return the end of the next batch: the last stable offsets, reduced to `limit`."""
        begun = SourceOffset.from_json(start)
        now = self._validated(begun, self._target_of(begun) or self._connected().state(begun))
        self._last_ends = dict(now.ends)
        positions = self._positions(begun, now)
        if self._holds_back(limit, waiting(positions, now.ends)):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._planned = next_offset(begun, now, positions, rows_max)
        self._planned_at_s = self._now_s()
        return start if self._planned is begun else self._planned.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` as Spark's read limits.

        A trigger that reads everything at once uses another limit.
        """
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the current end, at which a query with Trigger.AvailableNow stops.

        Spark calls this before the reader knows the query's offsets, so a subscribed topic may be
        missing: only `latestOffset` can tell a deleted one from one that never existed.
        """
        self._target = self._connected().state(may_be_gone=True)
        self._is_target_checked = False

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return the newest known end of the partitions, which Spark shows as progress."""
        return places_json(self._last_ends) if self._last_ends else None

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return one task per partition with records, or more if `minPartitions` asks for it."""
        begun, planned = SourceOffset.from_json(start), SourceOffset.from_json(end)
        if begun == planned:
            return []
        if planned != self._planned:
            # An earlier planner process planned this batch.
            self._check(planned, self._validated(planned, self._connected().state(planned)))
        begins = begins_of(begun, planned)
        begins |= self._beginnings([tp for tp in planned.ends if tp not in begins])
        return _ranges(self._options, begins, planned.ends, planned.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one range as Arrow batches. Runs in a task."""
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition)

    def stop(self) -> None:
        """Close the connections. Spark calls this when the query ends."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> SourceCluster:
        if self._cluster is None:
            self._cluster = self._connect(self._options)
        return self._cluster

    def _target_of(self, begun: SourceOffset) -> ClusterState | None:
        """Return the end of a query with Trigger.AvailableNow.

        If it lacks a partition of the query's offsets, or a subscribed topic, the cluster is asked
        once more, by what the query has read. What is still missing then is gone, or an error.
        """
        target = self._target
        if target is not None and not self._is_target_checked:
            found = {tp.topic for tp in target.ends}
            is_whole = begun.ends.keys() | self._options.assigned <= target.ends.keys()
            if not is_whole or not found.issuperset(self._options.topics):
                self._target = self._connected().state(begun)
            self._is_target_checked = True
        return self._target

    def _validated(self, begun: SourceOffset, now: ClusterState) -> ClusterState:
        """Return `now` with the end of each log that was truncated after the query read it."""
        read = to_validate(begun, now)
        return replace(now, diverged=self._connected().diverged(read)) if read else now

    def _positions(self, begun: SourceOffset, now: ClusterState) -> Places:
        """Return the offset at which the next batch begins, by partition."""
        positions = positions_after(begun, now, self._check(begun, now))
        return positions | self._beginnings([tp for tp in now.ends if tp not in positions])

    def _check(self, begun: SourceOffset, now: ClusterState) -> list[Gap]:
        """Check for missing records; raise `DataLossError` unless that is allowed."""
        gaps = [gap for gap in compare_with(begun, now) if not self._is_unstable(gap, begun)]
        for gap in gaps:
            self._lost(gap.what)
        return gaps

    def _is_unstable(self, gap: Gap, begun: SourceOffset) -> bool:
        """Return whether the missing records exist, but in open transactions.

        This happens when the query read uncommitted records before.
        """
        if gap.kind is not GapKind.SHORTENED or self._options.isolation_level != "read_committed":
            return False
        ends = self._connected().high_watermarks(gap.partitions)
        return all(ends[tp] >= begun.ends[tp] for tp in gap.partitions)

    def _beginnings(self, new: list[TopicPartition]) -> Places:
        """Return the first offset to read of each new partition."""
        beginnings = self._connected().beginnings(new) if new else {}
        for tp, offset in beginnings.items():
            if offset > 0:
                self._lost(f"new partition {tp} begins at {offset}, not at 0")
        return beginnings

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(loss_message(what))
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s; going on without those records (failOnDataLoss=false)", what)

    def _holds_back(self, limit: ReadLimit, offsets_count: int) -> bool:
        """Return whether `minOffsetsPerTrigger` delays the batch.

        It waits for as many records, but not longer than `maxTriggerDelay`.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._planned_at_s is None or self._target is not None:
            return False
        waited_ms = (self._now_s() - self._planned_at_s) * 1000
        is_due = waited_ms >= self._options.max_trigger_delay_ms
        return not is_due and offsets_count < least and not isinstance(limit, ReadAllAvailable)


class OncelogBatchReader(DataSourceReader):
    """Reads, once, the records between the starting and the ending offsets."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[SourceOptions], SourceCluster] = SourceCluster,
    ) -> None:
        options.check_batch()
        self._options = options
        self._schema = schema
        self._connect = connect

    def partitions(self) -> list[InputPartition]:
        """Return one task per partition with records, or more if `minPartitions` asks for it."""
        options = self._options
        cluster = self._connect(options)
        try:
            state = cluster.state()
            first = cluster.beginnings(state.ends)
            starting = options.starting or Bound("startingOffsets", "earliest")
            begins = places_at(cluster, options, starting, state.ends)
            ending = options.ending or Bound("endingOffsets", "latest")
            ends = places_at(cluster, options, ending, state.ends)
        finally:
            cluster.close()
        for tp in state.ends:
            if max(begins[tp], ends[tp]) > state.ends[tp]:
                raise UsageError(
                    f"the options ask for {tp} from {begins[tp]} to {ends[tp]}, but it ends at "
                    f"{state.ends[tp]}"
                )
            if begins[tp] < first[tp]:
                what = f"{tp} begins at {first[tp]}, and {begins[tp]} was asked for"
                if options.fail_on_data_loss:
                    raise DataLossError(loss_message(what))
                logger.warning("%s; reading what is there (failOnDataLoss=false)", what)
                begins[tp] = first[tp]
        return _ranges(options, begins, ends, state.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one range. Runs in a task; without any range Spark passes None."""
        if not isinstance(partition, OffsetRange):
            return iter(())
        return read_range(self._options, self._schema, partition)


def _ranges(
    options: SourceOptions, begins: Places, ends: Places, topic_ids: Mapping[str, TopicId]
) -> list[InputPartition]:
    partitions = [tp for tp in sorted(ends) if ends[tp] > begins[tp]]
    sizes = [ends[tp] - begins[tp] for tp in partitions]
    parts = parts_of(sizes, options.min_partitions, options.max_records_per_partition)
    return [
        OffsetRange(tp.topic, tp.partition, begin, end, topic_ids.get(tp.topic))
        for tp, count in zip(partitions, parts, strict=True)
        for begin, end in split_range(begins[tp], ends[tp], count)
    ]

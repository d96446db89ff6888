"""The streaming source: the Python data source ``oncelog``.

    spark.dataSource.register(OncelogSource)
    options = {"bootstrapServers": "127.0.0.1:9092", "subscribe": "flights"}
    spark.readStream.format("oncelog").options(**options).load()

Columns and options are those of Spark's own Kafka source where both have them. Offsets are
``{topic: {partition: offset}}``, the same JSON as Spark's. The reader runs on Spark's driver, in
one planner process per query; `read` runs in tasks and keeps its connection as long as the worker
process lives. Arrow batches are large: 500 rows at a time cost nine times as much.

It reads up to the last stable offset (INV-3, INV-7), so what is planned is always readable, and a
batch that runs again reads the same records.
"""

from collections.abc import Iterator, Sequence
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
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import DataLossError, UsageError
from oncelog.spark.source_cluster import SourceCluster, loss_message, starting_offsets
from oncelog.spark.source_options import (
    Offsets,
    SourceOptions,
    from_json,
    limit_offsets,
    parse_offsets,
    read_pin,
    to_json,
    write_pin,
)
from oncelog.spark.source_read import OffsetRange, read_range

__all__ = ["OncelogSource"]

SCHEMA_DDL: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int,"
    " headers array<struct<key:string,value:binary>>"
)


class OncelogSource(DataSource):
    """Register with ``spark.dataSource.register(OncelogSource)``, then ``format("oncelog")``.

    Options: `bootstrapServers`; `subscribe` or `subscribePattern`; `startingOffsets` (earliest,
    latest, group, or JSON as Spark's Kafka source takes it, -2 earliest, -1 latest);
    `maxOffsetsPerTrigger`; `failOnDataLoss` (true); `isolationLevel` (read_committed); `groupId`
    for startingOffsets=group; `checkpointLocation`: the query's own checkpoint, where the starting
    offsets are pinned. Spark does not keep them and asks again after a crash in batch 0, so latest
    and group need it. In a batch read also `endingOffsets` (latest, or JSON).
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "oncelog"

    def schema(self) -> str:
        """The columns of Spark's Kafka source; headers always, null where a record has none."""
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For ``readStream``."""
        return OncelogStreamReader(SourceOptions.parse(self.options), schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``read``: a bounded read of what is there now."""
        return OncelogBatchReader(SourceOptions.parse(self.options), schema)


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches.

    Called by one planner process, one call at a time; only `read` runs elsewhere, on a pickled
    copy.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: SourceCluster | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._last_ends: dict[TopicPartition, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names from here on
        """Where the query begins.

        Pinned in the checkpoint when it is known: Spark asks twice in batch 0, and again after a
        crash there.
        """
        options = self._options
        pinned = read_pin(options)
        if pinned is not None:
            return pinned
        if options.starting_offsets in ("latest", "group") and options.checkpoint_location is None:
            raise UsageError(
                f"startingOffsets={options.starting_offsets} needs the option checkpointLocation "
                f"(the query's own): Spark asks again after a crash in"
                " its first batch, and the answer must not have moved"
            )
        cluster = self._connected()
        partitions = cluster.partitions()
        offsets = to_json(starting_offsets(cluster, options, partitions))
        return write_pin(options, offsets)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # type: ignore[override,unused-ignore]  # noqa: N802
        """The end of the next batch: the last stable offsets, cut to `limit`."""
        begins = from_json(start)
        ends = self._ends(begins)
        if isinstance(limit, ReadMaxRows):
            new = [topic_partition for topic_partition in ends if topic_partition not in begins]
            begins = {**self._connected().offsets(new, "earliest"), **begins}
            ends = limit_offsets(begins, ends, limit.max_rows)
        return to_json(ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`, as Spark's admission control takes it."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end that a query with Trigger.AvailableNow runs to."""
        cluster = self._connected()
        self._target = cluster.offsets(cluster.partitions(), "latest")

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """For the query's progress: what could be read when last asked."""
        return to_json(self._last_ends) if self._last_ends else None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """One task per Kafka partition that has something to read."""
        begins, ends = from_json(start), from_json(end)
        new = [topic_partition for topic_partition in ends if topic_partition not in begins]
        earliest = self._connected().offsets(new, "earliest")
        for topic_partition, offset in earliest.items():
            if offset > 0 and self._options.fail_on_data_loss:
                raise DataLossError(
                    loss_message(f"new partition {topic_partition} begins at {offset}, not at 0")
                )
        begins = {**earliest, **begins}
        return [
            OffsetRange(tp.topic, tp.partition, begins[tp], offset)
            for tp, offset in sorted(ends.items())
            if offset > begins[tp]
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task: the records of one range as Arrow batches."""
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition)

    def stop(self) -> None:
        """The query ended."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> SourceCluster:
        if self._cluster is None:
            self._cluster = SourceCluster(self._options)
        return self._cluster

    def _ends(self, begins: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The readable end of every partition, never before where the query stands."""
        if self._target is not None:
            ends = dict(self._target)
        else:
            cluster = self._connected()
            ends = cluster.offsets(cluster.partitions(), "latest")
        self._last_ends = ends
        for topic_partition, begin in begins.items():
            end = ends.get(topic_partition)
            if end is not None and end >= begin:
                continue
            if self._options.fail_on_data_loss and self._target is None:
                found = "is gone" if end is None else f"ends at {end}, before {begin}"
                raise DataLossError(loss_message(f"partition {topic_partition} {found}"))
            ends = {**ends, topic_partition: begin}
        return ends


class OncelogBatchReader(DataSourceReader):
    """A bounded read: everything between starting and ending offsets, as of now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One task per Kafka partition."""
        options = self._options
        cluster = SourceCluster(options)
        try:
            partitions = cluster.partitions()
            begins = starting_offsets(cluster, options, partitions)
            ends = cluster.offsets(partitions, "latest")
            if options.ending_offsets != "latest":
                ends |= {
                    tp: offset
                    for tp, offset in parse_offsets(options.ending_offsets).items()
                    if offset >= 0
                }
        finally:
            cluster.close()
        return [
            OffsetRange(tp.topic, tp.partition, begins[tp], ends[tp])
            for tp in partitions
            if ends[tp] > begins[tp]
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task."""
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition)

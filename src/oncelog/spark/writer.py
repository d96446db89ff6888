"""The `DataStreamWriter` of the exactly-once sinks: `start()` refuses what would fail later.

Spark's own writer accepts most mistakes: without a checkpoint it uses a temporary one, another
format replaces the sink without a warning, and a wrong address fails the first batch.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncelog.client.settings.names import PREFIX
from oncelog.spark.checks import check_configuration, refuse_state
from oncelog.spark.commit_log import complete_before_start
from oncelog.spark.errors import UnsupportedModeError, UsageError
from oncelog.spark.kafka_run import KafkaRun, committed_marker
from oncelog.spark.marker import Marker
from oncelog.spark.preflight import examine
from oncelog.spark.query import ForeachBatch, Query, read_matching
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.source_cluster import check_beginning
from oncelog.spark.source_options import SourceOptions

__all__ = ["ExactlyOnceWriter", "KafkaStart", "kafka_sources"]

CHECKPOINT: Final = "checkpointLocation"
CHECKPOINT_CONF: Final = "spark.sql.streaming.checkpointLocation"
ASYNC_PROGRESS: Final = "asyncProgressTrackingEnabled"
OURS: Final = "oncelog"
KAFKA_SOURCES: Final = (OURS, "kafka")


Examine = Callable[[str | None, bool], None]
"""Called before the start.

The arguments are the id of the checkpoint's query (None: no query yet), and whether it is certain.
"""


class ExactlyOnceWriter(DataStreamWriter):
    """The user sets trigger, output mode, name and checkpoint; the sink is fixed."""

    def __init__(
        self,
        df: DataFrame,
        sink: ForeachBatch[Any],
        examine: Examine,
        committed: Callable[[], Marker | None] | None = None,
    ) -> None:
        super().__init__(df)
        super().foreachBatch(sink)
        self._sink = sink
        self._examine = examine
        self._committed = committed
        self._given: dict[str, str] = {}

    def option(self, key: str, value: Any) -> DataStreamWriter:
        """Set an option, as in Spark; one that changes the mode, or has no effect, is refused."""
        if key.lower().startswith(PREFIX):
            raise UsageError(
                f"option({key!r}) has no effect on this writer: exactly_once takes Kafka's "
                "settings as client_options"
            )
        if key.lower() == ASYNC_PROGRESS.lower() and str(value).lower() == "true":
            raise UnsupportedModeError(
                f"{ASYNC_PROGRESS} notes progress behind the batches' backs; exactly_once needs it "
                "off"
            )
        self._given[key.lower()] = str(value)
        return super().option(key, value)

    def options(self, **options: Any) -> DataStreamWriter:
        """Set options, as in Spark."""
        for key, value in options.items():
            if value is not None:
                self.option(key, value)
        return self

    def trigger(self, **how: Any) -> DataStreamWriter:
        """Set the trigger, as in Spark; only plain micro-batches are allowed."""
        for mode in ("continuous", "realTime"):
            if how.get(mode) is not None:
                raise UnsupportedModeError(
                    f"trigger({mode}=...) has no micro-batches with a beginning and an end; use "
                    "processingTime or availableNow"
                )
        return super().trigger(**how)

    def format(self, source: str) -> NoReturn:
        """Raise `UsageError`: the sink is fixed."""
        raise UsageError(f"format({source!r}) would replace exactly_once; leave it out")

    def foreach(self, f: Any) -> NoReturn:
        """Raise `UsageError`: the sink is fixed."""
        raise UsageError("foreach would replace exactly_once; leave it out")

    def foreachBatch(self, func: Any) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise `UsageError`: the sink is fixed."""
        raise UsageError("foreachBatch would replace exactly_once; leave it out")

    def toTable(self, tableName: str, *_: Any, **__: Any) -> NoReturn:  # noqa: N802, N803 - Spark's names
        """Raise `UsageError`: the sink is fixed."""
        raise UsageError("toTable would replace exactly_once; end with start()")

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,  # noqa: N803 - Spark's names from here on
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> StreamingQuery:
        """Check the options, start the query, and fence other drivers of the application id.

        Raises `PipelineError`, which says what to do; then no query runs.
        """
        if path is not None or format is not None or partitionBy is not None:
            raise UsageError("start() of exactly_once takes no path, format or partitionBy")
        self.options(**options)
        query_id, is_known = self._query_id()
        self._examine(query_id, is_known)
        if is_known and query_id is None:
            for given in _sources_of(self._df, OURS):
                check_beginning(SourceOptions.parse(given))
        self._complete_commit_log()
        query = super().start(outputMode=outputMode, queryName=queryName)
        try:
            self._sink.run_of(query, self._spark.sparkContext).prepare()
        except BaseException:
            query.stop()
            raise
        return query

    def _complete_commit_log(self) -> None:
        location = self._given.get(CHECKPOINT.lower())
        if location is not None and self._committed is not None:
            complete_before_start(self._spark, location, self._committed)

    def _query_id(self) -> tuple[str | None, bool]:
        """Return the checkpoint's query id, None if there is none; and whether that is certain."""
        location = self._given.get(CHECKPOINT.lower())
        if location is None:
            root = self._spark.conf.get(CHECKPOINT_CONF, None)
            if root is None:
                raise UsageError(
                    f"without .option({CHECKPOINT!r}, ...) Spark takes a temporary checkpoint, and "
                    "after a restart everything is written again: name a lasting one"
                )
            # Spark chooses the folder by the query's name, or at random.
            return None, False
        texts = read_matching(self._spark.sparkContext, location, "metadata")
        return (str(json.loads(texts[0])["id"]) if texts else None), True


class KafkaStart:
    """Checks the cluster before a query starts, and creates its run."""

    def __init__(self, df: DataFrame, options: SinkOptions) -> None:
        self._frame = df
        self._options = options
        self._cluster_id: str | None = None

    def examine(self, query_id: str | None, is_known: bool) -> None:
        """Raise `PipelineError` for each mistake that would fail the query later."""
        check_configuration(self._frame)
        if self._options.protocol.replaces_query is not None:
            refuse_state(self._frame)
        self._cluster_id = examine(self._options, kafka_sources(self._frame), query_id, is_known)

    def committed(self) -> Marker | None:
        """Return the marker of the last committed batch, and fence other drivers."""
        return committed_marker(self._options)

    def run(self, query: Query, context: Any) -> KafkaRun:
        """Return the run of a query that has just started."""
        return KafkaRun(query, context, self._options, self._cluster_id)


def kafka_sources(df: DataFrame) -> Sequence[dict[str, str]]:
    """Return Kafka's configs of each Kafka source in the query's plan, by Kafka's names."""
    found = []
    for given in _sources_of(df, *KAFKA_SOURCES):
        settings = {
            name.removeprefix(PREFIX): value
            for name, value in given.items()
            if name.startswith(PREFIX)
        }
        if servers := given.get("bootstrapservers"):
            settings["bootstrap.servers"] = servers
        found.append(settings)
    return found


def _sources_of(df: DataFrame, *formats: str) -> Iterator[dict[str, str]]:
    """Yield the options, by lower-case name, of each source with one of these formats."""
    # Before the analysis a bare load(), a view and a SQL text only have the name of their source.
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark offers no public way to a plan's sources
    leaves = plan.collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2":
            continue
        if str(leaf.sourceName()).lower() in formats:
            options = leaf.extraOptions().items()
            yield {str(name).lower(): str(value) for name, value in options}

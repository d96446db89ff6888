"""`exactly_once`: the sink that writes each micro-batch in one Kafka transaction (INV-10, D8).

`oncelog.spark.kafka_run` has the state of a query's run, `oncelog.spark.kafka_micro_batch` writes
one micro-batch from Spark's driver, `oncelog.spark.batch_protocol` has the protocol, and
`oncelog.spark.tasks` the tasks on the executors.
"""

from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql import DataFrame

from oncelog.client.settings import hide_secrets
from oncelog.core.ids import TopicPartition
from oncelog.spark.checks import check_columns, check_configuration, refuse_connect
from oncelog.spark.client_settings import settled
from oncelog.spark.errors import UsageError
from oncelog.spark.kafka_micro_batch import KafkaMicroBatch
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.query import ForeachBatch
from oncelog.spark.sink_options import (
    BATCH_SIZE_BYTES,
    MARKER_TOPIC,
    MAX_DRIVER_ROWS,
    TRANSACTION_TIMEOUT_MS,
    SinkOptions,
    check_options,
)
from oncelog.spark.writer import ExactlyOnceWriter, KafkaStart

__all__ = ["exactly_once"]


def exactly_once(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    application_id: str,
    topic: str | None = None,
    topics: Sequence[str] | None = None,
    marker_topic: str | None = MARKER_TOPIC,
    commit_source_offsets: bool = True,
    accept: Collection[str] = (),
    replaces_query: str | None = None,
    write_attempts: int = 3,
    max_tasks: int | None = None,
    max_driver_rows: int = MAX_DRIVER_ROWS,
    batch_size: int = BATCH_SIZE_BYTES,
    compression_type: str = "none",
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    progress_path: str | None = None,
    client_options: dict[str, Any] | None = None,
) -> Any:
    """Write a streaming DataFrame to Kafka topics, every row exactly once.

    Returns a `DataStreamWriter` to add trigger, output mode and checkpoint to, and start.

    Output, source offsets and a marker of the micro-batch become visible in one transaction;
    readers use ``isolation.level=read_committed``. All output modes work; within one target
    partition, rows that came from one source partition keep their order in a query without a
    shuffle.

    After a crash between the end of a transaction and Spark's commit log, `start` completes that
    log, so the state stays that of the run whose output is visible (`oncelog.spark.commit_log` has
    the exceptions).

    Columns, as in Spark's own Kafka sink: ``value`` (string or binary), and optionally ``key``
    (string or binary), ``topic`` (string), ``partition`` (int), ``headers``
    (array<struct<key:string,value:binary>>), and ``timestamp`` for the records' time. Without a
    partition the key's murmur2 decides, as in Java's default partitioner; rows without a key fill
    one record batch after the other, and batches take turns among the partitions.

    - `application_id`: the transactional id and the group id. One active query per id; a second one
      is fenced or fails closed.
    - `topic`: the topic of all rows (wins over the column). `topics`: those the column may name;
      default all topics of the cluster.
    - `marker_topic`: the compacted topic that holds the marker as a record, for all applications of
      the cluster; created with one partition if it is missing. None leaves the marker to the
      group's offsets, which expire.
    - `commit_source_offsets`: False for a source on another cluster, whose offsets mean nothing in
      this one's groups.
    - `accept`, `replaces_query`: overrides for the cases in which the sink refuses to go on, named
      by the error itself. Only a query without state may replace another one.
    - `write_attempts`: how often a batch is tried within one call, each under a new epoch.
    - `max_tasks`: tasks of the write stage, at most the cluster's slots and the number of target
      partitions. The stage waits until so many slots are free at once. With it, rows are shuffled
      to these tasks also where the tasks that have them could send.
    - `max_driver_rows`: a batch that is expected to have at most so many rows is collected and sent
      by the driver, without a write stage, unless it has more than some 2 MB; 0 for none.
    - `batch_size` in bytes of a record batch; `transaction_timeout_ms` of a write stage, at most
      the broker's ``transaction.max.timeout.ms``.
    - `client_options`: settings of Kafka's producer by Kafka's names (docs/spark.md lists which).
    - `progress_path`: a file for one JSON line per step (`oncelog.spark.progress`).

    Raises `UsageError` or `UnsupportedModeError` at once for what can be seen now, from ``start()``
    for what the clusters and the checkpoint show, and from the query for the rest. Continuous,
    asynchronous-progress and real-time modes, Spark Connect and speculation are refused: none of
    them can keep one clean attempt per batch. Under dynamic allocation, where Spark runs no barrier
    stages, a plain stage sends.
    """
    refuse_connect(df)
    if not df.isStreaming:
        raise UsageError("exactly_once needs a streaming DataFrame (spark.readStream)")
    check_columns(df, topic)
    check_configuration(df)
    options = SinkOptions(
        bootstrap_servers=bootstrap_servers,
        protocol=ProtocolOptions(
            application_id=application_id,
            marker_partition=TopicPartition(marker_topic, 0) if marker_topic else None,
            commit_source_offsets=commit_source_offsets,
            accept=frozenset(accept),
            replaces_query=replaces_query,
            write_attempts=write_attempts,
        ),
        topic=topic,
        topics=tuple(topics) if topics is not None else None,
        max_tasks=max_tasks,
        batch_size=batch_size,
        compression_type=compression_type,
        transaction_timeout_ms=transaction_timeout_ms,
        progress_path=progress_path,
        client_options=hide_secrets(client_options or {}),
        max_driver_rows=max_driver_rows,
    )
    options = settled(options)
    check_options(options)

    start = KafkaStart(df, options)
    sink = ForeachBatch(df.sparkSession, start.run, KafkaMicroBatch)
    return ExactlyOnceWriter(df, sink, start.examine, start.committed)

"""The one SparkSession of a run, and the peers' writers and readers, on equal terms."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

from bench.spark.rows import DRIVER_MEMORY, TUNED
from bench.systems import Endpoint
from oncelog.spark import OncelogSource, exactly_once, session
from tests.support.peer.connector import connector

CORES = 2

COMMITTED = {"kafka.isolation.level": "read_committed"}
"""Spark's source reads as ours does."""


def started() -> SparkSession:
    """A local session with the connector of both. Raises `PeerUnavailable`."""
    spark = (
        session("bench", cores=CORES)
        .config("spark.jars", ",".join(map(str, connector())))
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.log.level", "OFF")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.dataSource.register(OncelogSource)
    return spark


def generated(
    spark: SparkSession, rows: int, value_bytes: int, keyed: bool, batches: int
) -> DataFrame:
    """So many rows per micro-batch, made by Spark itself: next to nothing, and equal for all.

    After so many micro-batches none has rows. Otherwise a query is stopped while it writes, and
    what Spark's sink has not sent stays in its producer, which the next query uses too: records for
    a topic that is deleted then fill its buffer for two minutes.
    """
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", CORES)
        .load()
        .where(F.col("value") < rows * batches)
    )
    digits = F.lpad(F.col("value").cast("string"), 12, "0")
    value = F.concat(digits, F.lit("x" * (value_bytes - 12))).cast("binary").alias("value")
    return numbers.select(*([digits.cast("binary").alias("key")] if keyed else []), value)


def read_by_spark(spark: SparkSession, system: Endpoint, topic: str, per_batch: int) -> DataFrame:
    """A stream of a topic through Spark's own source."""
    options = {"kafka.bootstrap.servers": system.bootstrap_servers, "subscribe": topic}
    reader = spark.readStream.format("kafka").options(**options, **COMMITTED)
    return reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=per_batch).load()


def read_by_us(spark: SparkSession, system: Endpoint, topic: str, per_batch: int) -> DataFrame:
    """A stream of a topic through our source."""
    options = {"bootstrapServers": system.bootstrap_servers, "subscribe": topic}
    reader = spark.readStream.format("oncelog").options(**options)
    return reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=per_batch).load()


def written_by_spark(rows: DataFrame, system: Endpoint, topic: str) -> Any:
    """A writer through Spark's own sink, tuned."""
    writer = rows.writeStream.format("kafka").options(**TUNED)
    return writer.option("kafka.bootstrap.servers", system.bootstrap_servers).option("topic", topic)


def written_by_us(rows: DataFrame, system: Endpoint, topic: str) -> Any:
    """A writer through our sink, with its defaults."""
    return exactly_once(
        rows,
        bootstrap_servers=system.bootstrap_servers,
        application_id=f"{topic}-application",
        topic=topic,
    )


def dropped(rows: DataFrame) -> Any:
    """A writer that drops its rows: what a query costs without a sink."""
    return rows.writeStream.format("noop")

"""A streaming job in a process of its own, for tests that kill it.

Reads `--source` from its beginning to what is there now and stops. Two kinds: ``stateless`` copies
every record to `--output`; ``union`` also keeps a count per key and writes it to `--counts`, both
through one sink.
"""

import argparse
from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from oncelog.spark import OncelogSource, exactly_once, session

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A process that lives for seconds spends most of them on optimising what it runs once."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "output", "application", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--counts")
    parser.add_argument("--progress")
    parser.add_argument("--per-batch", type=int, default=1000)
    parser.add_argument("--starting", default="earliest")
    parser.add_argument("--replaces")
    parser.add_argument("--connector", help="the jars of Spark's Kafka connector, which then reads")
    parser.add_argument(
        "--fail-once", help="a file; while it does not exist, one task makes it and fails"
    )
    options = parser.parse_args()

    builder = session("test-job", cores=2).config("spark.log.level", "ERROR")
    builder = builder.config("spark.jars", options.connector or "")
    spark = builder.config("spark.driver.extraJavaOptions", QUICK_JVM).getOrCreate()
    spark.dataSource.register(OncelogSource)
    source = read_by_spark(spark, options) if options.connector else read_by_us(spark, options)
    rows = source.select("key", "value", F.lit(options.output).alias("topic"))
    if options.fail_once:
        rows = rows.withColumn("value", failing(options.fail_once)("value"))
    if options.counts:
        counts = (
            source.groupBy("key")
            .count()
            .select(
                "key",
                F.col("count").cast("string").cast("binary").alias("value"),
                F.lit(options.counts).alias("topic"),
            )
        )
        rows = rows.unionByName(counts)
    query = (
        exactly_once(
            rows,
            bootstrap_servers=options.bootstrap,
            application_id=options.application,
            progress_path=options.progress,
            replaces_query=options.replaces,
        )
        .outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def read_by_us(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The source topic through our source."""
    return (
        spark.readStream.format("oncelog")
        .option("bootstrapServers", options.bootstrap)
        .option("subscribe", options.source)
        .option("maxOffsetsPerTrigger", options.per_batch)
        .option("startingOffsets", options.starting)
        .option("groupId", options.application)
        .option("checkpointLocation", options.checkpoint)
        .load()
    )


def read_by_spark(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The same through Spark's own connector."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", options.source)
        .option("maxOffsetsPerTrigger", options.per_batch)
        .option("startingOffsets", options.starting)
        .load()
    )


def failing(path: str) -> Callable[[str], Column]:
    """A function that fails once over all runs, after its rows are on their way."""

    @F.udf("binary")
    def fail_once(value: bytes) -> bytes:
        import os

        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        raise RuntimeError("a task fails, once")

    return fail_once


if __name__ == "__main__":
    main()

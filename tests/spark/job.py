"""A streaming job, in this process or in one of its own, for tests that kill it.

Reads its input topics from their beginning to what is there now and stops; `tests.spark.queries`
has what it computes.
"""

import argparse
import json
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from oncelog.spark import CrashPoint, OncelogSource, exactly_once, session
from tests.spark.faults import Fault
from tests.spark.queries import QUERIES, counts

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A process that lives for seconds spends most of them on optimising what it runs once."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job is told on its command line."""

    bootstrap: str
    name: str
    checkpoint: str
    progress: str
    query: str = "copy"
    per_batch: int = 1000
    starting: str = "earliest"
    replaces: str | None = None
    fault: CrashPoint | None = None
    connector: str = ""
    """The jars of Spark's Kafka connector, which then reads."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "JobOptions":
        fields = json.loads(text)
        fault = fields.pop("fault")
        if fault is not None:
            fault = Fault(**{**fault, "pids": tuple(fault["pids"])})
        return cls(**fields, fault=fault)


def small_builder() -> SparkSession.Builder:
    """A session on two cores that starts fast and takes little memory."""
    return (
        session("tests-spark", cores=2)
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        # On a loaded machine a worker may need longer than 15 s to reach its JVM.
        .config("spark.python.authenticate.socketTimeout", "120s")
    )


def start(spark: SparkSession, options: JobOptions) -> StreamingQuery:
    """Start the job's query in this session."""
    query = QUERIES[options.query]
    query.prepare(spark)
    streams = [read(spark, options, suffix) for suffix in query.input_suffixes]
    rows = query.build(*streams).withColumn("topic", F.lit(f"{options.name}-out"))
    if query.adds_counts:
        topic = F.lit(f"{options.name}-counts").alias("topic")
        rows = rows.unionByName(counts(streams[0]).select("*", topic))
    writer = exactly_once(
        rows,
        bootstrap_servers=options.bootstrap,
        application_id=options.name,
        topics=(f"{options.name}-out", f"{options.name}-counts"),
        progress_path=options.progress,
        replaces_query=options.replaces,
        crash_point=options.fault,
    )
    writer = writer.outputMode(query.mode).option("checkpointLocation", options.checkpoint)
    started: StreamingQuery = writer.trigger(availableNow=True).start()
    return started


def read(spark: SparkSession, options: JobOptions, suffix: str) -> DataFrame:
    """One input topic, through our source or through Spark's own connector."""
    if options.connector:
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", options.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", f"{options.name}-{suffix}")
            .option("maxOffsetsPerTrigger", options.per_batch)
            .option("startingOffsets", options.starting)
            .load()
        )
    return (
        spark.readStream.format("oncelog")
        .option("bootstrapServers", options.bootstrap)
        .option("subscribe", f"{options.name}-{suffix}")
        .option("maxOffsetsPerTrigger", options.per_batch)
        .option("startingOffsets", options.starting)
        .option("groupId", options.name)
        .load()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("options", type=JobOptions.decode)
    options = parser.parse_args().options
    builder = small_builder().config("spark.log.level", "ERROR")
    spark = builder.config("spark.jars", options.connector).getOrCreate()
    spark.dataSource.register(OncelogSource)
    start(spark, options).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

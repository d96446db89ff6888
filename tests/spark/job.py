"""A streaming job, in this process or in one of its own, for tests that kill it.

Reads its input topics from their beginning to what is there now and stops; `tests.spark.queries`
has what it computes.
"""

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from oncelog.spark import exactly_once, session
from tests.spark.faults import Fault, Victim
from tests.spark.queries import QUERIES, counts
from tests.spark.sources import register, stream
from tests.spark.striking import CrashPoint, struck

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A process that lives for seconds spends most of them on optimising what it runs once."""
LOCAL = "local[2]"
DRIVER_ROWS = 1000
"""Larger batches have a write stage, of few enough rows to be quick."""
ROOT = str(Path(__file__).parents[2])


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
    master: str = LOCAL
    connector: str = ""
    """The jars of Spark's Kafka connector, which then reads."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "JobOptions":
        fields = json.loads(text)
        fault = fields.pop("fault")
        if fault is not None:
            victim, pids = Victim(fault["victim"]), tuple(fault["pids"])
            fault = Fault(**{**fault, "victim": victim, "pids": pids})
        return cls(**fields, fault=fault)


def builder_on(master: str) -> SparkSession.Builder:
    """A session on two cores that starts fast and takes little memory.

    On a cluster its executors have a core each, so that two of them run where they can.
    """
    builder = (
        session("tests-spark", shuffle_partitions=2)
        .master(master)
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        # On a loaded machine a worker may need longer than 15 s to reach its JVM.
        .config("spark.python.authenticate.socketTimeout", "120s")
    )
    if master == LOCAL:
        return builder
    for name, value in worker_environment().items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    return (
        builder.config("spark.cores.max", "2")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", QUICK_JVM)
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
    )


def worker_environment() -> dict[str, str]:
    """What Spark's Python workers are given: they import the faults that they are to suffer."""
    paths = [ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    path = os.pathsep.join(dict.fromkeys(paths))
    return {"PYTHONPATH": path, "SPARK_AUTH_SOCKET_TIMEOUT": "120"}


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
        max_driver_rows=DRIVER_ROWS,
    )
    if options.fault is not None:
        writer = struck(writer, options.fault)
    writer = writer.outputMode(query.mode).option("checkpointLocation", options.checkpoint)
    started: StreamingQuery = writer.trigger(availableNow=True).start()
    return started


def read(spark: SparkSession, options: JobOptions, suffix: str) -> DataFrame:
    """One input topic, through our source or through Spark's own connector."""
    given = {
        "subscribe": f"{options.name}-{suffix}",
        "maxOffsetsPerTrigger": str(options.per_batch),
        "startingOffsets": options.starting,
        "groupId": options.name,
    }
    return stream(spark, options.bootstrap, given, by_spark=bool(options.connector))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("options", type=JobOptions.decode)
    options = parser.parse_args().options
    builder = builder_on(options.master).config("spark.log.level", "ERROR")
    spark = builder.config("spark.jars", options.connector).getOrCreate()
    register(spark)
    start(spark, options).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

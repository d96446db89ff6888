"""The source against a broker: what it reads, and what it says when records are gone.

Most of it runs without Spark: the reader is called as Spark calls it.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from oncelog.client.admin import Admin
from oncelog.spark.errors import DataLossError, UsageError
from oncelog.spark.source import OncelogBatchReader, OncelogStreamReader
from oncelog.spark.source_options import SourceOptions
from tests.spark.support import Job, load, topics_of
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMA = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])


def options(job: Job, **given: str) -> SourceOptions:
    given = {"subscribe": f"{job.name}-in", "startingOffsets": "earliest"} | given
    return SourceOptions.parse({"bootstrapServers": job.bootstrap_servers} | given)


def available_now(job: Job, checkpoint: list[Any], **given: str) -> list[int]:
    """One run with Trigger.AvailableNow: `checkpoint` holds the offsets, and gets the new one."""
    reader = OncelogStreamReader(options(job, **given), SCHEMA)
    try:
        reader.prepareForTriggerAvailableNow()
        start = checkpoint[-1] if checkpoint else reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        values = rows_of(reader, reader.partitions(start, end))
    finally:
        reader.stop()
    checkpoint.append(end)
    return values


def rows_of(reader: OncelogStreamReader | OncelogBatchReader, partitions: Any) -> list[int]:
    batches = [batch for one in partitions for batch in reader.read(one)]
    return sorted(int(value) for batch in batches for value in batch.column(0).to_pylist())


def recreate(job: Job, first: int, count: int) -> None:
    """Delete the job's topics, and make them again with other records."""

    async def delete() -> None:
        async with Admin(job.bootstrap_servers) as admin:
            await admin.delete_topics(topics_of(job.name))

    asyncio.run(delete())
    load(job.bootstrap_servers, job.name, first, count)


@pytest.mark.parametrize("count", [30, 100, 150])
def test_a_topic_made_again_is_an_error_that_names_it_or_read_from_its_beginning(
    job: Job, count: int
) -> None:
    load(job.bootstrap_servers, job.name, 0, 100)
    checkpoint: list[Any] = []
    assert available_now(job, checkpoint) == list(range(100))
    recreate(job, 1000, count)
    with pytest.raises(DataLossError, match=f"topic '{job.name}-in' was deleted and made again"):
        available_now(job, checkpoint)
    new = list(range(1000, 1000 + count))
    assert available_now(job, checkpoint, failOnDataLoss="false") == new
    assert available_now(job, checkpoint) == []


def test_a_topic_made_again_between_plan_and_task_is_not_read(job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 100)
    reader = OncelogStreamReader(options(job), SCHEMA)
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    recreate(job, 1000, 150)
    with pytest.raises(DataLossError, match="made again"):
        rows_of(reader, planned)
    accepting = OncelogStreamReader(options(job, failOnDataLoss="false"), SCHEMA)
    assert rows_of(accepting, planned) == []
    reader.stop()


def test_a_topic_that_is_gone_is_a_loss_or_left_alone(job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 20)
    given = {"subscribe": f"{job.name}-in,{job.name}-out", "fetchOffset.retryIntervalMs": "1"}
    checkpoint: list[Any] = []
    assert available_now(job, checkpoint, **given) == list(range(20))

    async def delete() -> None:
        async with Admin(job.bootstrap_servers) as admin:
            await admin.delete_topics([f"{job.name}-out"])

    asyncio.run(delete())
    load(job.bootstrap_servers, job.name, 20, 5)
    failing = OncelogStreamReader(options(job, **given), SCHEMA)
    with pytest.raises(DataLossError, match=f"partition {job.name}-out-0 is gone"):
        failing.latestOffset(checkpoint[-1], ReadAllAvailable())
    failing.stop()
    reader = OncelogStreamReader(options(job, **given, failOnDataLoss="false"), SCHEMA)
    end = reader.latestOffset(checkpoint[-1], ReadAllAvailable())
    assert end[f"{job.name}-out"] == {"0": 0, "1": 0}, "it may come back"
    assert rows_of(reader, reader.partitions(checkpoint[-1], end)) == list(range(20, 25))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()
    with pytest.raises(DataLossError, match=f"partition {job.name}-out-0 is gone"):
        available_now(job, checkpoint, **given)
    accepted = available_now(job, checkpoint, **given, failOnDataLoss="false")
    assert accepted == list(range(20, 25))
    with pytest.raises(UsageError, match=f"topic '{job.name}-out' does not exist"):
        available_now(job, [], **given, failOnDataLoss="false")


def test_records_below_the_log_start_are_not_delivered(job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 100)
    topic = f"{job.name}-in"
    whole = OncelogBatchReader(options(job), SCHEMA)
    kept = []
    for one, first in zip(whole.partitions(), (10, 7), strict=True):
        for batch in whole.read(one):
            kept += [int(row["value"]) for row in batch.to_pylist() if row["offset"] >= first]
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": job.bootstrap_servers})
    cut = [
        confluent_kafka.TopicPartition(topic, 0, 10),
        confluent_kafka.TopicPartition(topic, 1, 7),
    ]
    for future in admin.delete_records(cut).values():
        future.result()
    places = f'{{"{topic}":{{"0":0,"1":0}}}}'
    with pytest.raises(DataLossError, match="failOnDataLoss=false goes on"):
        available_now(job, [], startingOffsets=places)
    seen = available_now(job, [], startingOffsets=places, failOnDataLoss="false")
    assert seen == sorted(kept)


def test_a_broker_that_starts_again_fails_neither_the_plan_nor_a_task(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data") as broker, ThreadPoolExecutor() as pool:
        job = Job(broker.bootstrap_servers, tmp_path, "job")
        load(job.bootstrap_servers, job.name, 0, 20)
        reader = OncelogStreamReader(options(job), SCHEMA)
        start = reader.initialOffset()
        planned = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        broker.kill()
        back = pool.submit(broker.start)
        assert rows_of(reader, planned) == list(range(20))
        back.result()
        broker.kill()
        back = pool.submit(broker.start)
        end = reader.latestOffset(start, ReadAllAvailable())
        back.result()
        assert rows_of(reader, reader.partitions(start, end)) == list(range(20))
        reader.stop()


def test_a_partition_that_is_added_is_read_from_its_beginning(job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 10)
    checkpoint: list[Any] = []
    assert available_now(job, checkpoint) == list(range(10))

    async def grow() -> None:
        async with Admin(job.bootstrap_servers) as admin:
            await admin.create_partitions({f"{job.name}-in": 6})

    asyncio.run(grow())
    load(job.bootstrap_servers, job.name, 10, 40)
    assert available_now(job, checkpoint) == list(range(10, 50))
    assert len(checkpoint[-1][f"{job.name}-in"]) == 6


def stream(spark: SparkSession, job: Job, **options: str) -> DataFrame:
    reader = spark.readStream.format("oncelog").option("bootstrapServers", job.bootstrap_servers)
    options = {"subscribe": f"{job.name}-in", "startingOffsets": "earliest"} | options
    return reader.options(**options).load()


def batch(spark: SparkSession, job: Job, **options: str) -> DataFrame:
    reader = spark.read.format("oncelog").option("bootstrapServers", job.bootstrap_servers)
    return reader.options(**({"subscribe": f"{job.name}-in"} | options)).load()


def run(df: DataFrame, checkpoint: Path) -> list[Row]:
    """All rows of a run to the end of what is there."""
    rows: list[Row] = []
    writer = df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def test_a_batch_read_of_nothing_has_no_rows(spark: SparkSession, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 0)
    assert batch(spark, job).collect() == []
    options = {"kafka.bootstrap.servers": job.bootstrap_servers, "subscribePattern": "none-.*"}
    assert spark.read.format("oncelog").options(**options).load().count() == 0


def test_wrong_options_are_said_by_load(spark: SparkSession, job: Job) -> None:
    with pytest.raises(Exception, match="'maxoffsets' is unknown; did you mean 'maxOffsetsPer"):
        stream(spark, job, maxOffsets="1")


def test_code_written_for_sparks_source_runs(spark: SparkSession, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 40)
    df = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribePattern", f"{job.name}-i.*")
        .option("startingOffsets", "earliest")
        .option("minPartitions", "5")
        .option("kafka.max.poll.records", "500")
        .load()
    )
    assert numbers(run(df.selectExpr("CAST(value AS STRING)"), job.checkpoint)) == list(range(40))
    load(job.bootstrap_servers, job.name, 40, 10)
    assert numbers(run(df, job.checkpoint)) == list(range(40, 50))

"""What the sink and the source refuse, in a sentence each. One session, no kills."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncelog.spark import PipelineError, UnsupportedModeError, UsageError, exactly_once
from tests.spark.sources import BY_SPARK, stream, table
from tests.spark.support import Job, check_copied, load, message_of, read

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def rate(spark: SparkSession) -> DataFrame:
    """A source that is not Kafka."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return stream.select(F.col("value").cast("string").alias("value"))


def source(spark: SparkSession, job: Job, **options: str) -> DataFrame:
    options = {"subscribe": f"{job.name}-in", "startingOffsets": "earliest"} | options
    return stream(spark, job.bootstrap_servers, options)


def write(df: DataFrame, job: Job, **options: Any) -> DataStreamWriter:
    options = {"topic": f"{job.name}-out"} | options
    writer: DataStreamWriter = exactly_once(
        df,
        bootstrap_servers=job.bootstrap_servers,
        application_id=job.name,
        progress_path=str(job.progress),
        **options,
    ).option("checkpointLocation", str(job.checkpoint))
    return writer


def failure_of(writer: DataStreamWriter) -> str:
    with pytest.raises(Exception) as failure:  # noqa: PT011 - Spark wraps what the sink raised
        writer.trigger(availableNow=True).start().awaitTermination()
    return str(failure.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (lambda df: df.select(F.col("value").alias("v")), "no column 'value'"),
        (lambda df: df.select(F.lit(1).alias("value")), "'value' is int"),
        (lambda df: df.withColumn("partition", F.lit("1")), "'partition' is string"),
        (lambda df: df.withColumn("headers", F.lit("x")), "'headers' is string"),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_once(
    rate: DataFrame, job: Job, shape: Callable[[DataFrame], DataFrame], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write(shape(rate), job)


def test_a_frame_that_is_not_streaming_or_has_no_topic_is_refused(
    spark: SparkSession, rate: DataFrame, job: Job
) -> None:
    with pytest.raises(UsageError, match="streaming"):
        write(spark.range(1).select(F.lit("x").alias("value")), job)
    with pytest.raises(UsageError, match="column 'topic'"):
        write(rate, job, topic=None)


def test_a_connect_frame_is_refused(job: Job) -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(UnsupportedModeError, match="Spark Connect"):
        write(connect(), job)


def test_a_source_that_is_not_kafka_needs_a_marker_topic_and_works_with_one(
    rate: DataFrame, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 0)
    without = write(rate, job, marker_topic=None).trigger(processingTime="0 seconds")
    with pytest.raises(Exception, match="marker_topic"):
        without.start().awaitTermination()
    query = write(rate, job).start()
    try:
        while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < 3:
            query.awaitTermination(1)
    finally:
        query.stop()
    values = [int(value) for _, _, value in read(job.bootstrap_servers, f"{job.name}-out")]
    assert len(values) >= 30
    assert sorted(values) == list(range(len(values)))


def test_a_null_topic_and_an_unknown_one_stop_the_query_with_the_reason(
    spark: SparkSession, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 10)
    rows = source(spark, job).select("key", "value")
    null = F.lit(None).cast("string")
    assert "topic is null" in failure_of(write(rows.withColumn("topic", null), job, topic=None))
    unknown = rows.withColumn("topic", F.lit("nowhere"))
    with pytest.raises(StreamingQueryException) as failure:
        write(unknown, job, topic=None).trigger(availableNow=True).start().awaitTermination()
    assert "UnknownTargetError: topic 'nowhere' does not exist" in message_of(failure.value)
    assert "'nowhere' does not exist" in failure_of(write(rows, job, topic="nowhere"))
    assert read(job.bootstrap_servers, f"{job.name}-out") == []


@pytest.mark.skipif(BY_SPARK, reason="Spark's own source does not say so before the start")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"TOPIC":{"0":-2}}'}, "leaves out .*-in-1"),
        ({"startingOffsets": '{"TOPIC":{"0":0,"1":0,"2":0,"3":0,"9":0}}'}, "names .*-in-9"),
        ({"startingOffsetsByTimestamp": '{"TOPIC":{"1":0}}'}, "leaves out .*-in-0"),
        ({"startingTimestamp": "99999999999999"}, "after the last record"),
        ({"subscribe": "TOPIC,nowhere"}, "'nowhere' does not exist"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "the source at 127.0.0.1:1 cannot be asked"),
    ],
)
def test_a_beginning_that_the_source_cannot_have_is_refused_before_the_query_starts(
    spark: SparkSession, job: Job, options: dict[str, str], message: str
) -> None:
    load(job.bootstrap_servers, job.name, 0, 10)
    given = {name: text.replace("TOPIC", f"{job.name}-in") for name, text in options.items()}
    if "kafka.bootstrap.servers" in given:
        given["bootstrapServers"] = ""
    writer = write(source(spark, job, **given).select("key", "value"), job)
    with pytest.raises(PipelineError, match=message):
        writer.trigger(availableNow=True).start()
    assert not job.checkpoint.exists()
    assert spark.streams.active == []


def test_starting_offsets_do_not_matter_once_the_query_has_begun(
    spark: SparkSession, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 10)
    write(source(spark, job).select("key", "value"), job).trigger(
        availableNow=True
    ).start().awaitTermination()
    load(job.bootstrap_servers, job.name, 10, 10)
    stale = {"startingOffsets": f'{{"{job.name}-in":{{"0":-2}}}}'}
    writer = write(source(spark, job, **stale).select("key", "value"), job)
    writer.trigger(availableNow=True).start().awaitTermination()
    check_copied(job, 20)


def test_all_columns_arrive_and_a_batch_read_sees_the_same(spark: SparkSession, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 200)
    copied = source(spark, job, maxOffsetsPerTrigger="70").withColumn(
        "headers",
        F.expr(
            "array(named_struct('key', 'offset', 'value', cast(cast(offset as string) as binary)))"
        ),
    )
    query = write(copied.drop("topic"), job).trigger(availableNow=True).start()
    query.awaitTermination()
    check_copied(job, 200)
    progress = query.lastProgress
    assert progress is not None
    assert progress["batchId"] >= 2

    def whole(topic: str) -> list[Row]:
        options = {"subscribe": f"{job.name}-{topic}", "includeHeaders": "true"}
        return table(spark, job.bootstrap_servers, options).collect()

    before = {bytes(row["value"]): row for row in whole("in")}
    after = whole("out")
    assert len(after) == len(before) == 200
    for row in after:
        origin = before[bytes(row["value"])]
        assert (row["key"], row["partition"]) == (origin["key"], origin["partition"])
        assert row["timestamp"] == origin["timestamp"]
        assert origin["headers"] is None
        assert bytes(row["headers"][0]["value"]) == b"%d" % origin["offset"]


def test_a_writer_started_again_goes_on_where_it_stopped(spark: SparkSession, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 100)
    writer = write(source(spark, job).select("key", "value"), job).trigger(availableNow=True)
    writer.start().awaitTermination()
    load(job.bootstrap_servers, job.name, 100, 100)
    writer.start().awaitTermination()
    check_copied(job, 200)

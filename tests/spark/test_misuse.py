"""The table of misuse: what `exactly_once` and its `start()` refuse, in one sentence each."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncelog.spark import (
    PipelineError,
    UnsupportedModeError,
    UsageError,
    exactly_once,
)
from oncelog.spark.checks import state_of
from oncelog.spark.writer import kafka_sources
from tests.spark.sources import stream
from tests.spark.support import Job, load, read
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ANSWER_S_MAX = 10.0


@pytest.fixture
def rate(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return stream.select(F.col("value").cast("string").alias("value"))


def source(spark: SparkSession, job: Job, servers: str = "", **options: str) -> DataFrame:
    options = {"subscribe": f"{job.name}-in", "startingOffsets": "earliest"} | options
    return stream(spark, servers or job.bootstrap_servers, options)


def write(df: DataFrame, job: Job, checkpoint: Path | None = None, **given: Any) -> Any:
    options: dict[str, Any] = {
        "bootstrap_servers": job.bootstrap_servers,
        "application_id": job.name,
        "topic": f"{job.name}-out",
    }
    writer: DataStreamWriter = exactly_once(df.select("value"), **{**options, **given})
    return writer.option("checkpointLocation", str(checkpoint or job.checkpoint))


def refusal(writer: DataStreamWriter) -> str:
    """What `start()` says, soon and in one sentence."""
    began = time.monotonic()
    with pytest.raises(PipelineError) as failure:
        writer.start()
    assert time.monotonic() - began < ANSWER_S_MAX
    text = str(failure.value)
    assert len(text) < 1000
    assert "\n" not in text
    return text


# --- said by exactly_once() itself -------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"compression_type": "lzma"}, "'lzma' is unknown; known are none, gzip"),
        ({"client_options": {"request.timeout": "1"}}, r"did you mean request\.timeout\.ms"),
        ({"client_options": {"batchsize": 1}}, "client_options .* are wrong"),
        ({"client_options": {"transactional.id": "x"}}, "contradicts application_id="),
        ({"client_options": {"transaction.timeout.ms": 1}}, "set transaction_timeout_ms"),
        ({"client_options": {"enable.idempotence": "false"}}, "needs acks=all, idempotence"),
        ({"client_options": {"retries": "0"}}, "needs acks=all, idempotence"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"max_tasks": 0}, "max_tasks=0 must be at least 1"),
        ({"bootstrap_servers": "host:port"}, "is not host:port"),
        ({"application_id": ""}, "application_id is empty"),
        ({"accept": ["anything"]}, "'anything'"),
        ({"topic": "m", "marker_topic": "m"}, "holds the markers"),
        ({"marker_topic": None, "commit_source_offsets": False}, "nothing but a marker_topic"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    rate: DataFrame, job: Job, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write(rate, job, **wrong)


def test_a_trigger_without_micro_batches_is_refused(rate: DataFrame, job: Job) -> None:
    with pytest.raises(UnsupportedModeError, match=r"trigger\(continuous=\.\.\.\)"):
        write(rate, job).trigger(continuous="1 second")
    with pytest.raises(UnsupportedModeError, match=r"trigger\(realTime=\.\.\.\)"):
        write(rate, job).trigger(realTime="5 minutes")
    with pytest.raises(UnsupportedModeError, match="asyncProgressTrackingEnabled"):
        write(rate, job).option("asyncProgressTrackingEnabled", True)


def test_what_would_replace_the_sink_is_refused(rate: DataFrame, job: Job) -> None:
    for call in ("format", "foreach", "foreachBatch", "toTable"):
        with pytest.raises(UsageError, match="would replace exactly_once"):
            getattr(write(rate, job), call)("console")
    with pytest.raises(UsageError, match="client_options"):
        write(rate, job).option("kafka.compression.type", "zstd")
    with pytest.raises(UsageError, match="no path"):
        write(rate, job).start("/tmp/out")


# --- said by start() ---------------------------------------------------------------------


def test_a_query_without_a_lasting_checkpoint_is_refused(rate: DataFrame, job: Job) -> None:
    writer = exactly_once(
        rate, bootstrap_servers=job.bootstrap_servers, application_id=job.name, topic="t"
    )
    assert "temporary checkpoint" in refusal(writer)


def test_a_topic_that_does_not_exist_is_refused(rate: DataFrame, job: Job) -> None:
    assert "'nowhere' does not exist" in refusal(write(rate, job, topic="nowhere"))


def test_an_address_where_no_broker_is_is_said_within_ten_seconds(
    rate: DataFrame, job: Job
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"at {servers} does not answer" in refusal(
            write(rate, job, bootstrap_servers=servers)
        )


def test_a_silent_peer_is_said_within_ten_seconds(rate: DataFrame, job: Job) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer" in refusal(write(rate, job, bootstrap_servers=servers))


def test_a_timeout_above_the_brokers_cap_is_refused(rate: DataFrame, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 0)
    text = refusal(write(rate, job, transaction_timeout_ms=2_000_000_000))
    assert "transaction.max.timeout.ms: lower it" in text


def test_a_marker_topic_that_forgets_is_refused(rate: DataFrame, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 0)
    text = refusal(write(rate, job, marker_topic=f"{job.name}-counts"))
    assert "cleanup.policy=delete" in text


def test_a_second_query_with_the_id_is_refused_and_the_first_goes_on(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    load(job.bootstrap_servers, job.name, 0, 50)
    rows = source(spark, job)
    first = write(rows, job).start()
    try:
        first.processAllAvailable()
        text = refusal(write(rows, job, tmp_path / "other"))
        assert "this query's checkpoint is empty" in text
        assert f"replaces_query='{first.id}'" in text
        load(job.bootstrap_servers, job.name, 50, 50)
        first.processAllAvailable()
    finally:
        first.stop()
    values = [value for _, _, value in read(job.bootstrap_servers, f"{job.name}-out")]
    assert len(values) == len(set(values)) == 100


def test_a_lost_checkpoint_goes_on_only_from_the_groups_offsets(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    load(job.bootstrap_servers, job.name, 0, 50)
    first = write(source(spark, job), job).trigger(availableNow=True).start()
    first.awaitTermination()
    load(job.bootstrap_servers, job.name, 50, 50)
    from_the_start = {"checkpointLocation": str(tmp_path / "a")}
    rows = source(spark, job, **from_the_start)
    lost = write(rows, job, tmp_path / "a", replaces_query=str(first.id))
    query = lost.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="other-start"):
        query.awaitTermination()
    options = {
        "startingOffsets": "group",
        "groupId": job.name,
        "checkpointLocation": str(tmp_path / "b"),
    }
    rows = source(spark, job, **options)
    lost = write(rows, job, tmp_path / "b", replaces_query=str(first.id))
    lost.trigger(availableNow=True).start().awaitTermination()
    values = [value for _, _, value in read(job.bootstrap_servers, f"{job.name}-out")]
    assert len(values) == len(set(values)) == 100


STATEFUL: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "an aggregation": lambda rows, _: rows.groupBy("value").count().select("value"),
    "a session window, an aggregation too": lambda rows, _: (
        rows.withWatermark("time", "1 hour")
        .groupBy("value", F.session_window("time", "1 hour"))
        .count()
        .select("value")
    ),
    "distinct rows": lambda rows, _: rows.distinct(),
    "dropDuplicates": lambda rows, _: rows.dropDuplicates(["value"]),
    "dropDuplicatesWithinWatermark": lambda rows, _: rows.withWatermark(
        "time", "1 hour"
    ).dropDuplicatesWithinWatermark(["value"]),
    "a join of two streams": lambda rows, _: rows.join(rows.select("value"), "value"),
    "a limit": lambda rows, _: rows.limit(5),
    "applyInPandasWithState": lambda rows, _: rows.groupBy("value").applyInPandasWithState(
        lambda key, frames, state: frames, "value string", "n int", "append", "NoTimeout"
    ),
    "a state behind other steps": lambda rows, table: (
        rows.union(rows.distinct()).join(table, "value").where("value > '1'").select("value")
    ),
    "rows that are in a table too": lambda rows, table: rows.select("value").intersect(table),
}
STATELESS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "a filter": lambda rows, _: rows.where("value > '1'"),
    "a union": lambda rows, _: rows.union(rows),
    "a join with a table": lambda rows, table: rows.join(table.distinct(), "value"),
    "a watermark": lambda rows, _: rows.withWatermark("time", "1 hour"),
    "a shuffle": lambda rows, _: rows.repartition(2, F.rand()),
    "a filter by a table": lambda rows, table: rows.where(
        F.col("value").isin([row[0] for row in table.collect()])
    ),
}


@pytest.fixture
def shapes(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """A stream and a table."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = stream.select(F.col("value").cast("string"), F.col("timestamp").alias("time"))
    return rows, spark.range(3).select(F.col("id").cast("string").alias("value"))


@pytest.mark.parametrize("shape", STATEFUL)
def test_a_query_with_state_may_not_replace_another(
    shapes: tuple[DataFrame, DataFrame], job: Job, shape: str
) -> None:
    """It would go on from the group's offsets, and begin with an empty state."""
    text = refusal(write(STATEFUL[shape](*shapes), job, replaces_query="q"))
    assert "replaces_query" in text
    assert "without state" in text
    assert not job.checkpoint.exists()


@pytest.mark.parametrize("shape", STATELESS)
def test_a_query_without_state_may_replace_another(
    shapes: tuple[DataFrame, DataFrame], shape: str
) -> None:
    assert state_of(STATELESS[shape](*shapes)) is None


def test_a_source_on_another_cluster_is_named_and_works_without_its_offsets(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "other") as other:
        load(other.bootstrap_servers, job.name, 0, 30)
        load(job.bootstrap_servers, job.name, 0, 0)
        rows = source(spark, job, other.bootstrap_servers)
        text = refusal(write(rows, job))
        assert "a source reads from cluster" in text
        assert "commit_source_offsets=False" in text
        writer = write(rows, job, commit_source_offsets=False).trigger(availableNow=True)
        writer.start().awaitTermination()
        writer.start().awaitTermination()
    values = [value for _, _, value in read(job.bootstrap_servers, f"{job.name}-out")]
    assert len(values) == len(set(values)) == 30


def test_the_source_is_found_in_every_shape_of_a_query(spark: SparkSession, job: Job) -> None:
    loaded = source(spark, job)
    loaded.createOrReplaceTempView("shapes")
    shapes = {
        "load": loaded,
        "select": loaded.select("value"),
        "view": spark.table("shapes"),
        "sql": spark.sql("SELECT value FROM shapes"),
        "with": spark.sql("WITH a AS (SELECT value FROM shapes) SELECT * FROM a"),
        "union": loaded.union(spark.table("shapes")),
    }
    found = {
        name: [source["bootstrap.servers"] for source in kafka_sources(df)]
        for name, df in shapes.items()
    }
    one = job.bootstrap_servers
    assert found == {name: [one] * (2 if name == "union" else 1) for name in shapes}


def test_a_bare_load_from_another_cluster_is_refused(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "other") as other:
        load(other.bootstrap_servers, job.name, 0, 30)
        load(job.bootstrap_servers, job.name, 0, 0)
        rows = exactly_once(
            source(spark, job, other.bootstrap_servers),
            bootstrap_servers=job.bootstrap_servers,
            application_id=job.name,
            topic=f"{job.name}-out",
        )
        text = refusal(rows.option("checkpointLocation", str(job.checkpoint)))
        assert "a source reads from cluster" in text


# --- stop --------------------------------------------------------------------------------


def test_stop_returns_soon_though_the_cluster_is_silent(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    load(job.bootstrap_servers, job.name, 0, 20)
    with BrokerProcess(tmp_path / "sink") as sink:
        load(sink.bootstrap_servers, job.name, 0, 0)
        writer = write(
            source(spark, job),
            job,
            bootstrap_servers=sink.bootstrap_servers,
            commit_source_offsets=False,
        )
        query = writer.start()
        query.processAllAvailable()
        sink.kill()
        load(job.bootstrap_servers, job.name, 20, 20)
        while not query.status["isTriggerActive"]:
            time.sleep(0.05)
        began = time.monotonic()
        query.stop()
        assert time.monotonic() - began < ANSWER_S_MAX


def test_the_session_has_no_ui(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None

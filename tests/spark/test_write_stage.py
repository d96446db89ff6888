"""The ways in which a micro-batch is written, on one session and one broker."""

import asyncio
import contextlib
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

import oncelog.spark.collected_rows as driver_rows_module
import oncelog.spark.kafka_micro_batch as micro_batch_module
import oncelog.spark.kafka_run as run_module
import oncelog.spark.slots as slots_module
from oncelog.client.admin import Admin
from oncelog.spark import exactly_once
from oncelog.spark.collected_rows import collect_few
from oncelog.spark.encoder import Encoder
from oncelog.spark.sharing import ShareTask
from oncelog.spark.target_lookup import TargetLookup
from oncelog.spark.targets import Targets
from oncelog.spark.tasks import EncodeTask
from oncelog.spark.versions import release
from oncelog.spark.write_stage import check_one_attempt
from tests.spark.faults import lose_shuffle
from tests.spark.sources import stream, table
from tests.spark.support import Job, check_copied, load, read, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def source(spark: SparkSession, job: Job, per_batch: int) -> DataFrame:
    options = {
        "subscribe": f"{job.name}-in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(per_batch),
    }
    return stream(spark, job.bootstrap_servers, options)


def run(df: DataFrame, job: Job, **options: Any) -> None:
    writer_of(df, job, **({"topic": None} | options)).start().awaitTermination()


def writer_of(df: DataFrame, job: Job, **options: Any) -> DataStreamWriter:
    given: dict[str, Any] = {"topic": f"{job.name}-out"} | options
    writer = exactly_once(
        df,
        bootstrap_servers=job.bootstrap_servers,
        application_id=job.name,
        progress_path=str(job.progress),
        **given,
    )
    writer = writer.option("checkpointLocation", str(job.checkpoint))
    triggered: DataStreamWriter = writer.trigger(availableNow=True)
    return triggered


def senders(job: Job) -> set[str]:
    """Who wrote, for each batch: the driver, or a stage."""
    steps = [step for step in job.steps() if step["step"] == "mid_task"]
    return {"driver" if step["task"] < 0 else "stage" for step in steps}


def failures(job: Job) -> list[str]:
    return [step["error"] for step in job.steps() if step["step"] == "failed"]


@pytest.mark.parametrize(
    "per_batch",
    [
        pytest.param(20, id="as rows"),
        # `test_the_driver_sends_what_the_rows_hold` has a driver that sends Arrow.
        pytest.param(600, id="as Arrow", marks=pytest.mark.soak),
    ],
)
def test_large_batches_go_through_a_stage_and_small_ones_through_the_driver(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch, per_batch: int
) -> None:
    """INV-10: every record once and in order, either way; the attempts of each job are counted."""
    jobs_counts: list[int] = []

    def check(context: Any, tag: str, **sends: bool) -> None:
        check_one_attempt(context, tag, **sends)
        jobs_counts.append(len(context._jsc.sc().statusTracker().getJobIdsForTag(tag)))

    monkeypatch.setattr(micro_batch_module, "check_one_attempt", check)
    load(job.bootstrap_servers, job.name, 0, 1200)
    run(source(spark, job, 1200).select("key", "value"), job, topic=f"{job.name}-out")
    assert senders(job) == {"stage"}
    load(job.bootstrap_servers, job.name, 1200, 2 * per_batch)
    run(source(spark, job, per_batch).select("key", "value"), job, topic=f"{job.name}-out")
    assert senders(job) == {"stage", "driver"}
    check_copied(job, 1200 + 2 * per_batch)
    ended = [step for step in job.steps() if step["step"] == "txn_ended"]
    assert jobs_counts == [1] * len(ended)
    assert failures(job) == []


@pytest.mark.parametrize("per_batch", [pytest.param(100, id="rows"), pytest.param(600, id="Arrow")])
def test_the_driver_sends_what_the_rows_hold(spark: SparkSession, job: Job, per_batch: int) -> None:
    load(job.bootstrap_servers, job.name, 0, 2 * per_batch)
    # Records of 1970 are due to be deleted when the broker next looks (log.retention.ms).
    first_ms = time.time_ns() // 1_000_000
    number = F.col("value").cast("string").cast("int")
    header = F.struct(F.lit("h").alias("key"), F.col("value").alias("value"))
    rows = source(spark, job, per_batch).select(
        "value",
        F.when(number % 3 > 0, F.col("key")).alias("key"),
        F.when(number % 2 > 0, F.array(header)).alias("headers"),
        F.timestamp_millis(number + first_ms).alias("timestamp"),
        F.lit(f"{job.name}-out").alias("topic"),
        (number % 2).alias("partition"),
    )
    run(rows, job)
    assert "driver" in senders(job)
    options = {"subscribe": f"{job.name}-out", "includeHeaders": "true"}
    read_back = table(spark, job.bootstrap_servers, options)
    wrong = read_back.withColumn("number", number).where(
        "not (partition <=> number % 2 and (key is null) <=> (number % 3 = 0)"
        f" and unix_millis(timestamp) - {first_ms} <=> number"
        " and headers[0].value <=> if(number % 2 = 1, value, null))"
    )
    assert read_back.select("value").distinct().count() == 2 * per_batch
    assert wrong.count() == 0


def test_rows_that_are_too_large_for_the_driver_are_collected_ever_less_often(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[tuple[int, bool]] = []

    def collect(*arguments: Any) -> Any:
        found = collect_few(*arguments)
        number = len([step for step in job.steps() if step["step"] == "txn_ended"])
        collected.append((number, found is not None))
        return found

    monkeypatch.setattr(micro_batch_module, "collect_few", collect)
    load(job.bootstrap_servers, job.name, 0, 4800)
    padded = "rpad(string(value), if(offset % 50 = 0, 20000, 10), ' ') AS value"
    rows = source(spark, job, 600).selectExpr(padded)
    run(rows, job, topic=f"{job.name}-out")
    assert collected == [(1, False), (3, False), (6, False)]
    values = [value.strip() for _, _, value in read(job.bootstrap_servers, f"{job.name}-out")]
    assert Counter(values) == Counter(b"%d" % number for number in range(4800))
    assert failures(job) == []


@pytest.mark.parametrize(
    ("count", "size", "limit", "is_whole"),
    [
        pytest.param(500, 100, 500, True, id="few rows, as large as can be"),
        pytest.param(500, 101, 500, False, id="few rows, one byte larger"),
        pytest.param(501, 10, 500, False, id="one row more than few"),
        pytest.param(2000, 50, 2000, True, id="many rows"),
        pytest.param(2001, 50, 2000, False, id="one row more than many"),
        pytest.param(2000, 51, 2000, False, id="many rows that are too large together"),
        pytest.param(1500, 67, 2000, False, id="fewer rows that are too large together"),
        pytest.param(1200, 67, 2000, True, id="as large, and fewer still"),
    ],
)
def test_the_driver_collects_rows_up_to_a_count_and_a_size(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    size: int,
    limit: int,
    is_whole: bool,
) -> None:
    # Below 1 MB, which Spark's block manager has no part in: other tests lose its files.
    monkeypatch.setattr(driver_rows_module, "FEW_ROWS_SIZE_MAX", 100)
    monkeypatch.setattr(driver_rows_module, "COLLECTED_SIZE_MAX", 100_000)
    value = F.rpad(F.col("id").cast("string"), size, " ")
    rows = spark.range(0, count, numPartitions=1).select(value.alias("value"))
    found = collect_few(rows, {"value": "cast(value as binary)"}, limit, 1)
    assert (found is not None) == is_whole
    if found is not None:
        values = [value for batch in found for value in batch.column("value").to_pylist()]
        assert [int(value) for value in values] == list(range(count))


def test_rows_that_turn_out_to_be_many_leave_the_driver_before_anything_is_sent(
    spark: SparkSession, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 20)
    copies = F.sequence(F.lit(1), F.when(F.col("offset") < 5, 1).otherwise(600))
    many = source(spark, job, 10).select(F.explode(copies), "value")
    run(many.select("value", F.lit(f"{job.name}-out").alias("topic")), job)
    seen = Counter(value for _, _, value in read(job.bootstrap_servers, f"{job.name}-out"))
    assert len(seen) == 20
    assert Counter(seen.values()) == {1: 10, 600: 10}
    assert failures(job) == []


def test_without_barriers_a_plain_stage_sends(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "has_barrier_stages", lambda context: False)
    load(job.bootstrap_servers, job.name, 0, 1500)
    rows = source(spark, job, 900).select("key", "value")
    run(rows, job, topic=f"{job.name}-out", max_tasks=2, max_driver_rows=0)
    assert senders(job) == {"stage"}
    check_copied(job, 1500)
    assert failures(job) == []


@dataclass(frozen=True, slots=True)
class LosingTask:
    """Encodes; the first task that ends deletes the files of the shuffle that it read."""

    lost: str
    encoder: Encoder
    task_keys: Sequence[int]

    def __call__(self, batches: Any) -> Any:
        yield from EncodeTask(self.encoder, self.task_keys)(batches)
        lose_shuffle(self.lost)


class LosingShareTask(ShareTask):
    """Encodes and sends; the first task that ends deletes the files of the shuffle it read."""

    def __call__(self, batches: Any) -> Any:
        yield from ShareTask.__call__(self, batches)
        lose_shuffle(str(Path(self.progress_path or "").with_name("lost")))


@pytest.mark.parametrize(
    "way",
    ["barriers", *(pytest.param(way, marks=pytest.mark.soak) for way in ("no barriers", "turns"))],
)
def test_rows_of_two_runs_of_a_lost_shuffle_are_not_committed_together(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """INV-10: Spark computes what is lost again, and other rows may be in each partition then."""
    lost = job.progress.with_name("lost")
    monkeypatch.setattr(micro_batch_module, "EncodeTask", partial(LosingTask, str(lost)))
    monkeypatch.setattr(micro_batch_module, "ShareTask", LosingShareTask)
    monkeypatch.setattr(run_module, "has_barrier_stages", lambda context: way == "barriers")
    load(job.bootstrap_servers, job.name, 0, 1500)
    salt = F.udf(lambda key: random.randrange(10_000), "int")
    rows = source(spark, job, 1500).withColumn("salt", salt("key")).repartition(8, "salt")
    max_tasks = None if way == "turns" else 2
    run(rows.select("key", "value"), job, topic=f"{job.name}-out", max_tasks=max_tasks)
    assert lost.exists()
    seen = Counter(value for _, _, value in read(job.bootstrap_servers, f"{job.name}-out"))
    assert seen == Counter(b"%d" % number for number in range(1500))
    # Where the stage that is lost is the query's own, Spark gives the job up itself, from 4.0 on.
    told = "rollback the ResultStage|was attempted 2 times" if way == "turns" else "attempt"
    assert [error for error in failures(job) if not re.search(told, error)] == []
    assert len(failures(job)) == 1


@contextlib.contextmanager
def held_slot(spark: SparkSession, folder: Path) -> Iterator[Callable[[], None]]:
    """Another job holds one of the two slots, until it is told to let go."""
    begun, released = folder / "begun", folder / "released"

    def hold(_: object) -> None:
        begun.touch()
        while not released.exists():
            time.sleep(0.02)

    numbers = spark.sparkContext.parallelize([0], 1)
    holder = threading.Thread(target=lambda: numbers.foreach(hold), daemon=True)
    holder.start()
    try:
        wait_until(begun.exists, "the other job does not begin")
        yield released.touch
    finally:
        released.touch()
        holder.join()


@pytest.fixture
def writer_of_a_stage(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> DataStreamWriter:
    """Of one batch, whose stage is looked at soon after its start."""
    monkeypatch.setattr(slots_module, "WAITED_S", 0.2)
    load(job.bootstrap_servers, job.name, 0, 700)
    return writer_of(source(spark, job, 700).select("key", "value"), job, max_tasks=2)


@pytest.mark.soak
def test_a_stage_that_waits_for_another_jobs_slot_says_so_and_goes_on(
    spark: SparkSession,
    job: Job,
    writer_of_a_stage: DataStreamWriter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with held_slot(spark, job.folder) as release:
        query = writer_of_a_stage.start()
        wait_until(
            lambda: "waits for 2 slots at once, and other jobs hold 1 of 2" in caplog.text,
            "no warning",
        )
        release()
        query.awaitTermination()
    check_copied(job, 700)
    assert failures(job) == []


def test_a_query_whose_stage_waits_for_another_jobs_slot_can_be_stopped(
    spark: SparkSession,
    job: Job,
    writer_of_a_stage: DataStreamWriter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with held_slot(spark, job.folder):
        query = writer_of_a_stage.start()
        wait_until(lambda: "waits for 2 slots" in caplog.text, "no warning")
        began_s = time.monotonic()
        query.stop()
        assert time.monotonic() - began_s < 15
        assert query.exception() is None
    assert read(job.bootstrap_servers, f"{job.name}-out") == []


def test_one_slot_is_enough_for_many_partitions(spark: SparkSession, job: Job) -> None:
    load(job.bootstrap_servers, job.name, 0, 700)
    with held_slot(spark, job.folder):
        writer_of(
            source(spark, job, 700).select("key", "value"), job, max_tasks=1
        ).start().awaitTermination()
    check_copied(job, 700)
    assert senders(job) == {"stage"}


def test_a_partition_made_a_moment_ago_is_found(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(job.bootstrap_servers, job.name, 0, 20)
    ask = TargetLookup.ask
    answers: list[Targets] = []

    async def old_then_new(self: TargetLookup) -> Targets:
        answers.append(await ask(self))
        if len(answers) == 1:
            await add_partition()
        return answers[-1]

    async def add_partition() -> None:
        async with Admin(job.bootstrap_servers) as admin:
            await admin.create_partitions({f"{job.name}-out": 3})

    monkeypatch.setattr(TargetLookup, "ask", old_then_new)
    run(
        source(spark, job, 20).select("value", F.lit(2).alias("partition")),
        job,
        topic=f"{job.name}-out",
        write_attempts=1,
    )
    assert {place for place, _, _ in read(job.bootstrap_servers, f"{job.name}-out")} == {2}
    check_copied(job, 20)
    assert [answer.counts for answer in answers] == [(2,), (3,)]


def test_a_topic_with_a_small_limit_gets_small_batches_and_names_a_record_that_is_larger(
    spark: SparkSession, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 30)

    async def limit() -> None:
        async with Admin(job.bootstrap_servers) as admin:
            await admin.incremental_alter_configs(f"{job.name}-out", {"max.message.bytes": "2000"})

    asyncio.run(limit())
    rows = source(spark, job, 30).select(F.repeat(F.lit("x"), 800).alias("value"))
    run(rows, job, topic=f"{job.name}-out")
    assert len(read(job.bootstrap_servers, f"{job.name}-out")) == 30
    load(job.bootstrap_servers, job.name, 30, 10)
    large = source(spark, job, 30).select(F.repeat(F.lit("x"), 3000).alias("value"))
    with pytest.raises(StreamingQueryException, match=r"3\d+ bytes and topic .* allows 2000"):
        run(large, job, topic=f"{job.name}-out")
    assert len(failures(job)) == 1


def test_settings_copied_from_a_producer_have_their_effect(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver and by a stage."""
    settings = {
        "kafka.compression.type": "zstd",
        "batch.size": "20000",
        "linger.ms": "5",
        "acks": "all",
        "enable.idempotence": "true",
        "retries": "2147483647",
        "max.block.ms": "60000",
        "default.api.timeout.ms": "60000",
        "delivery.timeout.ms": "60000",
    }
    encoders: list[Encoder] = []

    def encoder(*arguments: Any) -> Encoder:
        encoders.append(Encoder(*arguments))
        return encoders[-1]

    monkeypatch.setattr(micro_batch_module, "Encoder", encoder)
    for first, count, per_batch in ((0, 700, 700), (700, 40, 20)):
        load(job.bootstrap_servers, job.name, first, count)
        rows = source(spark, job, per_batch).select("key", "value")
        run(rows, job, topic=f"{job.name}-out", client_options=settings)
    check_copied(job, 740)
    assert senders(job) == {"stage", "driver"}
    assert {(made.batch_size, made.compression_type) for made in encoders} == {(20000, "zstd")}


@pytest.mark.skipif(release() < (4, 1), reason="Unix sockets came with PySpark 4.1")
def test_workers_are_reached_over_unix_sockets(spark: SparkSession) -> None:
    """Over TCP each task waits 40 ms for its input: Nagle's algorithm, and delayed acks."""
    told = F.udf(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower())
    assert spark.range(1).select(told("id")).first() == ("true",)

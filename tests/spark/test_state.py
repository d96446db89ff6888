"""State lives through kills, and is that of the run whose output is visible (INV-10).

One query here; `python -m tests.spark.matrix` has them all.
"""

import asyncio
import os
from itertools import product
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from oncelog.client.admin import Admin
from oncelog.core.ids import TopicPartition
from oncelog.spark.writer import ExactlyOnceWriter
from tests.spark.crash_table import LARGE, SMALL
from tests.spark.faults import Fault, Victim
from tests.spark.queries import QUERIES
from tests.spark.sources import BY_SPARK
from tests.spark.support import PARTITIONS_COUNT, Job, message_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

WITH_STATE = tuple(name for name in QUERIES if name not in ("copy", "scatter"))


def fail_after_end_txn(spark: SparkSession, job: Job) -> None:
    """Run batches 0 and 1; the query ends between the second EndTxn and ``commits/1``."""
    job.load_orders(0, 2 * job.per_batch)
    struck = job.folder / "struck"
    fault = Fault.at("txn_ended", Victim.QUERY, 1, struck, Path(os.devnull))
    with pytest.raises(StreamingQueryException, match="the query fails, once"):
        job.run_here(spark, fault=fault)
    assert not (job.checkpoint / "commits" / "1").exists()
    job.load_orders(2 * job.per_batch, 2 * job.per_batch)


@pytest.mark.soak
@pytest.mark.parametrize(("query", "per_batch"), [*product(WITH_STATE, (SMALL, LARGE))])
def test_the_state_stays_that_of_the_run_whose_output_is_visible(
    query: str, per_batch: int, spark: SparkSession, job: Job
) -> None:
    """Also if it is random: the batch is not computed again, Spark's commit log is completed."""
    job.query, job.per_batch = query, per_batch
    fail_after_end_txn(spark, job)
    job.run_here(spark)
    assert job.findings(4 * job.per_batch) == []
    assert ("drain", 1) not in [(step["step"], step["batch"]) for step in job.steps()]


@pytest.mark.soak
def test_a_checkpoints_path_may_have_characters_that_an_address_escapes(
    spark: SparkSession, job: Job
) -> None:
    """Its logs and its state are found, and its commit log is completed.

    The state is random, as in the test above, whose cases are part of `make test-full`.
    """
    job.folder = job.folder / "run#1" / "what?" / "dt=2026%2D11"
    job.folder.mkdir(parents=True)
    job.query, job.per_batch = "tokens-rocksdb", LARGE
    fail_after_end_txn(spark, job)
    job.run_here(spark)
    assert job.findings(4 * job.per_batch) == []
    assert ("drain", 1) not in [(step["step"], step["batch"]) for step in job.steps()]
    assert (job.checkpoint / "commits" / "3").exists()


def test_a_committed_batch_whose_records_are_gone_ends_the_query_with_one_message(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.query, job.per_batch = "counts", SMALL
    fail_after_end_txn(spark, job)
    monkeypatch.setattr(ExactlyOnceWriter, "_complete_commit_log", lambda _: None)
    asyncio.run(delete_records(job, 2 * SMALL))
    with pytest.raises(StreamingQueryException) as failure:
        job.run_here(spark)
    text = message_of(failure.value)
    assert text.startswith("oncelog.spark.errors.DrainError: batch 1 is committed")
    assert ("OffsetOutOfRangeException" if BY_SPARK else "no longer has offset") in text


async def delete_records(job: Job, before: int) -> None:
    async with Admin(job.bootstrap_servers) as admin:
        places = [TopicPartition(f"{job.name}-in", index) for index in range(PARTITIONS_COUNT)]
        await admin.delete_records(dict.fromkeys(places, before // PARTITIONS_COUNT))


@pytest.mark.soak
def test_without_the_completed_commit_log_output_and_state_are_of_two_runs(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit that the guide states, for a commit log that cannot be completed."""
    job.query = "tokens"
    fail_after_end_txn(spark, job)
    monkeypatch.setattr(ExactlyOnceWriter, "_complete_commit_log", lambda _: None)
    job.run_here(spark)
    assert ("drained", 1) in [(step["step"], step["batch"]) for step in job.steps()]
    assert any("was in the state" in finding for finding in job.findings(4 * job.per_batch))

"""What befalls a whole query: its checkpoint is lost, its driver stops for a while."""

import json
import os
import signal

import pytest
from pyspark.sql import SparkSession

from oncelog.spark import FailClosedError, UsageError
from oncelog.spark.progress import CrashRow
from tests.spark.crash_table import KILLED
from tests.spark.faults import Fault, Victim
from tests.spark.support import JOB_TIMEOUT_S, Job, check_copied, kill_session, load, wait_until
from tests.support.peer.connector import connector
from tests.support.peer.kafka import PeerUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.soak
def test_sparks_own_connector_works_as_the_source(job: Job) -> None:
    """Its jars are those of Spark 4.2: 4.3's connector is not on Maven Central."""
    try:
        jars = connector()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    job.query, job.per_batch = "union", 600
    job.load_orders(0, 2000)
    fault = Fault.at("txn_ended", Victim.DRIVER, 1, job.folder / "struck", job.folder / "no-broker")
    names = ",".join(map(str, jars))
    assert job.run(fault=fault, connector=names) == KILLED, job.text()
    assert job.run(connector=names) == 0, job.text()
    assert job.findings(2000) == []


def test_a_lost_checkpoint_fails_closed_and_a_stateless_query_may_resume_from_the_group(
    spark: SparkSession, job: Job
) -> None:
    load(job.bootstrap_servers, job.name, 0, 500)
    job.run_here(spark)
    job.checkpoint.rename(job.folder / "lost")
    with pytest.raises(FailClosedError, match="other-query") as refused:
        job.run_here(spark)
    load(job.bootstrap_servers, job.name, 500, 500)
    query_id = str(refused.value).split("replaces_query='")[1].split("'")[0]
    job.run_here(spark, starting="group", replaces=query_id)
    check_copied(job, 1000)


def test_a_lost_checkpoint_with_state_is_not_replaced_by_an_empty_one(
    spark: SparkSession, job: Job
) -> None:
    job.query = "counts"
    job.load_orders(0, 100)
    job.run_here(spark)
    query_id = json.loads((job.checkpoint / "metadata").read_text())["id"]
    job.checkpoint.rename(job.folder / "lost")
    job.load_orders(100, 100)
    with pytest.raises(UsageError, match="has an aggregation, and would begin with an empty state"):
        job.run_here(spark, starting="group", replaces=query_id)
    assert job.findings(100) == []


@pytest.mark.soak
def test_a_driver_frozen_while_it_writes_changes_nothing_when_it_wakes_after_its_successor(
    job: Job,
) -> None:
    job.query = "union"
    job.per_batch = 300
    job.load_orders(0, 2000)
    zombie = job.start()
    try:
        wait_until(
            lambda: job.crash_row() is CrashRow.MID_TASK and job.steps()[-1]["batch"] >= 2,
            "the job never got there",
            JOB_TIMEOUT_S,
        )
        os.killpg(zombie.pid, signal.SIGSTOP)
        assert job.run() == 0, job.text()
        os.killpg(zombie.pid, signal.SIGCONT)
        assert zombie.wait(JOB_TIMEOUT_S) != 0
    finally:
        kill_session(zombie)
    assert job.findings(2000) == []

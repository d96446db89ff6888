"""Pipelines end to end: every record once, through kills at all rows of the crash table."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from bench.peer.kafka import PeerUnavailable
from bench.spark.session import connector
from oncelog.spark.progress import CRASH_POINTS, CrashRow
from tests.spark.support import (
    JOB_TIMEOUT_S,
    Job,
    check_copied,
    check_counts,
    kill_session,
    load,
    read,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = {
    "wal_written": CrashRow.WAL_WRITTEN,
    "after_init": CrashRow.AFTER_INIT,
    "mid_task": CrashRow.MID_TASK,
    "tasks_done": CrashRow.TASKS_DONE,
    "offsets_committed": CrashRow.OFFSETS_COMMITTED,
    "txn_ended": CrashRow.TXN_ENDED,
}


def crash_at(job: Job, point: str, batch: int) -> None:
    assert job.run(f"{point}:{batch}") == -9, job.text()
    assert job.crash_row() is ROWS[point]


def test_a_stateless_and_a_stateful_branch_survive_kills_and_a_failed_task(job: Job) -> None:
    """The rows that differ most: inside the write stage, before the end, and after it (INV-10)."""
    job.has_counts = True
    job.arguments = ["--per-batch", "600"]
    load(job.bootstrap_servers, job.name, 0, 3000)
    crash_at(job, "mid_task", 0)
    crash_at(job, "txn_ended", 1)
    crash_at(job, "offsets_committed", 3)
    assert job.run("", "--fail-once", str(job.folder / "failed")) == 0, job.text()
    check_copied(job, 3000)
    check_counts(job, 3000)
    failures = [step["error"] for step in job.steps() if step["step"] == "failed"]
    assert len(failures) == 1
    assert "a task fails, once" in failures[0]
    steps = [(step["step"], step["batch"]) for step in job.steps()]
    assert ("drained", 1) in steps
    seen = read(job.bootstrap_servers, f"{job.name}-out", "read_uncommitted")
    assert len(seen) > 3000, "no aborted records: the kills hit nothing"


def test_sparks_own_connector_works_as_the_source(job: Job) -> None:
    """Its jars are those of Spark 4.2: 4.3's connector is not on Maven Central."""
    try:
        jars = connector()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    job.has_counts = True
    job.arguments = ["--per-batch", "600", "--connector", ",".join(map(str, jars))]
    load(job.bootstrap_servers, job.name, 0, 2000)
    crash_at(job, "txn_ended", 1)
    assert job.run() == 0, job.text()
    check_copied(job, 2000)
    check_counts(job, 2000)


def test_a_lost_checkpoint_fails_closed_and_a_stateless_query_may_resume_from_the_group(
    job: Job,
) -> None:
    load(job.bootstrap_servers, job.name, 0, 500)
    assert job.run() == 0, job.text()
    job.checkpoint.rename(job.folder / "lost")
    assert job.run() != 0
    assert "other-query" in job.text()
    load(job.bootstrap_servers, job.name, 500, 500)
    query_id = job.text().split("replaces_query='")[1].split("'")[0]
    resume = ["--starting", "group", "--replaces", query_id]
    assert job.run("", *resume) == 0, job.text()
    check_copied(job, 1000)


@pytest.mark.soak
def test_a_driver_frozen_while_it_writes_changes_nothing_when_it_wakes_after_its_successor(
    job: Job,
) -> None:
    job.has_counts = True
    job.arguments = ["--per-batch", "300"]
    load(job.bootstrap_servers, job.name, 0, 2000)
    zombie = job.start()
    try:
        wait_until(lambda: job.crash_row() is CrashRow.MID_TASK and job.steps()[-1]["batch"] >= 2)
        os.killpg(zombie.pid, signal.SIGSTOP)
        assert job.run() == 0, job.text()
        os.killpg(zombie.pid, signal.SIGCONT)
        assert zombie.wait(JOB_TIMEOUT_S) != 0
    finally:
        kill_session(zombie)
    check_copied(job, 2000)
    check_counts(job, 2000)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the job never got there"
        time.sleep(0.002)


@pytest.mark.soak
@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("batch", [0, 2])
def test_every_row_of_the_crash_table(job: Job, point: str, batch: int) -> None:
    job.has_counts = True
    job.arguments = ["--per-batch", "600"]
    load(job.bootstrap_servers, job.name, 0, 2000)
    crash_at(job, point, batch)
    assert job.run() == 0, job.text()
    check_copied(job, 2000)
    check_counts(job, 2000)

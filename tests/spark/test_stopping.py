"""What a user reads who stops a query while it writes."""

import os
import re
import subprocess
import sys

import pytest

from tests.spark.support import JOB_TIMEOUT_S, Job, kill_session, load, read, worker_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

STOP_S_MAX = 15
LINES_COUNT_MAX = 40


def test_a_query_that_is_stopped_in_mid_write_ends_soon_and_says_little(job: Job) -> None:
    """INV-10: nothing of the batch is visible, and the next run writes it."""
    load(job.bootstrap_servers, job.name, 0, 700)
    begun = job.folder / "begun"
    arguments = [job.options().encode(), str(begun)]
    with job.output.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stopped_job", *arguments],
            stdout=output,
            stderr=output,
            env={**os.environ, **worker_environment()},
            cwd=job.folder,
            start_new_session=True,
        )
    try:
        code = process.wait(JOB_TIMEOUT_S)
    finally:
        kill_session(process)
    text = job.text()
    assert code == 0, text
    told = re.search(r"stopped after ([\d.]+) s, error: (.*)", text)
    assert told is not None, text
    assert float(told[1]) < STOP_S_MAX
    assert told[2] == "None"
    assert "StackOverflowError" not in text
    assert "Traceback" not in text
    assert len(text.splitlines()) <= LINES_COUNT_MAX, text
    assert read(job.bootstrap_servers, f"{job.name}-out") == []

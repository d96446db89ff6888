"""What a user reads who stops a query while it writes."""

import re

import pytest

from tests.spark.support import JOB_TIMEOUT_S, Job, kill_session, load, read

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

STOP_S_MAX = 15
LINES_COUNT_MAX = 40
OF_THE_DAEMON = re.compile(
    r'Traceback \(most recent call last\):\n(?:  File ".*/pyspark/daemon\.py", line .*\n'
    r"(?:    .*\n)*)*(?:BrokenPipeError: .*\n|[^\n]*\Z)"
)
"""What PySpark prints when a worker's last words come after the JVM closed their socket.

It may be killed while it prints that.
"""
OF_THE_CONNECTOR = re.compile(r".* WARN KafkaDataConsumer: .*KAFKA-1894\n")
"""What Spark 3.5's own Kafka source says again with each record that it gives to Python."""


@pytest.mark.soak
def test_a_query_that_is_stopped_in_mid_write_ends_soon_and_says_little(job: Job) -> None:
    """INV-10: nothing of the batch is visible."""
    load(job.bootstrap_servers, job.name, 0, 700)
    begun = job.folder / "begun"
    process = job.start_module("tests.spark.stopped_job", job.options().encode(), str(begun))
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
    assert "Traceback" not in OF_THE_DAEMON.sub("", text)
    assert len(OF_THE_CONNECTOR.sub("", text).splitlines()) <= LINES_COUNT_MAX, text
    assert read(job.bootstrap_servers, f"{job.name}-out") == []

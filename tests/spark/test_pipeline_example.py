"""A newcomer's pipeline, in a terminal."""

import ast
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.job import QUICK_JVM
from tests.spark.support import JOB_TIMEOUT_S, Job, kill_session, load, read

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_pipeline.py"


def test_the_pipeline_has_at_most_fifteen_lines() -> None:
    text = EXAMPLE.read_text()
    docstring = ast.parse(text).body[0].end_lineno
    lines = [line for line in text.splitlines()[docstring:] if line.strip()]
    assert len(lines) <= 15


@pytest.mark.soak
def test_a_terminal_shows_the_batch_and_ctrl_c_ends_the_query_in_order(
    job: Job, tmp_path: Path
) -> None:
    load(job.bootstrap_servers, job.name, 0, 20)
    screen = b""
    master, slave = pty.openpty()
    topics = [f"{job.name}-in", f"{job.name}-out"]
    command = [sys.executable, str(EXAMPLE), job.bootstrap_servers, *topics, str(job.checkpoint)]
    process = subprocess.Popen(
        command,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_JVM, "TERM": "xterm", "COLUMNS": "140"},
        start_new_session=True,
    )
    os.close(slave)
    try:
        screen = until(b"committed", master)
        process.send_signal(signal.SIGINT)
        screen += to_the_end(master)
        assert process.wait(JOB_TIMEOUT_S) == 0, screen.decode()
    finally:
        kill_session(process)
        os.close(master)
    for part in (b"rows in/s", b"transaction", b"lag", b"restarts"):
        assert part in screen
    assert len(read(job.bootstrap_servers, f"{job.name}-out")) == 20


def until(text: bytes, terminal: int) -> bytes:
    """What the terminal shows, up to this text."""
    screen = b""
    deadline = time.monotonic() + 3 * JOB_TIMEOUT_S
    while text not in screen:
        readable, _, _ = select.select([terminal], [], [], 1)
        screen += os.read(terminal, 65536) if readable else b""
        assert time.monotonic() < deadline, screen.decode()
    return screen


def to_the_end(terminal: int) -> bytes:
    screen = b""
    while True:
        try:
            screen += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return screen

"""The ten tests of examples/testing pass, in a pytest of their own, as a user would run them."""

import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 110


@pytest.mark.interop
@pytest.mark.slow
def test_the_ten_tests_that_every_application_should_have_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]
    command += [str(tmp_path), "-c", os.devnull, str(ROOT / "examples" / "testing")]
    if not entry_points(group="pytest11", name="oncelog"):
        command += ["-p", "oncelog.testing.plugin"]
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = run.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Not SIGTERM: Python would not hear it inside librdkafka.
        os.kill(run.pid, signal.SIGKILL)
        output, _ = run.communicate()
    assert run.returncode == 0, output[-5000:]
    assert "14 passed" in output

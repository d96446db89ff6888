"""`make quick` fails when its tests grow beyond their processor time, and names the slowest."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.quick import SLOWEST_COUNT, verdict


def test_a_run_within_its_budget_passes() -> None:
    assert verdict(Counter({"tests/a.py::test_a": 3.0, "tests/a.py::test_b": 2.0}), 5.0) == []


def test_a_run_beyond_its_budget_names_the_slowest_functions_first() -> None:
    spent = {f"tests/a.py::test_{number}": 0.1 for number in range(SLOWEST_COUNT)}
    spent |= {"tests/b.py::test_many[1]": 1.0, "tests/b.py::test_many[2]": 1.5}
    said, first, *others = verdict(Counter(spent), 3.9)
    assert "4.0 s of processor time; 4 s is allowed" in said
    assert first.split() == ["2.50", "s", "2", "x", "tests/b.py::test_many"]
    assert len(others) == SLOWEST_COUNT - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "jobs",
    [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="xdist", marks=pytest.mark.soak)],
)
def test_pytest_measures_in_all_processes_and_fails(tmp_path: Path, jobs: list[str]) -> None:
    (tmp_path / "test_spin.py").write_text(
        "import time\n"
        "def test_spin():\n"
        "    until_s = time.process_time() + 0.1\n"
        "    while time.process_time() < until_s: pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tight.py").write_text(
        "from tests.support import quick\n"
        "quick.QUICK_CPU_S = 0.05\n"
        "from tests.support.quick import *\n"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tight",
            *jobs,
            "--rootdir",
            ".",
            "test_spin.py",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "1 passed" in run.stdout
    assert "s     1 x  test_spin.py::test_spin" in run.stdout

"""The plugin that holds up test processes runs in each of them, as it is told."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stalls import NAME, STALLS, Stalls


def test_short_ones_are_as_frequent_as_long_ones() -> None:
    stalls, rng = Stalls.of("0.001,0.1,1"), random.Random(1)
    drawn = [stalls.draw_s(rng) for _ in range(1_000)]
    assert min(drawn) >= 0.001
    assert max(drawn) <= 0.1
    assert 400 < sum(each < 0.01 for each in drawn) < 600


@pytest.mark.parametrize("text", ["", "1", "2,1,1", "0,1,1", "1,2,0", "1,2,x"])
def test_what_is_no_length_is_refused(text: str) -> None:
    assert Stalls.of(STALLS)
    with pytest.raises(ValueError, match=r"stalls|unpack|float"):
        Stalls.of(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "jobs",
    [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="xdist", marks=pytest.mark.soak)],
)
def test_each_process_is_held_up(tmp_path: Path, jobs: list[str]) -> None:
    (tmp_path / "test_held.py").write_text(
        "import threading\n"
        "def test_held():\n"
        f"    assert {NAME!r} in [each.name for each in threading.enumerate()]\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.stalls", "-c", "pytest.ini"]
    done = subprocess.run(
        [*command, "--stalls=0.001,0.002,0.01", *jobs, "test_held.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

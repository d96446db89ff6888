"""One seed decides everything: no wall clock, thread, hash order or address leaks in."""

import os
import subprocess
import sys

import pytest

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import execute

DURATION_S = 2


def digest(seed: int, profile: str, brokers: int = 1, *, secure: bool = False) -> str:
    """The hash over all events of a run."""
    plan = draw_plan(seed, profile, DURATION_S, brokers, secure=secure)
    return execute(plan, ROLES).digest


def digest_elsewhere(seed: int, profile: str, brokers: int, hash_seed: str, *, secure: bool) -> str:
    """The same in a process of its own, which orders its sets in another way."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "oncelog", "simulate", "--seed", str(seed)),
            *("--profile", profile, "--duration", str(DURATION_S), "--brokers", str(brokers)),
            *(["--secure"] * secure),
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("hash ")]
    return line.removeprefix("hash ")


@pytest.mark.parametrize(
    ("profile", "brokers", "secure"),
    [
        ("everything", 1, False),
        pytest.param("power-flushed", 1, False, marks=pytest.mark.soak),
        pytest.param("processes", 3, False, marks=pytest.mark.soak),
        ("processes", 3, True),
    ],
)
def test_the_same_seed_gives_the_same_events_in_any_process(
    profile: str, brokers: int, secure: bool
) -> None:
    # This process draws a hash seed of its own at its start.
    here = digest(7, profile, brokers, secure=secure)
    assert here == digest_elsewhere(7, profile, brokers, "1", secure=secure)


def test_another_seed_gives_other_events() -> None:
    assert digest(7, "calm") != digest(8, "calm")

"""One seed decides everything: no wall clock, thread, hash order or address leaks in."""

import os
import subprocess
import sys

import pytest


def digest(seed: int, profile: str, hash_seed: str) -> str:
    """The hash over all events of a run in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "oncelog", "simulate", "--seed", str(seed)),
            *("--profile", profile, "--duration", "4"),
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("hash ")]
    return line.removeprefix("hash ")


@pytest.mark.parametrize("profile", ["everything", "power-flushed"])
def test_the_same_seed_gives_the_same_events_in_any_process(profile: str) -> None:
    assert digest(7, profile, "1") == digest(7, profile, "2")
    assert digest(8, profile, "1") != digest(7, profile, "1")

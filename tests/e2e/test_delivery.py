"""docs/delivery.md: its examples as processes that are killed, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^\$ python (\S+) ?(\S*)\n((?:[^$`].*\n)+)", re.MULTILINE)
STEPS = STEP.findall((ROOT / "docs" / "delivery.md").read_text())

IN_MAKE_TEST = ("exactly-once", "")
"""The others take as long, and run in `make test-full`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "way", "expected"),
    [
        pytest.param(*step, id=step[1] or step[0], marks=pytest.mark.soak)
        if step[1] not in IN_MAKE_TEST
        else pytest.param(*step, id=step[1] or step[0])
        for step in STEPS
    ],
)
def test_an_example_prints_what_the_document_says(script: str, way: str, expected: str) -> None:
    command = [sys.executable, str(ROOT / script), *filter(None, [way])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    assert done.stdout == expected


def test_every_example_of_the_document_is_run() -> None:
    assert [way for _, way, _ in STEPS] == ["at-most-once", "at-least-once", "exactly-once", ""]

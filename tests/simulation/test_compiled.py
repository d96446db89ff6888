"""A seed runs the same way, event by event, whether the hot rooms are compiled or not."""

import re
import subprocess
import sys

import pytest

from bench.ways import WAYS, environment
from oncelog.compiled import FOLDER, PACKAGE, fresh_modules

pytestmark = pytest.mark.skipif(
    not fresh_modules(FOLDER, PACKAGE),
    reason="there are no compiled modules of these sources: make compiled",
)


def hash_of(seed: int, way: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", "simulate", "--seed", str(seed)],
        env=environment(way),
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^hash (\w+)$", done.stdout, flags=re.MULTILINE)
    assert found is not None, done.stdout + done.stderr
    return found[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8, 11, 12])
def test_a_seed_has_the_same_hash_compiled_and_interpreted(seed: int) -> None:
    assert len({hash_of(seed, way) for way in WAYS}) == 1

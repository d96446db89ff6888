"""A hundred mutated files; `make test-full` has 20,000 (docs/evidence/corruption.json)."""

import tempfile
from pathlib import Path

import pytest

from tests.corruption.campaign import run
from tests.corruption.matrix import baselines
from tests.support.scratch import scratch_folder

pytestmark = pytest.mark.slow

SEED = 8
COUNT = 100


def test_a_mutated_file_loses_nothing_sound_whatever_it_is() -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-mutated-", dir=scratch_folder()) as folder:
        scratch = Path(folder)
        sound = baselines(scratch)
        results = [run(sound, SEED, number, scratch) for number in range(COUNT)]
    bad = [result for result in results if result.failures]
    assert not bad

"""Forty mutated files; `make test-full` has 20,000 (docs/evidence/corruption.json)."""

import shutil
import tempfile
from pathlib import Path

import pytest

from oncelog.core.ids import TopicPartition
from tests.corruption.campaign import run
from tests.corruption.judge import Baseline, Outcome, judge
from tests.corruption.matrix import baselines
from tests.support.data_folder import MIXED
from tests.support.scratch import scratch_folder

pytestmark = pytest.mark.slow

SEED = 8
COUNT = 40


def test_a_mutated_file_loses_nothing_sound_whatever_it_is() -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-mutated-", dir=scratch_folder()) as folder:
        scratch = Path(folder)
        sound = baselines(scratch)
        results = [run(sound, SEED, number, scratch) for number in range(COUNT)]
    bad = [result for result in results if result.failures]
    assert not bad


def cut_before(baseline: Baseline, offset: int, copy: Path) -> Outcome:
    """Judge a folder whose `mixed-0` ends just in front of the batch at `offset`."""
    path, batch = next(
        found for found in baseline.batches[MIXED] if found[1].header.base_offset == offset
    )
    name = f"{MIXED}/{path.name}"
    shutil.copytree(baseline.folder, copy)
    data = baseline.files[name][: batch.position]
    (copy / name).write_bytes(data)
    return judge(baseline, copy, {name: data})


def test_a_whole_batch_less_above_the_recovery_point_cannot_be_seen(tmp_path: Path) -> None:
    """As a loss of power leaves a log: nothing can be said of it, and nothing has to be."""
    sound = baselines(tmp_path)["kill"]
    point = sound.points[TopicPartition(*MIXED)]
    last = sound.batches[MIXED][-1][1].header.base_offset
    assert last > point
    assert cut_before(sound, last, tmp_path / "above").failures == []
    below = [b.header.base_offset for _, b in sound.batches[MIXED] if b.header.next_offset <= point]
    assert cut_before(sound, below[-1], tmp_path / "below").said != []

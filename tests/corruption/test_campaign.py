"""Forty mutated files; `make test-full` has 20,000."""

import shutil
import tempfile
from pathlib import Path

import pytest

from oncelog.core.ids import TopicPartition
from tests.corruption.campaign import run
from tests.corruption.judge import Baseline, Outcome, _moved, judge
from tests.corruption.matrix import baselines
from tests.support.data_folder import MIXED, PLAIN
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


@pytest.mark.damages
def test_a_batch_with_the_first_bytes_of_another_is_served_as_it_stands(tmp_path: Path) -> None:
    """No CRC covers them: docs/durability.md says so. Behind damage it is refused."""
    sound = baselines(tmp_path)["clean stop"]
    found = [batch for path, batch in sound.batches[PLAIN] if path.stem.endswith("00")]
    name = f"{PLAIN}/{0:020}.log"
    for within, is_excused in ((9, True), (49, False)):
        data = sound.files[name]
        changed = data[: found[1].position + within] + data[found[4].position + within :]
        copy = tmp_path / f"copy-{within}"
        shutil.copytree(sound.folder, copy)
        (copy / name).write_bytes(changed)
        assert judge(sound, copy, {name: changed}).failures == []
        moved = _moved(sound, PLAIN, {name: changed})
        assert bool(moved) is is_excused

"""The corruption matrix: a sample of its cells in `make test`, all of them in `make test-full`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corruption.judge import Baseline
from tests.corruption.matrix import (
    DAMAGES,
    DOCUMENT,
    KINDS,
    STOPS,
    VERDICTS,
    Cell,
    all_cells,
    baselines,
    run_all,
    run_cell,
    section_in,
    table,
)
from tests.support.scratch import scratch_folder

pytestmark = pytest.mark.slow

SAMPLE_STEP = 7
"""Shares no factor with the numbers of damages and of stops, so that all of them are met."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncelog-matrix-", dir=scratch_folder()) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sound(scratch: Path) -> dict[str, Baseline]:
    return baselines(scratch)


@pytest.mark.parametrize("cell", all_cells()[::SAMPLE_STEP], ids=" ".join)
def test_damage_loses_nothing_sound_and_is_said(
    sound: dict[str, Baseline], scratch: Path, cell: Cell
) -> None:
    outcome = run_cell(sound[cell.stop], cell, scratch)
    assert outcome is None or not outcome.failures, (outcome.failures, outcome.said)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_whole_matrix_is_as_the_document_says() -> None:
    outcomes = dict(run_all())
    broken = {
        cell: outcome.failures
        for cell, outcome in outcomes.items()
        if outcome is not None and outcome.failures
    }
    assert not broken
    assert section_in(DOCUMENT.read_text()) == table(outcomes)


def test_the_document_has_a_row_for_each_kind_and_a_column_for_each_damage() -> None:
    lines = section_in(DOCUMENT.read_text()).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    assert [row[0].removeprefix("| ") for row in rows] == list(KINDS)
    verdicts = {*VERDICTS, "no such file"}
    for row in rows:
        assert len(row) == len(DAMAGES) + 1
        for cell in row[1:]:
            found = cell.removesuffix(" |").split(" / ")
            assert len(found) <= len(STOPS)
            assert set(found) <= verdicts

"""Some steps of batch 0 at which its driver dies; all of them by `make test-full`."""

import pytest

from tests.simulation.marker_points import CASES, Case, live_through, steps

STRIDE = 11
SHIFT = 3
"""Each case meets other steps."""


@pytest.mark.parametrize("case", CASES[: len(CASES) // 2], ids=str)
def test_batch_0_is_written_once_wherever_its_driver_dies(case: Case) -> None:
    first = 1 + SHIFT * CASES.index(case) % STRIDE
    outcomes = list(steps(case, STRIDE, first))
    assert len(outcomes) >= 3
    assert not [(step, outcome) for step, outcome in outcomes if outcome.findings]
    is_refusal_due = case.rests and not case.has_topic
    assert is_refusal_due or not any(outcome.is_refused for _, outcome in outcomes)


def test_a_batch_0_that_was_committed_without_a_marker_topic_is_refused_with_one() -> None:
    case = Case(version=2, has_topic=False, rests=True)
    outcomes = [outcome for _, outcome in steps(case, 2, 41) if outcome.is_refused]
    assert outcomes
    assert not [outcome.findings for outcome in outcomes if outcome.findings]


def test_a_life_without_a_death_writes_its_batch() -> None:
    outcome = live_through(CASES[0], 10_000)
    assert (outcome.met, outcome.row_count, outcome.findings) == (False, 1, [])

"""Some crash points of a transaction on each run; all of them by `make test-full`."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulation.transaction_life import Life
from tests.simulation.transaction_points import LIVES, Point, live_through
from tests.support.transaction_kills import kills

MOMENTS_STRIDE = 41
SHIFT = 9
"""Each life meets other moments."""


def some_points(life: Life) -> Iterator[Point]:
    shift = SHIFT * LIVES.index(life)
    for number in range(1 + shift, 100, MOMENTS_STRIDE):
        yield Point("moment", number)
    yield Point("torn", 21 + shift)
    yield Point("step", 61 + shift)


@pytest.mark.parametrize("life", LIVES, ids=str)
def test_a_life_without_a_death_ends_as_told(life: Life) -> None:
    outcome = live_through(life, None)
    assert not outcome.met
    assert not outcome.findings


@pytest.mark.parametrize("life", LIVES, ids=str)
def test_a_transaction_survives_two_deaths_of_its_broker(life: Life) -> None:
    for point in some_points(life):
        outcome = live_through(life, point)
        assert outcome.met, point
        assert not outcome.findings, (point, outcome.places)


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_transaction_survives_the_kill_of_a_real_broker() -> None:
    met_count, broken = asyncio.run(kills(LIVES[2], stride=50, count_max=2))
    assert met_count == 2
    assert not broken

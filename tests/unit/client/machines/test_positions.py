"""Positions: when the leader has to be asked, and what follows from its answer."""

from uuid import UUID

import pytest

from oncelog.client.machines.positions import Diverged, Leadership, Position, compare, under

ONE, OTHER = UUID(int=1), UUID(int=2)
NOW = Leadership(ONE, 3)


@pytest.mark.parametrize(
    ("position", "known"),
    [
        (Position(5, 2, NOW), Position(5, 2, NOW)),
        (Position(5), Position(5, -1, NOW)),
        (Position(5, -1, Leadership(ONE, 2)), Position(5, -1, NOW)),
        (Position(5, 2), None),
        (Position(5, 2, Leadership(ONE, 2)), None),
        (Position(5, 2, Leadership(ONE, 4)), None),
        (Position(5, 2, Leadership(OTHER, 3)), Position(5, -1, NOW)),
    ],
)
def test_the_leader_is_asked_once_per_epoch_about_records_of_this_topic(
    position: Position, known: Position | None
) -> None:
    assert under(position, NOW) == known


def test_a_leader_without_epochs_is_not_asked() -> None:
    old = Leadership(None, -1)
    assert under(Position(5, 2), old) == Position(5, 2, old)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "found"),
    [
        (2, 9, Position(5, 2, NOW)),
        (2, 5, Position(5, 2, NOW)),
        (1, 5, Position(5, 1, NOW)),
        (2, 4, Diverged(4, 2)),
        (0, 0, Diverged(0, 0)),
        (-1, -1, Diverged(-1, -1)),
        (2, -1, Diverged(-1, -1)),
    ],
)
def test_an_epoch_that_ends_below_the_position_was_cut(
    epoch: int, end_offset: int, found: Position | Diverged
) -> None:
    assert compare(Position(5, 2), epoch, end_offset, NOW) == found

"""A follower: its high watermark, and what it truncates."""

import pytest

from oncelog.replication.divergence import truncation_offset
from oncelog.replication.follower import FollowerState
from tests.unit.replication.support import ME, given, replica, take


def follower(end: int, high_watermark: int = 0) -> FollowerState:
    begun = replica(end=end, high_watermark=high_watermark)
    state = take(begun, given((2, ME), leader=2, epoch=1))
    assert isinstance(state, FollowerState)
    return state


def test_a_follower_takes_the_high_watermark_of_its_leader_up_to_its_own_end() -> None:
    state = follower(5)
    assert state.leader_high_watermark(8) is True
    assert state.high_watermark == 5
    assert state.leader_high_watermark(3) is False
    assert state.high_watermark == 5


def test_its_own_end_commits_nothing() -> None:
    state = follower(5, 2)
    assert state.local_end_moved(9) is False
    assert (state.log_end_offset, state.high_watermark) == (9, 2)


def test_a_truncation_inside_a_batch_ends_where_the_log_ends() -> None:
    """Asked for offset 8, the log ends at 5 where the batch began; it fetches on from there."""
    state = follower(10, 7)
    state.truncated(5)
    assert (state.log_end_offset, state.high_watermark) == (5, 5)


def test_a_truncation_above_the_high_watermark_leaves_it() -> None:
    state = follower(10, 7)
    state.truncated(8)
    assert (state.log_end_offset, state.high_watermark) == (8, 7)


EPOCHS = [(1, 0), (3, 10), (5, 20)]
"""Of a follower whose log ends at 30."""


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        pytest.param((5, 25), 25, id="the leader's epoch ended earlier"),
        pytest.param((5, 40), 30, id="the follower's log ends earlier"),
        pytest.param((4, 25), 20, id="the follower has an epoch that the leader never saw"),
        pytest.param((3, 15), 15, id="both know the epoch"),
        pytest.param((2, 18), 10, id="the follower skips to the end of an older epoch"),
        pytest.param((0, 7), 0, id="the follower has none so old"),
        pytest.param((9, 28), 28, id="the leader's is newer than all"),
    ],
)
def test_a_follower_truncates_to_the_smaller_end(answered: tuple[int, int], expected: int) -> None:
    """KIP-279: never to the leader's answer alone, and never by the high watermark (KIP-101)."""
    assert truncation_offset(*answered, EPOCHS, 30) == expected


def test_a_follower_without_epochs_truncates_to_the_answered_end() -> None:
    assert truncation_offset(3, 12, [], 30) == 12
    assert truncation_offset(3, 12, [], 4) == 4

"""When a follower had caught up with its leader."""

from oncelog.replication.progress import FollowerProgress


def test_the_begin_of_the_leadership_counts_as_caught_up() -> None:
    assert FollowerProgress(50).caught_up_ms == 50


def test_a_fetch_at_the_leaders_end_is_caught_up_now() -> None:
    follower = FollowerProgress(0)
    follower.fetched(7, 7, 20)
    assert (follower.end_offset, follower.caught_up_ms) == (7, 20)


def test_a_fetch_that_has_the_leaders_end_of_the_fetch_before_was_caught_up_then() -> None:
    follower = FollowerProgress(0)
    follower.fetched(5, 10, 20)
    assert follower.caught_up_ms == 0
    follower.fetched(10, 15, 30)
    assert follower.caught_up_ms == 20
    follower.fetched(14, 20, 40)
    assert follower.caught_up_ms == 20


def test_a_first_fetch_says_nothing_of_an_earlier_one() -> None:
    follower = FollowerProgress(10)
    follower.fetched(0, 5, 90)
    assert follower.caught_up_ms == 10


def test_a_follower_that_truncated_has_less_than_before() -> None:
    follower = FollowerProgress(0)
    follower.fetched(9, 9, 10)
    follower.fetched(4, 9, 20)
    assert (follower.end_offset, follower.caught_up_ms) == (4, 10)

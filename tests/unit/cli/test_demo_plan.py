"""Kills are drawn from the seed and only from it."""

from oncelog.cli.demo.plan import MARGIN_BATCHES, draw
from oncelog.spark.progress import STEPS


def test_a_seed_always_means_the_same_moments() -> None:
    assert draw(7, 36, 2, 1) == draw(7, 36, 2, 1)
    assert draw(7, 36, 2, 1) != draw(8, 36, 2, 1)


def test_moments_come_in_order_and_leave_the_ends_alone() -> None:
    for seed in range(200):
        moments = draw(seed, 36, 2, 1)
        batches = [moment.batch for moment in moments]
        assert batches == sorted(set(batches))
        assert batches[0] >= MARGIN_BATCHES
        assert batches[-1] < 36 - MARGIN_BATCHES
        assert sorted(moment.target for moment in moments) == ["broker", "spark", "spark"]


def test_every_step_is_aimed_at_by_some_seed() -> None:
    assert {m.step for seed in range(20) for m in draw(seed, 36, 2, 1)} == set(STEPS)


def test_no_kills_is_a_plan_too() -> None:
    assert draw(1, 36, 0, 0) == []

"""Kills are drawn from the seed and only from it."""

from oncelog.cli.demo.plan import MARGIN_BATCHES, ROLES, KillTarget, draw, targets_of
from oncelog.spark.progress import STEPS

ONE_BROKER = targets_of(2, 1)


def test_a_seed_always_means_the_same_moments() -> None:
    assert draw(7, 36, ONE_BROKER) == draw(7, 36, ONE_BROKER)
    assert draw(7, 36, ONE_BROKER) != draw(8, 36, ONE_BROKER)


def test_moments_come_in_order_and_leave_the_ends_alone() -> None:
    for seed in range(200):
        moments = draw(seed, 36, ONE_BROKER)
        batches = [moment.batch for moment in moments]
        assert batches == sorted(set(batches))
        assert batches[0] >= MARGIN_BATCHES
        assert batches[-1] < 36 - MARGIN_BATCHES
        assert sorted(moment.target for moment in moments) == ["broker", "spark", "spark"]


def test_every_step_is_aimed_at_by_some_seed() -> None:
    assert {m.step for seed in range(20) for m in draw(seed, 36, ONE_BROKER)} == set(STEPS)


def test_no_kills_is_a_plan_too() -> None:
    assert draw(1, 36, targets_of(0, 3)) == []


def test_of_three_brokers_each_role_is_killed_once() -> None:
    for seed in range(50):
        targets = [moment.target for moment in draw(seed, 36, targets_of(2, 3))]
        assert sorted(targets) == sorted([KillTarget.SPARK, KillTarget.SPARK, *ROLES])


def test_of_a_cluster_that_is_the_users_nothing_is_killed() -> None:
    assert targets_of(2, 0) == [KillTarget.SPARK, KillTarget.SPARK]

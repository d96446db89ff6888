"""When a controller that reaches no other broker gives its office up, and claims it again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from oncelog.controller.reach import (
    LEFT_MS_MAX,
    RESIGNATION_INTERVAL_MS,
    ROUNDS_COUNT,
    ReachJudge,
)

ROUND_MS = 1_000


@dataclass
class Broker:
    """A broker and its rounds; `round` returns whether the office is given up."""

    reach: ReachJudge
    now_ms: float = 0.0

    def round(self, answered: int, others: int = 2, *, holds: bool = True) -> bool:
        self.now_ms += ROUND_MS
        return self.reach.judge(
            self.now_ms, is_held=holds, others_count=others, answered_count=answered
        )

    def fails(self, rounds: int = ROUNDS_COUNT, *, holds: bool = True) -> list[bool]:
        return [self.round(0, holds=holds) for _ in range(rounds)]

    @property
    def is_asked(self) -> bool:
        """Whether it asks on after it has lost the office."""
        return self.reach.is_asked(is_held=False, others_count=2)


@pytest.fixture
def broker() -> Broker:
    return Broker(ReachJudge())


def resigned() -> Broker:
    broker = Broker(ReachJudge())
    assert broker.fails()[-1]
    return broker


def test_the_office_is_given_up_after_rounds_without_any_answer(broker: Broker) -> None:
    assert broker.fails() == [False] * (ROUNDS_COUNT - 1) + [True]
    assert broker.reach.is_left


def test_one_answer_of_one_broker_begins_the_count_anew(broker: Broker) -> None:
    broker.fails(ROUNDS_COUNT - 1)
    assert not broker.round(1)
    assert broker.fails() == [False] * (ROUNDS_COUNT - 1) + [True]


@pytest.mark.parametrize("others", [0, 1])
def test_of_two_brokers_none_gives_the_office_up(broker: Broker, others: int) -> None:
    assert not any(broker.round(0, others) for _ in range(3 * ROUNDS_COUNT))
    assert not broker.reach.is_asked(is_held=True, others_count=others)


def test_brokers_are_asked_by_the_holder_and_by_one_that_left_the_office(broker: Broker) -> None:
    assert broker.reach.is_asked(is_held=True, others_count=2)
    assert not broker.is_asked
    assert resigned().is_asked


def test_rounds_before_the_office_was_won_do_not_count(broker: Broker) -> None:
    broker.fails(ROUNDS_COUNT - 1, holds=False)
    assert broker.fails() == [False] * (ROUNDS_COUNT - 1) + [True]


@pytest.mark.parametrize(("answered", "others"), [(1, 2), (2, 2), (0, 1)])
def test_the_office_is_claimed_again_once_another_answers(answered: int, others: int) -> None:
    broker = resigned()
    broker.round(answered, others, holds=False)
    assert not broker.reach.is_left
    assert not broker.is_asked


def test_the_office_is_left_to_others_for_a_while_only() -> None:
    broker = resigned()
    broker.fails(LEFT_MS_MAX // ROUND_MS - 1, holds=False)
    assert broker.reach.is_left
    broker.fails(1, holds=False)
    assert not broker.reach.is_left


def test_two_that_are_cut_off_do_not_pass_the_office_to_and_fro() -> None:
    broker = resigned()
    broker.fails(LEFT_MS_MAX // ROUND_MS, holds=False)
    rounds = (RESIGNATION_INTERVAL_MS - LEFT_MS_MAX) // ROUND_MS
    assert not any(broker.fails(rounds - 1))
    assert broker.fails(1) == [True]

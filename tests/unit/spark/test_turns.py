"""Turns of tasks at the target partitions of one attempt (INV-2, INV-10)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.spark.errors import WriteStageError
from oncelog.spark.turns import Turn, Turns


def begun(*tasks: int) -> Turns:
    turns = Turns()
    for task in tasks:
        turns.begin(task)
    return turns


def test_each_turn_goes_on_where_the_one_before_ended() -> None:
    turns = begun(0, 1)
    assert turns.ask(0, 5) == Turn(0, 5, 0)
    assert turns.ask(1, 5) is None
    assert turns.ask(1, 6) == Turn(1, 6, 0)
    assert turns.give_back(0, 5, 30) == Turn(1, 5, 30)
    assert turns.give_back(1, 5, 12) is None
    assert turns.ask(0, 5) == Turn(0, 5, 42)


def test_sequences_wrap_as_kafkas_do() -> None:
    turns = begun(0)
    turns.ask(0, 1)
    turns.give_back(0, 1, SEQUENCE_MODULUS - 1)
    turns.ask(0, 1)
    turns.give_back(0, 1, 3)
    assert turns.ask(0, 1) == Turn(0, 1, 2)


def test_tasks_wait_in_the_order_in_which_they_asked() -> None:
    turns = begun(0, 1, 2)
    turns.ask(2, 0)
    turns.ask(1, 0)
    turns.ask(0, 0)
    assert turns.give_back(2, 0, 1) == Turn(1, 0, 1)
    assert turns.give_back(1, 0, 1) == Turn(0, 0, 2)


def test_a_target_that_got_no_record_is_not_counted() -> None:
    turns = begun(0)
    for target, count in ((1, 3), (2, 0)):
        turns.ask(0, target)
        turns.give_back(0, target, count)
    turns.end(0)
    assert turns.record_counts() == {1: 3}


@pytest.mark.parametrize("task", [0, 1, 2], ids=["has it", "waits", "did not begin"])
def test_a_task_that_asks_out_of_turn_fails_the_attempt(task: int) -> None:
    turns = begun(0, 1)
    turns.ask(0, 7)
    turns.ask(1, 7)
    with pytest.raises(WriteStageError, match=f"task {task} asked for target 7 out of turn"):
        turns.ask(task, 7)
    with pytest.raises(WriteStageError, match="out of turn"):
        turns.give_back(0, 7, 1)


def test_a_task_that_begins_twice_fails_the_attempt() -> None:
    turns = begun(0, 1)
    turns.end(0)
    with pytest.raises(WriteStageError, match="task 0 began a second time"):
        turns.begin(0)
    with pytest.raises(WriteStageError, match="task 0 began a second time"):
        turns.ask(1, 0)


def test_after_a_lost_task_nobody_gets_a_turn() -> None:
    turns = begun(0, 1)
    turns.ask(0, 0)
    turns.ask(1, 0)
    assert turns.lost(0)
    with pytest.raises(WriteStageError, match="task 0 was lost"):
        turns.ask(1, 3)
    with pytest.raises(WriteStageError, match="task 0 was lost"):
        turns.end(1)
    with pytest.raises(WriteStageError, match="task 0 was lost"):
        turns.begin(2)
    with pytest.raises(WriteStageError, match="task 0 was lost"):
        turns.record_counts()


def test_a_task_that_has_ended_cannot_be_lost() -> None:
    turns = begun(0)
    turns.end(0)
    assert not turns.lost(0)
    assert turns.record_counts() == {}


def test_the_first_reason_of_a_failure_stays() -> None:
    turns = begun(0)
    turns.fail("task 0 failed: UsageError: a bad row")
    turns.lost(0)
    assert turns.failure == "task 0 failed: UsageError: a bad row"


@pytest.mark.parametrize(
    "break_it",
    [
        lambda turns: turns.give_back(1, 0, 1),
        lambda turns: turns.give_back(0, 0, -1),
        lambda turns: turns.give_back(0, 7, 1),
        lambda turns: turns.ask(0, 0),
        lambda turns: turns.ask(9, 3),
        lambda turns: turns.end(0),
        lambda turns: turns.ask(1, 0) or turns.end(1),
        lambda turns: turns.end(9),
    ],
)
def test_a_task_that_does_not_keep_to_its_turn_fails_the_attempt(
    break_it: Callable[[Turns], object],
) -> None:
    turns = begun(0, 1)
    turns.ask(0, 0)
    with pytest.raises(WriteStageError, match=r"task \d"):
        break_it(turns)
    assert turns.failure is not None


def test_records_are_counted_when_all_tasks_have_ended() -> None:
    turns = begun(0, 1)
    turns.ask(0, 4)
    turns.give_back(0, 4, 9)
    turns.end(0)
    with pytest.raises(WriteStageError, match="task 1 was lost"):
        turns.record_counts()
    turns = begun(0)
    turns.ask(0, 4)
    turns.give_back(0, 4, 9)
    turns.end(0)
    assert turns.record_counts() == {4: 9}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 50)), max_size=60))
def test_sequences_of_a_partition_are_contiguous_in_any_order_of_tasks(
    steps: list[tuple[int, int, int]],
) -> None:
    """INV-2: no gap and no repeat, and one holder at a time."""
    turns, ends = begun(0, 1, 2, 3), dict.fromkeys(range(3), 0)
    held: dict[int, Turn] = {}
    waiting: set[tuple[int, int]] = set()

    def granted(turn: Turn | None) -> None:
        if turn is not None:
            assert turn.target not in held
            assert turn.sequence == ends[turn.target]
            held[turn.target] = turn
            waiting.discard((turn.task, turn.target))

    for task, target, count in steps:
        holder = held.get(target)
        if holder is not None and holder.task == task:
            del held[target]
            ends[target] += count
            granted(turns.give_back(task, target, count))
        elif (task, target) not in waiting:
            waiting.add((task, target))
            granted(turns.ask(task, target))

"""The checker itself fails when one record is dropped, repeated, reordered or shown too early."""

import random
from itertools import pairwise

import pytest

from tests.support.checker import (
    History,
    Outcome,
    Seen,
    Value,
    check,
    check_copy,
    check_isolation,
)


def recorded(transactional: bool) -> tuple[History, list[Seen]]:
    """A correct run: two streams over two partitions, every third transaction aborted."""
    history = History()
    seen = []
    offsets = [0, 0]
    for number in range(60):
        stream = f"s{number % 2}"
        transaction = number // 6 if transactional else -1
        value = Value(stream, number, transaction)
        partition = number // 2 % 2
        history.send(value, partition)
        history.ack(value, offsets[partition])
        aborted = transactional and transaction % 3 == 2
        if transactional:
            outcome = Outcome.ABORTED if aborted else Outcome.COMMITTED
            history.end(stream, transaction, outcome)
        if not aborted:
            seen.append(Seen(partition, offsets[partition], value))
        offsets[partition] += 1
    return history, seen


def kinds(history: History, seen: list[Seen]) -> set[str]:
    return {anomaly.kind for anomaly in check(history, seen)}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_correct_run_has_no_anomaly(transactional: bool) -> None:
    history, seen = recorded(transactional)
    assert check(history, seen) == []


@pytest.mark.parametrize("transactional", [False, True])
def test_one_dropped_record_is_found(transactional: bool) -> None:
    history, seen = recorded(transactional)
    for index in range(len(seen)):
        assert kinds(history, seen[:index] + seen[index + 1 :]) == {"lost"}


@pytest.mark.parametrize("transactional", [False, True])
def test_one_repeated_record_is_found(transactional: bool) -> None:
    history, seen = recorded(transactional)
    for record in seen:
        again = Seen(record.partition, 1000, record.value)
        assert {"duplicate", "reordered"} & kinds(history, [*seen, again])


@pytest.mark.parametrize("transactional", [False, True])
def test_two_swapped_records_are_found(transactional: bool) -> None:
    history, seen = recorded(transactional)
    lane = [i for i, r in enumerate(seen) if r.partition == 0 and r.value.stream == "s0"]
    for first, second in pairwise(lane):
        swapped = list(seen)
        swapped[first] = Seen(0, seen[first].offset, seen[second].value)
        swapped[second] = Seen(0, seen[second].offset, seen[first].value)
        assert {"reordered", "moved"} <= kinds(history, swapped)


def test_a_record_of_an_aborted_transaction_is_found() -> None:
    history, seen = recorded(True)
    stream, transaction = next(k for k, o in history.outcomes.items() if o is Outcome.ABORTED)
    number = history.members[stream, transaction][0]
    shown = Seen(history.sent[stream, number], 500, Value(stream, number, transaction))
    assert "aborted visible" in kinds(history, [*seen, shown])


def test_a_transaction_in_doubt_may_be_whole_or_absent_but_not_torn() -> None:
    history, seen = recorded(True)
    doubt = ("s0", 0)
    history.outcomes[doubt] = Outcome.UNKNOWN
    of_it = [r for r in seen if (r.value.stream, r.value.transaction) == doubt]
    rest = [r for r in seen if r not in of_it]
    assert check(history, seen) == []
    assert check(history, rest) == []
    assert kinds(history, [*of_it[:1], *rest]) == {"torn"}


def test_a_value_that_no_client_sent_is_found() -> None:
    history, seen = recorded(False)
    assert "never sent" in kinds(history, [*seen, Seen(0, 900, Value("x", 1))])


def test_a_copy_is_exact_only_when_output_and_offsets_agree() -> None:
    inputs = [(partition, offset) for partition in range(2) for offset in range(50)]
    done = [(p, o) for p, o in inputs if o < 40]
    committed = {0: 40, 1: 40}
    assert check_copy(inputs, done, committed) == []
    victim = random.Random(1).choice(done)
    dropped = [key for key in done if key != victim]
    assert [a.kind for a in check_copy(inputs, dropped, committed)] == ["not copied"]
    assert [a.kind for a in check_copy(inputs, [*done, victim], committed)] == ["copied twice"]
    early = check_copy(inputs, [*done, (0, 40)], committed)
    assert [a.kind for a in early] == ["copied without its offset"]


def test_read_committed_shows_nothing_that_read_uncommitted_does_not() -> None:
    _, seen = recorded(False)
    assert check_isolation(seen[1:], seen) == []
    assert [a.kind for a in check_isolation(seen, seen[1:])] == ["only in read_committed"]

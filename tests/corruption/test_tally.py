"""What a campaign of mutated files notes of them."""

from tests.corruption.campaign import Result, Tally


def result(number: int, *failures: str) -> Result:
    return Result(number, "a.log", "cut", "right", list(failures))


def test_mutations_are_counted_by_what_came_of_them() -> None:
    tally = Tally(3, "commit")
    for number in (0, 2):
        tally.add([result(number), result(number + 1)])
    entry = tally.entry()
    assert entry["seeds"] == [3, 3]
    assert entry["mutated files"] == tally.count == 4
    assert entry["outcomes"] == {"right": 4}
    assert entry["verdict"] == "passed"


def test_one_broken_rule_makes_the_verdict_and_is_named() -> None:
    tally = Tally(3, "commit")
    tally.add([result(6), result(7, "a rule")])
    assert tally.entry()["verdict"] == "failed"
    assert tally.entry()["broken rules"] == ["7 a.log cut: ['a rule']"]

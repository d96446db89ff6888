"""What a campaign of mutated files notes of them."""

import pytest

from tests.corruption.campaign import Result, Tally
from tests.support import evidence


def result(number: int, *failures: str) -> Result:
    return Result(number, "a.log", "cut", "right", list(failures))


@pytest.mark.usefixtures("evidence_folder")
def test_mutations_are_counted_and_one_broken_rule_makes_the_verdict() -> None:
    tally = Tally(3)
    tally.add([result(0), result(1)])
    tally.keep()
    assert "| corruption | passed | 2 mutated files | 3 |" in evidence.TABLE.read_text()
    tally.add([result(2), result(3, "a rule")])
    tally.keep()
    assert "| corruption | 1 broke a rule | 4 mutated files | 3 |" in evidence.TABLE.read_text()

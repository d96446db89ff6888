"""How many examples are shared out, tried and added up."""

from collections import Counter

import pytest

from tests.properties.__main__ import SHARE, Share, Tally, Tried, shares, try_share
from tests.support import evidence
from tests.support.campaigns import in_processes


def test_shares_have_seeds_of_their_own_and_all_examples() -> None:
    found = shares(5, 2 * SHARE + 1)
    assert [(share.seed, share.examples_count) for share in found] == [
        (5, SHARE),
        (6, SHARE),
        (7, 1),
    ]


def test_a_share_counts_what_its_own_examples_went_through() -> None:
    one, again = in_processes(try_share, [Share(1, 2)] * 2, 1)
    assert one.failure is None
    assert one.happened == again.happened
    assert one.happened.total() > 0


@pytest.mark.usefixtures("evidence_folder")
def test_shares_add_up_and_one_failure_makes_the_verdict() -> None:
    tally = Tally(5)
    tally.add(Tried(Share(5, 10), Counter(deaths=2), None))
    tally.keep()
    row = "| properties | passed | 10 examples with 2 deaths | 5 |"
    assert row in evidence.TABLE.read_text()
    tally.add(Tried(Share(6, 7), Counter(deaths=1), "what failed"))
    tally.keep()
    row = "| properties | failed: seeds [6] | 17 examples with 3 deaths | 5 |"
    assert row in evidence.TABLE.read_text()

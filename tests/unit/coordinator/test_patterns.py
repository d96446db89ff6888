"""Expressions of RE2: matched as a whole, refused when they are none or too large."""

import re

import pytest

from oncelog.coordinator import patterns
from oncelog.core.limits import REGEX_BYTES_MAX


def test_the_whole_name_has_to_match() -> None:
    names = ("orders", "orders-eu", "my-orders")
    assert patterns.matching("orders.*", names) == {"orders", "orders-eu"}
    assert patterns.matching("orders", names) == {"orders"}
    assert patterns.matching("(?i)ORDERS", names) == {"orders"}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("[a", "missing ]"),
        ("a{1001}", "repetition"),
        ("(?=look)", "invalid perl"),
        ("(a)\\1", "escape"),
        ("*", "no argument"),
    ],
)
def test_what_re2_does_not_take_is_refused_with_its_reason(
    pattern: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(patterns.InvalidPattern, match=re.escape(reason)):
        patterns.check(pattern)
    assert capfd.readouterr() == ("", ""), "the library tells nobody else"


def test_a_pattern_that_is_too_large_is_refused() -> None:
    patterns.check("a" * 1_000)
    with pytest.raises(patterns.InvalidPattern):
        patterns.check("a" * (REGEX_BYTES_MAX + 1))
    with pytest.raises(patterns.InvalidPattern):
        patterns.check("((a{100}){100})")
    with pytest.raises(patterns.InvalidPattern, match="too large"):
        patterns.check("(?:\\pL{50}){5}")


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    # Python's `re` would take longer than the universe has.
    assert patterns.matching("(x+x+)+y", ["x" * 249]) == frozenset()

"""Patterns of clients: they mean what `re` takes them for, and cost no more than their length."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.limits import PATTERN_LENGTH_MAX
from oncelog.transaction.pattern import BadPattern, Pattern

ATOMS = ("a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "-", "")
MARKS = ("", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?")


def joined(parts: list[str]) -> str:
    return "".join(parts)


simple = st.tuples(st.sampled_from(ATOMS[:-1]), st.sampled_from(MARKS)).map("".join)
patterns = st.recursive(
    st.lists(simple, max_size=4).map(joined),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(MARKS)).map(lambda p: f"({p[0]}){p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=5,
)


@given(pattern=patterns, value=st.text("abc1.-", max_size=8))
def test_a_pattern_means_what_re_takes_it_for(pattern: str, value: str) -> None:
    assert Pattern(pattern).matches(value) == (re.fullmatch(pattern, value) is not None)


@given(pattern=st.text("ab.[]^-\\d()|*+?{},12$", max_size=20))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        compiled = Pattern(pattern)
    except BadPattern:
        return
    compiled.matches("ab12")


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 100,
        "a" * (PATTERN_LENGTH_MAX + 1),
        "((a{999}){999}){999}",
        "a{9999999999}",
        "[b-a]",
        "a**",
        r"\bword",
        "(?=a)",
        "(?P<n>a)",
        "a)",
        "[a",
        "*",
        "{2}",
        "a{,2}",
    ],
)
def test_what_is_too_large_or_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)x"])
def test_no_pattern_backtracks(pattern: str) -> None:
    # `re` would need longer than the universe is old.
    assert not Pattern(pattern).matches("a" * 2000)


def test_anchors_at_the_ends_change_nothing() -> None:
    assert Pattern("^app-[0-9]+$").matches("app-17")
    assert not Pattern("^app-[0-9]+$").matches("my-app-17")

"""Which series a query asks for."""

from __future__ import annotations

import pytest

from tests.support.promql import Selector, parse


def test_the_metrics_and_labels_of_a_query_are_found() -> None:
    query = parse(
        'max by (topic) (a{job="x",le!~"1|2"}) - on (topic) group_right () '
        "topk(10, rate(b_total[5m])) > 0.5"
    )
    assert query.selectors == [
        Selector("a", [("job", "=", "x"), ("le", "!~", "1|2")]),
        Selector("b_total", []),
    ]
    assert query.labels == {"topic"}


@pytest.mark.parametrize(
    "text", ["sum(a", "rated(a)", "a{b=1", "a b", "sum by topic (a)", "a -", "rate(a[5x])", "a ; b"]
)
def test_what_is_no_query_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(text)


@pytest.mark.parametrize(
    ("matcher", "is_taken"),
    [
        (("l", "=", "v"), True),
        (("l", "=", ""), False),
        (("m", "=", ""), True),
        (("l", "=~", "v|w"), True),
        (("l", "!~", "v|w"), False),
        (("l", "!=", "w"), True),
    ],
)
def test_a_series_is_taken_by_its_labels(matcher: tuple[str, str, str], is_taken: bool) -> None:
    assert Selector("a", [matcher]).takes("a", {"l": "v"}) == is_taken
    assert not Selector("b", [matcher]).takes("a", {"l": "v"})

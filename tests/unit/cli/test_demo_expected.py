"""The demo's verdict is exact only for exact output."""

import pytest

from oncelog.cli.demo import expected
from oncelog.cli.demo.expected import Daily
from oncelog.cli.demo.flights import Flight, generated


def flights() -> list[Flight]:
    return generated(seed=3, count=2000)


def right_output() -> tuple[list[int], list[tuple[tuple[str, str], Daily]]]:
    wanted = expected.compute(flights())
    halves = [(key, Daily(day.flights - 1, 0, 0, 0)) for key, day in wanted.daily.items()]
    updates = [entry for entry in halves if entry[1].flights] + list(wanted.daily.items())
    return sorted(wanted.delayed_ids), updates


def test_right_output_is_exact() -> None:
    ids, updates = right_output()
    verdict = expected.compare(expected.compute(flights()), ids, updates)
    assert verdict.exact
    assert verdict.delayed_seen_count == verdict.delayed_expected_count > 0
    assert verdict.daily_right_count == verdict.daily_expected_count > 0


def test_a_cancelled_flight_is_neither_late_nor_lost() -> None:
    cancelled = Flight(1, "2013-01-01", 600, "AA", 7, "JFK", "BOS", None)
    late = Flight(2, "2013-01-01", 700, "AA", 8, "JFK", "BOS", 61)
    on_the_hour = Flight(3, "2013-01-01", 800, "AA", 9, "JFK", "BOS", 60)
    computed = expected.compute([cancelled, late, on_the_hour])
    assert computed.delayed_ids == {2}
    assert computed.daily == {("AA", "2013-01-01"): Daily(3, 1, 1, 121)}


@pytest.mark.parametrize("change", ["drop", "repeat", "foreign"])
def test_one_wrong_delayed_flight_is_found(change: str) -> None:
    ids, updates = right_output()
    wrong = {"drop": ids[1:], "repeat": [*ids, ids[5]], "foreign": [*ids, -7]}[change]
    assert not expected.compare(expected.compute(flights()), wrong, updates).exact


def test_a_repeated_update_is_found_though_the_final_values_are_right() -> None:
    ids, updates = right_output()
    verdict = expected.compare(expected.compute(flights()), ids, [*updates, updates[-1]])
    assert verdict.daily_right_count == verdict.daily_expected_count
    assert [finding.split(" (")[0] for finding in verdict.findings] == ["repeated update of"]


def test_a_missing_last_update_is_found() -> None:
    ids, updates = right_output()
    assert not expected.compare(expected.compute(flights()), ids, updates[:-1]).exact

"""`python -m bench.growth` measures every kind of thing."""

import pytest

from bench.growth import KINDS, measure


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_of_each_kind_costs_something(kind: str) -> None:
    assert [cpu_us > 0 for cpu_us, _ in measure(kind, (2, 5))] == [True, True]

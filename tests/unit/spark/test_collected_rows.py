"""Which micro-batches the driver collects."""

import pytest

from oncelog.spark.collected_rows import CollectedRows
from oncelog.spark.sink_options import MAX_DRIVER_ROWS


@pytest.mark.parametrize(
    ("max_rows", "expected", "limit"),
    [
        pytest.param(MAX_DRIVER_ROWS, None, 0, id="the first batch of a run"),
        pytest.param(MAX_DRIVER_ROWS, 10_001, 0, id="too many"),
        pytest.param(MAX_DRIVER_ROWS, 10_000, 10_000, id="all in one partition"),
        pytest.param(MAX_DRIVER_ROWS, 500, 500, id="few rows"),
        pytest.param(MAX_DRIVER_ROWS, 0, 500, id="none"),
        pytest.param(700, 600, 700, id="a lower maximum"),
        pytest.param(10, 0, 10, id="a low maximum"),
        pytest.param(0, 0, 0, id="switched off"),
    ],
)
def test_the_limit_of_a_partition(max_rows: int, expected: int | None, limit: int) -> None:
    assert CollectedRows(max_rows).limit(expected) == limit


def test_batches_collected_in_vain_are_followed_by_twice_as_many_that_are_not() -> None:
    rows = CollectedRows(MAX_DRIVER_ROWS)
    pauses = []
    for _ in range(9):
        rows.collected(is_whole=False)
        pauses.append(0)
        while rows.limit(1) == 0:
            pauses[-1] += 1
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    rows.collected(is_whole=True)
    assert rows.limit(1) > 0
    rows.collected(is_whole=False)
    assert rows.limit(1) == 0
    assert rows.limit(1) > 0

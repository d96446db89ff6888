"""Spark's hash of an int, and the keys that its shuffle sends to each task."""

import pytest

from oncelog.spark.spark_hash import int_hash, partition_keys


@pytest.mark.parametrize(
    ("value", "expected"),
    # `SELECT hash(0), hash(1), ...`, alike on PySpark 3.5.9 and 4.3.0.
    [
        (0, 933211791),
        (1, -559580957),
        (42, 29417773),
        (2147483647, 133916647),
        (-1, -1604776387),
        (-2147483648, 723455942),
    ],
)
def test_the_hash_is_that_of_spark_sql(value: int, expected: int) -> None:
    assert int_hash(value) == expected


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1000])
def test_each_partition_has_a_key_that_spark_sends_there(count: int) -> None:
    keys = partition_keys(count)
    assert [int_hash(key) % count for key in keys] == list(range(count))
    assert max(keys) < 1 << 31

import pytest

from oncelog.protocol.hashing import (
    coordinator_partition,
    java_string_hash,
    murmur2,
    partition_for_key,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_test(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_java_string_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_smallest_hash_has_absolute_value_0() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_partitions_stay_in_range() -> None:
    assert {partition_for_key(str(i).encode(), 7) for i in range(200)} == set(range(7))
    assert {coordinator_partition(f"group-{i}", 5) for i in range(200)} == set(range(5))

"""The offset map holds what it is given, in the memory that it is given."""

import pytest

from oncelog.storage.cleaner.offset_map import ENTRY_SIZE_BYTES, OffsetMap


def key(number: int) -> bytes:
    return b"key-%d" % number


def test_it_tells_the_newest_offset_of_each_key() -> None:
    keys = OffsetMap(1 << 20, 0.9, 1000)
    for offset in range(1000):
        assert keys.put(key(offset % 300), offset)
    assert keys.size == 300
    assert [keys.get(key(number)) for number in range(300)] == [
        *range(900, 1000),
        *range(700, 900),
    ]
    assert keys.get(b"unknown") == -1


def test_it_takes_no_new_key_when_it_is_full_but_newer_offsets() -> None:
    keys = OffsetMap(ENTRY_SIZE_BYTES * 11, 0.9, 10**9)
    assert keys.size_max == 9
    assert [keys.put(key(number), number) for number in range(10)] == [True] * 9 + [False]
    assert keys.put(key(0), 10)
    assert (keys.get(key(0)), keys.get(key(9)), keys.size) == (10, -1, 9)


@pytest.mark.parametrize("memory_bytes", [0, 1, ENTRY_SIZE_BYTES])
def test_the_smallest_map_holds_a_key(memory_bytes: int) -> None:
    keys = OffsetMap(memory_bytes, 0.1, 10)
    assert keys.size_max == 1
    assert keys.put(b"a", 5)
    assert not keys.put(b"b", 6)
    assert (keys.get(b"a"), keys.get(b"b")) == (5, -1)


def test_a_full_map_finds_every_key() -> None:
    keys = OffsetMap(ENTRY_SIZE_BYTES * 1009, 1.0, 10**9)
    assert keys.size_max == 1008
    assert all(keys.put(key(number), number) for number in range(1008))
    assert [keys.get(key(number)) for number in range(1008)] == list(range(1008))
    assert keys.get(b"unknown") == -1


def test_it_takes_no_more_memory_than_the_records_need() -> None:
    few = OffsetMap(1 << 40, 0.5, 100)
    assert 100 <= few.size_max < 300

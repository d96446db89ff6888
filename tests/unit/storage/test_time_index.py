from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.time_index import TimeIndex


def build(moves: list[int]) -> TimeIndex:
    index = TimeIndex(100)
    for slot, timestamp_ms in enumerate(moves):
        index.maybe_append(timestamp_ms, 100 + slot)
    return index


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 60))
def test_nothing_before_the_found_offset_is_as_new(timestamps: list[int], target: int) -> None:
    index = build(timestamps)
    found = index.offset_before(target)
    assert all(t < target for t in timestamps[: found - 100])


@given(st.lists(st.integers(0, 50), max_size=30))
def test_the_file_holds_rising_maxima_and_comes_back(timestamps: list[int]) -> None:
    index = build(timestamps)
    data = index.to_bytes()
    assert len(data) == 12 * len(index)
    again = TimeIndex.from_bytes(100, data)
    assert again is not None
    assert again.to_bytes() == data
    expected = max(timestamps, default=-1)
    assert again.last_entry()[0] == expected


def test_truncation_forgets_later_offsets() -> None:
    index = build([1, 2, 3, 4])
    index.truncate(102)
    assert index.last_entry() == (2, 101)
    index.truncate(0)
    assert index.last_entry() == (-1, 100)


def test_entries_that_do_not_rise_are_refused() -> None:
    index = build([1, 2])
    entry = index.to_bytes()
    assert TimeIndex.from_bytes(100, entry[12:] + entry[:12]) is None
    assert TimeIndex.from_bytes(100, entry[:-1]) is None
    padded = TimeIndex.from_bytes(100, entry + bytes(24))
    assert padded is not None
    assert len(padded) == 2

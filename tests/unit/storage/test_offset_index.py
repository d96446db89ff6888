from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.offset_index import OffsetIndex

steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), max_size=50)


def build(base: int, moves: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, entries, offset, position = OffsetIndex(base), [], base, 0
    for by_offset, by_position in moves:
        offset, position = offset + by_offset, position + by_position
        index.append(offset, position)
        entries.append((offset, position))
    return index, entries


@given(steps, st.integers(0, 60_000))
def test_a_walk_begins_at_the_last_entry_not_above_the_offset(
    moves: list[tuple[int, int]], ahead: int
) -> None:
    index, entries = build(500, moves)
    expected = max((p for offset, p in entries if offset <= 500 + ahead), default=0)
    assert index.position_before(500 + ahead) == expected


@given(steps, st.integers(0, 6_000_000))
def test_boundaries_and_truncation_follow_positions(
    moves: list[tuple[int, int]], position: int
) -> None:
    index, entries = build(0, moves)
    expected = max((p for _, p in entries if p <= position), default=0)
    assert index.boundary_at_or_before(position) == expected
    index.truncate(position)
    assert len(index) == sum(1 for _, p in entries if p < position)


@given(steps)
def test_the_file_is_kafkas_and_comes_back(moves: list[tuple[int, int]]) -> None:
    index, entries = build(7, moves)
    data = index.to_bytes()
    expected = b"".join((o - 7).to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    assert data == expected
    again = OffsetIndex.from_bytes(7, data, 10_000_000)
    assert again is not None
    assert again.to_bytes() == data


def test_a_preallocated_tail_is_dropped() -> None:
    index, _ = build(0, [(5, 100), (5, 100)])
    again = OffsetIndex.from_bytes(0, index.to_bytes() + bytes(80), 1000)
    assert again is not None
    assert len(again) == 2
    empty = OffsetIndex.from_bytes(0, bytes(80), 1000)
    assert empty is not None
    assert len(empty) == 0


def test_an_index_of_another_file_is_refused() -> None:
    index, _ = build(0, [(5, 100), (5, 100)])
    assert OffsetIndex.from_bytes(0, index.to_bytes(), 150) is None
    assert OffsetIndex.from_bytes(0, index.to_bytes()[:-1], 1000) is None
    assert OffsetIndex.from_bytes(0, index.to_bytes()[::-1], 1 << 31) is None

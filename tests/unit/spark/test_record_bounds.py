"""Bounds of records, of one size and of many, beside a walk record by record."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import HEADER_SIZE
from oncelog.protocol.record import Record, build_batch
from oncelog.spark.record_bounds import record_bounds

runs = st.lists(st.tuples(st.integers(1, 150), st.integers(0, 300)), min_size=1, max_size=6)


def section_of(sizes: list[int]) -> bytes:
    records = [Record(n, 5, None, b"v" * size, ()) for n, size in enumerate(sizes)]
    return bytes(build_batch(records, base_offset=0))[HEADER_SIZE:]


def walked(section: bytes) -> list[tuple[int, int]]:
    """Where each record begins, after its length, and ends: a varint of at most two bytes here."""
    bounds, position = [], 0
    while position < len(section):
        size = section[position] & 0x7F
        if section[position] & 0x80:
            position += 1
            size |= section[position] << 7
        begin = position + 1
        position = begin + (size >> 1)
        bounds.append((begin, position))
    return bounds


@settings(deadline=None)
@given(runs)
def test_runs_of_one_size_and_changes_of_size_are_found_as_by_a_walk(
    given_runs: list[tuple[int, int]],
) -> None:
    sizes = [size for count, size in given_runs for _ in range(count)]
    section = section_of(sizes)
    starts, ends = record_bounds(section, len(sizes))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == walked(section)


@pytest.mark.parametrize("count", [299, 301])
def test_a_wrong_count_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError):
        record_bounds(section_of([20] * 300), count)


@settings(deadline=None)
@given(st.integers(1, 8000))
def test_a_cut_is_refused(kept: int) -> None:
    section = section_of([20] * 300)
    if kept < len(section):
        with pytest.raises(ProtocolError):
            record_bounds(section[:kept], 300)

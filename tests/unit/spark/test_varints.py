"""Columns of varints against the scalar encoding of `oncelog.protocol.wire`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.wire import varint
from oncelog.spark.varints import VarintColumn, as_binary

number = st.integers(-(2**63), 2**63 - 1)
numbers = st.one_of(st.integers(-64, 63), st.integers(-9000, 9000), number)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1)
)


def columns_of(rows: list[list[int]]) -> list[VarintColumn]:
    return [VarintColumn.of(np.array(column, np.int64)) for column in zip(*rows, strict=True)]


@settings(deadline=None)
@given(tables)
def test_each_record_has_its_varints(rows: list[list[int]]) -> None:
    expected = [b"".join(map(varint, row)) for row in rows]
    assert as_binary(columns_of(rows)).to_pylist() == expected


@settings(deadline=None)
@given(tables, st.data())
def test_there_is_room_in_front_of_the_records_that_are_named(
    rows: list[list[int]], data: st.DataObject
) -> None:
    roomy = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    found = as_binary(columns_of(rows), roomy=roomy, room=9).to_pylist()
    for index, row in enumerate(rows):
        room = 9 if index in roomy else 0
        assert len(found[index]) == room + sum(len(varint(value)) for value in row)
        assert found[index][room:] == b"".join(map(varint, row))


@settings(deadline=None)
@given(st.lists(numbers, min_size=1))
def test_sizes_are_said_once_where_they_are_equal(values: list[int]) -> None:
    column = VarintColumn.of(np.array(values, np.int64))
    sizes = [len(varint(value)) for value in values]
    assert np.broadcast_to(column.sizes, len(values)).tolist() == sizes
    assert (column.size_min, column.size_max) == (min(sizes), max(sizes))
    assert isinstance(column.sizes, int) == (len(set(sizes)) == 1)

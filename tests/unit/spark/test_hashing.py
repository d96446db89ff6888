"""Vectorised murmur2 against the scalar one, which is held to Java's own vectors."""

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.hashing import murmur2 as one_murmur2
from oncelog.protocol.hashing import partition_for_key
from oncelog.spark.hashing import binary_parts, murmur2, partitions_for_keys

keys_strategy = st.lists(st.binary(max_size=40), min_size=1, max_size=50)


@settings(deadline=None)
@given(keys_strategy)
def test_every_hash_is_that_of_the_scalar_function(keys: list[bytes]) -> None:
    data, offsets = binary_parts(pa.array(keys, pa.binary()))
    hashes = murmur2(data, offsets[:-1], np.diff(offsets))
    assert hashes.tolist() == [one_murmur2(key) & 0xFFFFFFFF for key in keys]


@settings(deadline=None)
@given(st.integers(0, 13), st.integers(1, 20), st.randoms(use_true_random=False))
def test_keys_of_one_length_hash_alike(length: int, count: int, random: Random) -> None:
    keys = [b"in front", *(random.randbytes(length) for _ in range(count))]
    data, offsets = binary_parts(pa.array(keys, pa.binary())[1:])
    hashes = murmur2(data, offsets[:-1], np.diff(offsets))
    assert hashes.tolist() == [one_murmur2(key) & 0xFFFFFFFF for key in keys[1:]]


def test_keys_of_one_length_need_not_lie_side_by_side() -> None:
    data = np.frombuffer(b"abcd--efgh", np.uint8)
    hashes = murmur2(data, np.array([0, 6]), np.array([4, 4]))
    assert hashes.tolist() == [one_murmur2(key) & 0xFFFFFFFF for key in (b"abcd", b"efgh")]


@settings(deadline=None)
@given(keys_strategy, st.integers(1, 64), st.integers(0, 5))
def test_partitions_are_those_of_the_default_partitioner_also_in_a_slice(
    keys: list[bytes], count: int, first: int
) -> None:
    column = pa.array(keys, pa.binary())[first:]
    chosen = partitions_for_keys(column, count).tolist()
    assert chosen == [partition_for_key(key, count) for key in keys[first:]]


def test_strings_hash_as_their_utf8_and_an_empty_column_gives_nothing() -> None:
    column = pa.array(["UA", "Zürich"], pa.string())
    expected = [partition_for_key(key.encode(), 7) for key in ("UA", "Zürich")]
    assert partitions_for_keys(column, 7).tolist() == expected
    assert partitions_for_keys(pa.array([], pa.binary()), 7).tolist() == []

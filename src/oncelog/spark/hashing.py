"""Chooses the partitions of whole columns of keys, as Java's default partitioner does.

Its results equal those of `oncelog.protocol.hashing` for every key (a test compares them), so that
Spark and any Kafka client write a key to the same partition.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["binary_parts", "murmur2", "partitions_for_keys"]

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)

Uint8s = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]


def binary_parts(column: Any) -> tuple[Uint8s, Int64s]:
    """The bytes and the n + 1 offsets of a binary or string array, without a copy of the bytes.

    Nulls have length 0.
    """
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        width: type[np.signedinteger[Any]] = np.int64
    else:
        width = np.int32
    _, offsets_buffer, data_buffer = column.buffers()
    if len(column) == 0 or offsets_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(len(column) + 1, np.int64)
    offsets = np.frombuffer(offsets_buffer, width)[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets.astype(np.int64)


def murmur2(data: Uint8s, starts: Int64s, lengths: Int64s) -> Uint32s:
    """Kafka's murmur2 of each of n byte strings within `data`.

    One pass per four bytes of the longest string.
    """
    length = int(lengths[0]) if len(lengths) else 0
    if length and (lengths == length).all() and (np.diff(starts) == length).all():
        first = int(starts[0])
        table = data[first : first + length * len(starts)].reshape(len(starts), length)
        return _murmur2_of_rows(table)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    # Longest first: the rows that still have a word left are then a prefix.
    order = np.argsort(-words, kind="stable")
    remaining = words[order]
    position = starts[order]
    state = hashes[order]
    active = len(order)
    longest = int(remaining[0]) if active else 0
    for word in range(longest):
        while active and remaining[active - 1] <= word:
            active = int(np.searchsorted(-remaining, -word, side="left"))
        at = position[:active] + 4 * word
        k = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            k |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        _mix_word(state[:active], k)
    hashes[order] = state
    _mix_tail(hashes, data, starts + (words << 2), lengths & 3)
    return _finished(hashes)


def _murmur2_of_rows(table: Uint8s) -> Uint32s:
    """The hashes of keys that have the same length and lie side by side."""
    count, length = table.shape
    hashes = np.full(count, _SEED ^ length, np.uint32)
    words = table[:, : length & ~3].copy().view("<u4")
    for word in range(words.shape[1]):
        _mix_word(hashes, words[:, word].astype(np.uint32))
    if length & 3:
        for byte in range(length & 3):
            hashes ^= table[:, (length & ~3) + byte].astype(np.uint32) << np.uint32(8 * byte)
        hashes *= _M
    return _finished(hashes)


def _mix_word(hashes: Uint32s, k: Uint32s) -> None:
    k *= _M
    k ^= k >> np.uint32(24)
    k *= _M
    hashes *= _M
    hashes ^= k


def _mix_tail(hashes: Uint32s, data: Uint8s, tails: Int64s, left: Int64s) -> None:
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        hashes[rows] ^= data[tails[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(left > 0)
    hashes[rows] *= _M


def _finished(hashes: Uint32s) -> Uint32s:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def partitions_for_keys(keys: Any, counts: Int64s | int) -> Int64s:
    """Return each key's default partition, given the partition count of its topic.

    A null key gets that of an empty one.
    """
    # Kafka's BuiltInPartitioner: the sign bit is cleared, as the absolute value of the smallest int
    # would still be negative.
    data, offsets = binary_parts(keys)
    hashes = murmur2(data, offsets[:-1], np.diff(offsets))
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % counts

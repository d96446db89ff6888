"""Spark's hash of an int, by which ``repartition(count, column)`` spreads rows. Pure.

A row whose column holds the n-th of `partition_keys` goes to partition n. PySpark 4.1 has
`repartitionById` for that; this works on every version. Nothing but an even spread rests on it:
rows with the same key stay together, whatever the hash is.
"""

from functools import lru_cache
from itertools import count
from typing import Final

__all__ = ["int_hash", "partition_keys"]

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF


@lru_cache(maxsize=8)
def partition_keys(partition_count: int) -> tuple[int, ...]:
    """Return an int for each partition, which Spark's `repartition` sends there.

    Source: Spark's `HashPartitioning.partitionIdExpression`, the positive rest of `Murmur3Hash`.
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(int_hash(key) % partition_count, key)
        if len(found) == partition_count:
            break
    return tuple(found[partition] for partition in range(partition_count))


def int_hash(value: int) -> int:
    """Return ``hash(value)`` of Spark SQL for an int: the 32-bit murmur3 of its four bytes.

    Source: Spark's `Murmur3_x86_32.hashInt`.
    """
    k = _rotated(value * 0xCC9E2D51, 15) * 0x1B873593 & _MASK
    h = (_rotated(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK

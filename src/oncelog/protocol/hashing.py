"""The hashes by which Java's clients and Kafka's coordinators choose partitions.

They choose the partition of a key as the Java client does, and the coordinator of a group or
transactional id as Kafka does. With one bit of difference, a key would be in two partitions.
"""

from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_INT_MIN: Final = -(2**31)
_HASHES_CACHED_COUNT: Final = 256
"""Ids are at most 32 KB, so this bounds the cache at 8 MB; usually it holds a few KB."""


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Austin Appleby's 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes | bytearray | memoryview, partition_count: int) -> int:
    """The partition that the Java client's default partitioner chooses for a key.

    The sign bit is cleared, not negated (`BuiltInPartitioner.partitionForKey`).
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=_HASHES_CACHED_COUNT)
def java_string_hash(text: str) -> int:
    """`String.hashCode()`, over UTF-16 code units, signed 32 bits."""
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        h = (31 * h + (units[position] << 8) + units[position + 1]) & _MASK
    return h - 2**32 if h >= 2**31 else h


def coordinator_partition(coordinated_id: str, partition_count: int) -> int:
    """The internal topic's partition that a group or transactional id belongs to.

    Kafka's `Utils.abs` maps the smallest int, which has no absolute value in 32 bits, to 0.
    """
    h = java_string_hash(coordinated_id)
    return 0 if h == _INT_MIN else abs(h) % partition_count

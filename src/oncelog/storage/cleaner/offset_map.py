"""The newest offset of each key, in bounded memory: Kafka's `SkimpyOffsetMap`.

A key is known by a hash of 128 bits, so an entry takes 24 bytes whatever the key's length. The hash
is BLAKE2b where Kafka takes MD5: no client can make two keys collide. Entries are found by
open addressing with double hashing in one block of memory, which the system commits as it fills.
"""

from collections.abc import Iterator
from hashlib import blake2b

from oncelog.core.integers import integers

__all__ = ["ENTRY_SIZE_BYTES", "OffsetMap"]

ENTRY_SIZE_BYTES = 24

_HASH = integers("=QQ")
_SLOTS_MIN = 5
_PRIMES_APART_MAX = 210
"""Two neighbouring primes below 2^31 are hardly ever further apart."""
_NOTHING = -1


class OffsetMap:
    """Offsets by key. `size` is how many keys it holds, of at most `size_max`."""

    __slots__ = ("_highs", "_lows", "_offsets", "_slots", "latest_offset", "size", "size_max")

    def __init__(self, memory_bytes: int, load_factor: float, records_count_max: int) -> None:
        """Use at most `memory_bytes`, and less for no more than `records_count_max` records.

        At most `load_factor` of the slots are used, but at least one: a cleaning that cannot store
        a key would never end.
        """
        wanted = int(records_count_max / load_factor) + _PRIMES_APART_MAX
        self._slots = _prime_at_most(max(_SLOTS_MIN, min(memory_bytes // ENTRY_SIZE_BYTES, wanted)))
        words = memoryview(bytearray(self._slots * ENTRY_SIZE_BYTES)).cast("Q")
        self._highs = words[: self._slots]
        self._lows = words[self._slots : 2 * self._slots]
        self._offsets = words[2 * self._slots :]
        self.size = 0
        self.size_max = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self.latest_offset = _NOTHING
        """All records up to and including this offset are in the map."""

    def put(self, key: bytes, offset: int) -> bool:
        """Store the `offset` of `key`; offsets only increase.

        Returns False, without storing it, when the key is new and the map is full.
        """
        slot, high, low = self._find(key)
        if not self._offsets[slot]:
            if self.size >= self.size_max:
                return False
            self.size += 1
            self._highs[slot] = high
            self._lows[slot] = low
        self._offsets[slot] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or -1."""
        return self._offsets[self._find(key)[0]] - 1

    def offsets(self, slots_count: int) -> Iterator[list[int]]:
        """The newest offsets of all keys, in no order, from so many slots at a time."""
        for first in range(0, self._slots, slots_count):
            yield [word - 1 for word in self._offsets[first : first + slots_count] if word]

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """The slot of a key, or the free one where it belongs. One is free, as not all are used."""
        high, low = _HASH.unpack(blake2b(key, digest_size=_HASH.size).digest())
        slots, offsets, highs = self._slots, self._offsets, self._highs
        slot = high % slots
        if offsets[slot] and (highs[slot] != high or self._lows[slot] != low):
            step = 1 + low % (slots - 1)
            slot = (slot + step) % slots
            while offsets[slot] and (highs[slot] != high or self._lows[slot] != low):
                slot = (slot + step) % slots
        return slot, high, low


def _prime_at_most(count: int) -> int:
    """The largest prime that is not above `count`: with it every step reaches all slots."""
    while any(count % divisor == 0 for divisor in range(2, int(count**0.5) + 1)):
        count -= 1
    return count

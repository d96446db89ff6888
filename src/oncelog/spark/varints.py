"""Writes the varints of many records at once, as record batches want them.

A column of numbers is encoded together: its numbers mostly take the same count of bytes, and then
nothing is said per record. It must not know Spark, and does no I/O.

Source: `ByteUtils.writeVarint` and `writeVarlong` (zig-zag, seven bits to a byte).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["VarintColumn", "as_binary"]

BITS: Final = 7
MORE: Final = np.uint8(0x80)

Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]


def _zigzag(values: Int64s) -> Uint64s:
    """Map signed numbers to unsigned ones, small ones to small ones."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


@dataclass(frozen=True, slots=True)
class VarintColumn:
    """A number of each of n records, and the bytes it takes.

    `sizes` is one number if all take the same count of bytes, else n of them.
    """

    raw: Uint64s
    size_min: int
    size_max: int
    sizes: int | Int64s

    @classmethod
    def of(cls, values: Int64s) -> "VarintColumn":
        """Encode int64 numbers, of which there is at least one."""
        raw = _zigzag(values)
        size_min, size_max = _size(int(raw.min())), _size(int(raw.max()))
        if size_min == size_max:
            return cls(raw, size_min, size_max, size_min)
        sizes = np.full(len(raw), size_min, np.int64)
        for size in range(size_min, size_max):
            sizes += raw >= np.uint64(1 << BITS * size)
        return cls(raw, size_min, size_max, sizes)


def _joined(columns: Sequence[VarintColumn]) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return the varints of record 0 of all columns, of record 1, and so on.

    Also the n + 1 places where those of each record begin.
    """
    count, width = len(columns[0].raw), sum(column.size_max for column in columns)
    table = np.empty((count, width), np.uint8)
    is_used: npt.NDArray[np.bool_] | None = None
    place = 0
    for column in columns:
        for byte in range(column.size_max):
            low = (column.raw >> np.uint64(BITS * byte)).astype(np.uint8)
            if byte + 1 < column.size_min:
                low |= MORE
            elif byte + 1 < column.size_max:
                low &= ~MORE
                low |= np.greater(column.sizes, byte + 1).astype(np.uint8) << np.uint8(BITS)
            table[:, place] = low
            if byte >= column.size_min:
                if is_used is None:
                    is_used = np.ones((count, width), np.bool_)
                is_used[:, place] = column.sizes > byte
            place += 1
    if is_used is None:
        return table.ravel(), np.arange(0, width * count + 1, width)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(sum(column.sizes for column in columns), out=bounds[1:])
    return table[is_used], bounds


def as_binary(columns: Sequence[VarintColumn], roomy: Sequence[int] = (), room: int = 0) -> Any:
    """Return a binary array with the varints of each record.

    The records with the numbers `roomy`, in ascending order, have `room` bytes in front of theirs,
    with any content.
    """
    data, bounds = _joined(columns)
    if room:
        edges = [*(int(bounds[first]) for first in roomy), len(data)]
        spaced = np.empty(len(data) + room * len(roomy), np.uint8)
        spaced[: edges[0]] = data[: edges[0]]
        for number, (begin, end) in enumerate(pairwise(edges), 1):
            spaced[begin + room * number : end + room * number] = data[begin:end]
            bounds[roomy[number - 1] + 1 :] += room
        data = spaced
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _size(raw: int) -> int:
    return max(-(-raw.bit_length() // BITS), 1)

"""Finds where each record of a batch begins and ends, in NumPy.

A record's start depends on the size of the record before it. Runs of records of the same size are
found at once; where sizes vary, a run is searched for less often.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.core.errors import ErrorCode, ProtocolError

__all__ = ["record_bounds"]

RUN_WINDOW_COUNT: Final = 64
"""Records that are first compared together, to find a run of the same size."""

RUN_WORTH_IT_COUNT: Final = 16
RUN_WALK_COUNT_MAX: Final = 1024
"""After a run of fewer than `RUN_WORTH_IT_COUNT` records, twice as many as before are parsed
singly, up to this count.
"""

Uint8s = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


def record_bounds(section: bytes | memoryview, count: int) -> tuple[Int64s, Int64s]:
    """Where each record's fields begin and end.

    Raises `ProtocolError` (corrupt_message) when they are not `count` records.
    """
    data = np.frombuffer(section, np.uint8)
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    size = len(section)
    index = position = begin = 0
    walk = 1
    while index < count:
        stop = min(index + walk, count)
        while index < stop:
            begin = position
            shift = length = 0
            while True:
                if position >= size or shift > 28:
                    raise _corrupt("a record's length is cut")
                byte = section[position]
                position += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            length >>= 1
            starts[index] = position
            position += length
            ends[index] = position
            index += 1
            if length < 6:
                raise _corrupt("a record is shorter than its fields")
        start, stride = int(starts[index - 1]), position - begin
        same = _same_size(data[begin:], start - begin, stride, count - index)
        steps = stride * np.arange(1, same + 1)
        starts[index : index + same] = start + steps
        ends[index : index + same] = position + steps
        index += same
        position += same * stride
        walk = 1 if same >= RUN_WORTH_IT_COUNT else min(walk * 2, RUN_WALK_COUNT_MAX)
    if position != size:
        raise _corrupt(f"{count} records take {position} bytes of {size}")
    return starts, ends


def _same_size(data: Uint8s, prefix_size: int, stride: int, count: int) -> int:
    """Count the records after the first one in `data`, of `count`, that have the same length.

    Each of them shows where the next one begins.
    """
    most = min(count, len(data) // stride - 1)
    found, window = 0, RUN_WINDOW_COUNT
    while found < most:
        tried = min(window, most - found)
        at = (1 + found) * stride
        prefixes = data[at : at + tried * stride].reshape(tried, stride)[:, :prefix_size]
        differ = (prefixes != data[:prefix_size]).any(axis=1)
        if differ.any():
            return found + int(differ.argmax())
        found += tried
        window *= 2
    return found


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, message)

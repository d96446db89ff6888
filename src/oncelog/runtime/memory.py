"""Stops the allocator from returning large buffers to the system and allocating them again.

A broker often frees and allocates buffers of a megabyte. With glibc's defaults each of them is a
fresh mapping, or is trimmed off the heap: a page fault for every 4 KB, half of what a fetch costs.
This module must not know what the buffers are for.
"""

import sys

from oncelog.core.limits import KEPT_FREE_MEMORY_BYTES_MAX, MAPPED_BUFFER_BYTES_MIN

__all__ = ["keep_freed_memory"]

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Retain freed memory for the next buffer, within limits; return whether the system can.

    Only glibc can; elsewhere nothing happens. Costs the import of ctypes.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BUFFER_BYTES_MIN)
        and mallopt(_M_TRIM_THRESHOLD, KEPT_FREE_MEMORY_BYTES_MAX)
    )

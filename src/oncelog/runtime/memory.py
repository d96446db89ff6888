"""Sets up the memory of a process that serves: what is freed, and when the collector runs.

A broker often frees and allocates buffers of a megabyte. With glibc's defaults each of them is a
fresh mapping, or is trimmed off the heap: a page fault for every 4 KB, half of what a fetch costs.
This module must not know what the buffers are for.

Both are of the process, so only one that does nothing but serve may call it.
"""

import gc
import sys

from oncelog.core.limits import (
    COLLECTOR_THRESHOLDS,
    KEPT_FREE_MEMORY_BYTES_MAX,
    MAPPED_BUFFER_BYTES_MIN,
)

__all__ = ["collect_in_small_steps", "keep_freed_memory"]

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


def collect_in_small_steps() -> None:
    """Have the garbage collector look at few objects at a time.

    What exists by now lives as long as the process, and is not looked at again. With Python's
    defaults a process that grows is stopped each time by as much as it holds: 152 ms with 1,000
    partitions, 10,000 transactional ids and 10,000 groups.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)

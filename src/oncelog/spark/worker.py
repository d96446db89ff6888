"""Keeps a Python worker of Spark quick between tasks. Knows nothing of Kafka."""

import gc
from typing import Final

from oncelog.runtime.memory import keep_freed_memory

__all__ = ["spare_collections"]

_TASKS_COUNT: Final = 2
"""The first task imports what it needs, the second one keeps that."""

_spared = 0


def spare_collections() -> None:
    """Take what this process holds out of garbage collections; call it as a task begins.

    Record batches of the last task leave their memory to those of the next one.

    PySpark collects all garbage after each task (`pyspark.daemon`), before the worker takes the
    next one. With the imported modules that is tens of milliseconds, in which nothing is freed.
    """
    global _spared
    if _spared < _TASKS_COUNT:
        _spared += 1
        keep_freed_memory()
        gc.freeze()

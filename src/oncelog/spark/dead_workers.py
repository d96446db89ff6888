"""Has Spark find out which of its Python workers have died.

Spark keeps workers for later tasks, and learns that one is gone from the task that is given it.
Where a daemon died with all its workers, each attempt of a batch would meet some of them, until
there are no more attempts.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncelog.spark.query import described
from oncelog.spark.slots import slots_of

__all__ = ["replace_dead_workers"]

JOBS_COUNT_MAX: Final = 64
"""Each takes one worker per slot, and fails if one of them is dead."""


def replace_dead_workers(df: DataFrame, is_stopping: Callable[[], bool]) -> None:
    """Run jobs of no effect in the session of `df` until all their tasks have living workers.

    None while there is no executor: workers die with theirs, and a job would wait for the next one
    without a word, where the write stage says what it lacks.
    """
    session = df.sparkSession
    context = session.sparkContext
    with described(context, "look for Python workers that have died"):
        for _ in range(JOBS_COUNT_MAX):
            count = slots_of(context, least=0)
            if is_stopping() or not count:
                return
            rows = session.range(0, count, numPartitions=count)
            try:
                rows.mapInArrow(_as_it_is, rows.schema).collect()
            except (Py4JError, PySparkException):
                continue
            return


def _as_it_is(batches: Iterator[Any]) -> Iterator[Any]:
    return batches

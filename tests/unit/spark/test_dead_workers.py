"""How Spark is made to find its dead workers, with a made-up session."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

import oncelog.spark.dead_workers as dead_workers
from oncelog.spark.dead_workers import JOBS_COUNT_MAX, replace_dead_workers


class Rows:
    """A session, a range and its job at once; `dead_count` of its jobs fail."""

    sparkContext = None  # noqa: N815 - as in Spark
    schema = "id long"

    def __init__(self, dead_count: int) -> None:
        self.dead_count = dead_count
        self.jobs_count = 0
        self.partitions: list[int] = []

    def range(self, _first: int, _last: int, numPartitions: int) -> "Rows":  # noqa: N803
        self.partitions.append(numPartitions)
        return self

    def mapInArrow(self, *_: Any) -> "Rows":  # noqa: N802 - as in Spark
        return self

    def collect(self) -> None:
        self.jobs_count += 1
        if self.jobs_count <= self.dead_count:
            raise PySparkException("java.io.IOException: Broken pipe")


Looked = Callable[..., Rows]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """Replaces the workers where so many jobs fail, and there are so many slots at each look."""

    def look(dead_count: int, *, stops_after: int = 1000, slots: Iterable[int] = ()) -> Rows:
        rows = Rows(dead_count)
        df: Any = SimpleNamespace(sparkSession=rows)
        counts = chain(slots, repeat(3))
        monkeypatch.setattr(dead_workers, "slots_of", lambda _context, least: next(counts))
        monkeypatch.setattr(dead_workers, "described", lambda *_: nullcontext())
        replace_dead_workers(df, lambda: rows.jobs_count >= stops_after)
        return rows

    return look


def test_jobs_run_on_all_slots_until_one_of_them_ends(looked: Looked) -> None:
    rows = looked(dead_count=2, slots=[2, 2, 4])
    assert (rows.jobs_count, rows.partitions) == (3, [2, 2, 4])
    assert looked(dead_count=0).jobs_count == 1


def test_no_job_waits_for_an_executor(looked: Looked) -> None:
    assert looked(dead_count=5, slots=[0]).jobs_count == 0
    assert looked(dead_count=5, slots=[2, 2, 0]).jobs_count == 2


def test_the_jobs_come_to_an_end(looked: Looked) -> None:
    assert looked(dead_count=JOBS_COUNT_MAX + 1).jobs_count == JOBS_COUNT_MAX
    assert looked(dead_count=5, stops_after=2).jobs_count == 2

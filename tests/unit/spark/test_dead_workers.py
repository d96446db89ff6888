"""How Spark is made to find its dead workers, with a made-up session."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

import oncelog.spark.dead_workers as dead_workers
from oncelog.spark.dead_workers import JOBS_COUNT_MAX, replace_dead_workers


class Rows:
    """A session, a range and its job at once; `dead_count` of its jobs fail."""

    def __init__(self, dead_count: int) -> None:
        self.dead_count = dead_count
        self.jobs_count = 0
        self.partitions: list[int] = []
        self.sparkContext = None

    def range(self, _first: int, _last: int, numPartitions: int) -> "Rows":  # noqa: N803
        self.partitions.append(numPartitions)
        return self

    def mapInArrow(self, *_: Any) -> "Rows":  # noqa: N802 - as in Spark
        return self

    def collect(self) -> None:
        self.jobs_count += 1
        if self.jobs_count <= self.dead_count:
            raise PySparkException("java.io.IOException: Broken pipe")


def looked(dead_count: int, *, stops_after: int = 1000) -> Rows:
    rows = Rows(dead_count)
    df: Any = SimpleNamespace(sparkSession=rows)
    replace_dead_workers(df, lambda: rows.jobs_count >= stops_after)
    return rows


@pytest.fixture(autouse=True)
def three_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_workers, "described", lambda *_: nullcontext())
    monkeypatch.setattr(dead_workers, "slots_of", lambda _context: 3)


def test_jobs_run_on_all_slots_until_one_of_them_ends() -> None:
    rows = looked(dead_count=5)
    assert (rows.jobs_count, rows.partitions) == (6, [3])
    assert looked(dead_count=0).jobs_count == 1


def test_the_jobs_come_to_an_end() -> None:
    assert looked(dead_count=JOBS_COUNT_MAX + 1).jobs_count == JOBS_COUNT_MAX
    assert looked(dead_count=5, stops_after=2).jobs_count == 2

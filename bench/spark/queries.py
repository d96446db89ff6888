"""Streaming queries as windows of work: started, watched until enough is done, stopped."""

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.stats import Figures

QUERY_TIMEOUT_S = 300
LOOK_S = 0.1


@contextmanager
def running(writer: Any, trigger: dict[str, Any]) -> Iterator[Any]:
    """A query on a checkpoint of its own, which goes with it."""
    checkpoint = Path(tempfile.mkdtemp(prefix="oncelog-bench-checkpoint-"))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def first_batches(writer: Any, count: int) -> list[Any]:
    """Progress of the second to the last of so many micro-batches, back to back.

    The first one opens connections and starts Python's workers, in either peer; it is left out.
    """
    with running(writer, {"processingTime": "0 seconds"}) as query:
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while (query.lastProgress or {"batchId": -1})["batchId"] < count - 1:
            check(query, deadline)
            time.sleep(LOOK_S)
        return batches(query)[1:count]


def all_batches(writer: Any) -> list[Any]:
    """Progress of every micro-batch of what is there."""
    with running(writer, {"availableNow": True}) as query:
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            raise RuntimeError(f"a query was not done after {QUERY_TIMEOUT_S} s")
        return batches(query)


def batches(query: Any) -> list[Any]:
    """Progress of the micro-batches that had rows, in order."""
    return [one for one in query.recentProgress if one["numInputRows"] > 0]


def check(query: Any, deadline: float) -> None:
    """Raises `RuntimeError` when a query has ended or takes too long."""
    if not query.isActive:
        raise RuntimeError(f"the query ended: {str(query.exception())[:500]}")
    if time.monotonic() > deadline:
        raise RuntimeError(f"the query did not get there in {QUERY_TIMEOUT_S} s")


def batch_ms(progress: Any) -> float:
    """All of a micro-batch: planning, Spark's two logs, the sink."""
    return float(progress["durationMs"]["triggerExecution"])


def throughput(progress: Sequence[Any]) -> Figures:
    """Rows over the time of their micro-batches."""
    rows = sum(one["numInputRows"] for one in progress)
    return {"rows/s": rows / sum(map(batch_ms, progress)) * 1000}


def each(progress: Sequence[Any]) -> Figures:
    """Median and 90th percentile of a micro-batch; Spark tells them in whole milliseconds."""
    times = sorted(map(batch_ms, progress))
    return {"p50 ms": median(times), "p90 ms": times[len(times) * 9 // 10]}


def phases(progress: Sequence[Any]) -> dict[str, float]:
    """Medians of Spark's phases of a micro-batch, in ms."""
    times: dict[str, list[float]] = defaultdict(list)
    for one in progress:
        for name, ms in one["durationMs"].items():
            times[name].append(float(ms))
    return {name: median(found) for name, found in times.items()}


def between(steps: Sequence[Mapping[str, Any]], batches: Sequence[int]) -> dict[str, float]:
    """Medians of the time from one of the sink's steps to the next, in ms, in their order."""
    times: dict[str, list[float]] = {}
    for before, after in pairwise(steps):
        if before["batch"] == after["batch"] and after["batch"] in batches:
            name = f"{before['step']} -> {after['step']}"
            times.setdefault(name, []).append(float(after["time_ms"] - before["time_ms"]))
    return {name: median(found) for name, found in times.items()}

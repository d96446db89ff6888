"""Adds the sink's metrics of a query's last micro-batch to Spark's progress.

A `foreachBatch` sink cannot add to `StreamingQueryProgress`: Spark gives such a sink the name
``ForeachBatchSink``, -1 output rows and no metrics, and Python can change none of them. So
`last_progress` returns Spark's own dictionary with one more entry, ``oncelog``.

Pure, except that it reads the runs of this process.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from oncelog.spark.offsets_log import kafka_offsets
from oncelog.spark.query import run_of

__all__ = ["describe_batch", "lag_of", "last_progress"]

_OUTCOMES: Final = {"txn_ended": "committed", "drained": "drained", "failed": "failed"}
_PHASES: Final = {"after_init": "begin", "tasks_done": "write", "txn_ended": "commit"}
"""The step that ends a phase. The next one begins there."""


def last_progress(query: Any) -> dict[str, Any] | None:
    """Return ``query.lastProgress``, with the exactly-once sink's metrics under ``oncelog``.

    - ``outcome``: ``committed``, ``drained`` (it was committed before a crash; computed, not
      written), ``failed`` or ``running``
    - ``numOutputRows`` and ``partitions`` written; ``attempts`` of the write stage
    - ``transaction``: ``producerId`` and ``producerEpoch`` (in PostgreSQL the application's epoch
      and the number of the attempt)
    - ``durationMs``: ``begin`` (a new epoch), ``write`` (the write stage), ``commit`` (offsets,
      marker, end of the transaction)
    - ``lag``: records that were in the sources and not in this batch, None if no source tells

    None until the first batch has ended. Without the entry where this process does not run the
    query's sink.
    """
    progress = query.lastProgress
    if progress is None:
        return None
    run = run_of(str(query.runId))
    if run is None:
        return dict(progress)
    steps = run.progress.steps_of(int(progress["batchId"]))
    ours = describe_batch(steps) | {"lag": lag_of(progress["sources"])}
    return {**progress, "oncelog": ours}


def describe_batch(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe the steps of one micro-batch (`oncelog.spark.progress`)."""
    last: dict[str, Mapping[str, Any]] = {step["step"]: step for step in steps}
    outcome = _OUTCOMES.get(steps[-1]["step"], "running") if steps else "running"
    written = last.get("tasks_done", {}) if outcome == "committed" else {}
    begun = last.get("after_init", {})
    return {
        "outcome": outcome,
        "numOutputRows": written.get("records", 0),
        "partitions": written.get("partitions", 0),
        "attempts": sum(step["step"] == "after_init" for step in steps),
        "transaction": {
            "producerId": begun.get("producer"),
            "producerEpoch": begun.get("epoch"),
        },
        "durationMs": _durations_ms(steps),
    }


def _durations_ms(steps: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the durations of the last attempt."""
    durations: dict[str, int] = {}
    since_ms = 0
    for step in steps:
        name = _PHASES.get(step["step"])
        if name is not None:
            durations[name] = max(step["time_ms"] - since_ms, 0)
        if step["step"] in ("wal_written", "failed") or name is not None:
            since_ms = step["time_ms"]
    return durations


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records between the end of the batch and the newest that the sources knew of."""
    lags = [_lag_of_one(source) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag_of_one(source: Mapping[str, Any]) -> int | None:
    latest = kafka_offsets([_text(source.get("latestOffset"))])
    reached = kafka_offsets([_text(source.get("endOffset"))])
    if not latest or not reached:
        return None
    return sum(max(latest[tp] - reached.get(tp, 0), 0) for tp in latest)


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)

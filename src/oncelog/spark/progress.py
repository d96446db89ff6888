"""Records the steps of a micro-batch.

One JSON line is written before and after each step that a crash can interrupt, so that a test that
kills at a random moment can determine afterwards which row of the crash table applied
(`crash_row`). The lines survive SIGKILL because they are in the kernel when `write` returns. No
guarantee depends on them.
"""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

__all__ = ["STEPS", "CrashRow", "ProgressLog", "crash_row", "read_progress"]

STEPS: Final = (
    "wal_written",
    "after_init",
    "mid_task",
    "tasks_done",
    "offsets_committed",
    "ending",
    "txn_ended",
)
"""The steps of a batch that is written, in their order."""

RECENT_STEPS_COUNT: Final = 1000
"""Steps of the last micro-batches that a process remembers, seven or so of each."""


class CrashRow(Enum):
    """The rows of the crash table: the steps of a batch at which a process can be killed."""

    BETWEEN_BATCHES = "between batches"
    WAL_WRITTEN = "offsets logged, before InitProducerId"
    AFTER_INIT = "after InitProducerId, before a task wrote"
    MID_TASK = "inside the write stage"
    TASKS_DONE = "tasks done, before TxnOffsetCommit"
    OFFSETS_COMMITTED = "offsets in the transaction, before EndTxn"
    ENDING = "EndTxn sent, its answer not seen"
    TXN_ENDED = "after EndTxn, before Spark's commit log"


_ROW_OF_STEP: Final = {
    "wal_written": CrashRow.WAL_WRITTEN,
    "after_init": CrashRow.AFTER_INIT,
    "mid_task": CrashRow.MID_TASK,
    "tasks_done": CrashRow.TASKS_DONE,
    "offsets_committed": CrashRow.OFFSETS_COMMITTED,
    "ending": CrashRow.ENDING,
    "txn_ended": CrashRow.TXN_ENDED,
    "drain": CrashRow.TXN_ENDED,
    "drained": CrashRow.TXN_ENDED,
}


class ProgressLog:
    """Appends steps to the file `path`, and remembers the last ones; without a path only that.

    Several processes may append to one file (O_APPEND, one write per line).
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT_STEPS_COUNT)

    def step(self, name: str, batch_id: int, **details: object) -> None:
        """Write one line: the step, the batch, the wall time in ms, and the given fields."""
        line = {"step": name, "batch": batch_id, "time_ms": time.time_ns() // 1_000_000, **details}
        self._recent.append(line)
        if self.path is None:
            return
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def steps_of(self, batch_id: int) -> list[dict[str, Any]]:
        """Steps of one of the last batches, as far as this process took them."""
        return [step for step in list(self._recent) if step["batch"] == batch_id]


def read_progress(path: str) -> list[dict[str, Any]]:
    """Return all steps written so far. A line cut by a full disk ends the list."""
    steps: list[dict[str, Any]] = []
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return steps
    for line in text.splitlines():
        try:
            steps.append(json.loads(line))
        except ValueError:
            break
    return steps


def crash_row(steps: Iterable[Mapping[str, Any]], checkpoint: str | None = None) -> CrashRow:
    """Return the row of the crash table for a process with these last steps.

    With the checkpoint's folder (a local path), Spark's own two logs distinguish the ends of a
    batch, which the sink cannot see.
    """
    last = next(iter(reversed(list(steps))), None)
    row = (
        CrashRow.BETWEEN_BATCHES
        if last is None
        else _ROW_OF_STEP.get(last["step"], CrashRow.AFTER_INIT)
    )
    if checkpoint is None:
        return row
    if last is not None and not (Path(checkpoint) / "commits" / str(last["batch"])).exists():
        return row
    following = 0 if last is None else last["batch"] + 1
    logged = (Path(checkpoint) / "offsets" / str(following)).exists()
    return CrashRow.WAL_WRITTEN if logged else CrashRow.BETWEEN_BATCHES

"""Completes Spark's commit log after a crash between EndTxn and ``commits/N``.

In between, the output of batch N is visible, but Spark would run the batch again: the sink drops
the rows then, but the state of the second run replaces that of the first, and where operators are
not deterministic the two differ. So before a query starts, and if the marker says that batch N is
committed, ``commits/N`` is written as Spark would have written it. Spark continues with batch N +
1, on the state of the run whose output is visible: its state stores committed version N + 1 in the
tasks of the write stage, before the transaction ended.

The entry needs the watermark after batch N, which the marker contains. Only entries of format v1
can be written: those of `STATE_FORMAT` 2 contain ids of state checkpoints, which are lost. With
format 2, or without a watermark in the marker, the batch is drained instead
(`oncelog.spark.batch_protocol`).
"""

import json
from collections.abc import Callable, Collection
from functools import reduce
from typing import Any, Final, Protocol

from oncelog.spark.marker import BatchIdentity, Marker, sources_hash
from oncelog.spark.offsets_log import parse
from oncelog.spark.versions import checkpointing_package

__all__ = [
    "Checkpoint",
    "complete_before_start",
    "complete_commit_log",
    "text_of",
    "watermark_after",
]

VERSION: Final = "v1"
STATE_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class Checkpoint(Protocol):
    """The files of a query's checkpoint, named by their paths in it."""

    def last_entry(self, log: str) -> int:
        """Return the number of the last file in a folder, -1 if there is none."""

    def read(self, name: str) -> str:
        """The text of a file."""

    def create(self, name: str, text: str) -> None:
        """Write a file that is not there yet, whole or not at all."""


def complete_before_start(
    spark: Any, location: str, committed: Callable[[], Marker | None]
) -> int | None:
    """`complete_commit_log` for a query that is about to start in this session."""
    if str(spark.conf.get(STATE_FORMAT, "1")) != "1":
        return None
    running = {str(query.id) for query in spark.streams.active}
    return complete_commit_log(_SparkCheckpoint(spark, location), committed, running)


def complete_commit_log(
    checkpoint: Checkpoint, committed: Callable[[], Marker | None], running: Collection[str] = ()
) -> int | None:
    """Write ``commits/N`` if batch N lacks nothing else, and return N.

    `committed` fences other drivers and returns the marker; it is called only when an entry is
    missing, and not for the queries that are `running`: Spark will refuse to start them twice. A
    checkpoint in any other state is left to the checks of the first batch.
    """
    batch_id = checkpoint.last_entry("offsets")
    if batch_id < 0 or batch_id != checkpoint.last_entry("commits") + 1:
        return None
    if batch_id > 0 and not checkpoint.read(f"commits/{batch_id - 1}").startswith(f"{VERSION}\n"):
        return None
    query_id = json.loads(checkpoint.read("metadata"))["id"]
    if query_id in running:
        return None
    lines = parse(batch_id, checkpoint.read(f"offsets/{batch_id}")).source_lines
    marker = committed()
    if marker is None or marker.watermark_ms is None:
        return None
    if marker.batch != BatchIdentity(query_id, batch_id, sources_hash(lines)):
        return None
    entry = json.dumps({"nextBatchWatermarkMs": marker.watermark_ms}, separators=(",", ":"))
    checkpoint.create(f"commits/{batch_id}", f"{VERSION}\n{entry}")
    return batch_id


def watermark_after(execution: Any) -> int:
    """Return the watermark that Spark will write to the commit log when the current batch ends.

    `execution` is the query's MicroBatchExecution, after all tasks of the batch. Spark asks its
    tracker again when the batch has ended, and gets the same answer.
    """
    tracker = execution.watermarkTracker()
    tracker.updateWatermark(execution.lastExecution().executedPlan())
    return int(tracker.currentWatermark())


def text_of(jvm: Any, stream: Any) -> str:
    """Return all text of an input stream of the JVM, and close it."""
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


class _SparkCheckpoint:
    """A checkpoint through Spark's own file manager: on any file system, and atomically."""

    def __init__(self, spark: Any, location: str) -> None:
        context = spark.sparkContext
        jvm, configuration = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001 - Hadoop's file systems are reached through the JVM only
        self._path_class = jvm.org.apache.hadoop.fs.Path
        self._jvm = jvm
        root = self._path_class(location)
        self._root = str(root.getFileSystem(configuration).makeQualified(root).toString())
        manager = reduce(getattr, checkpointing_package().split("."), jvm).CheckpointFileManager
        self._manager = manager.create(self._path_class(self._root), configuration)

    def last_entry(self, log: str) -> int:
        """Return the number of the last file in a folder, -1 if there is none."""
        folder = self._path(log)
        if not self._manager.exists(folder):
            return -1
        names = (str(status.getPath().getName()) for status in self._manager.list(folder))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def read(self, name: str) -> str:
        """The text of a file."""
        return text_of(self._jvm, self._manager.open(self._path(name)))

    def create(self, name: str, text: str) -> None:
        """Write a file that is not there yet, whole or not at all."""
        stream = self._manager.createAtomic(self._path(name), False)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _path(self, name: str) -> Any:
        return self._path_class(f"{self._root}/{name}")

"""Lets a crash point strike a query from outside: the parties of its sink are wrapped.

The sink knows nothing of it. Its driver is struck right after it has noted a step, the writer of
small batches and the tasks of a write stage once the cluster has all of their records, before Spark
hears of them. Tasks are pickled to the workers, which find this module by their ``PYTHONPATH``.

``python -m tests.spark.striking POINT:BATCH SCRIPT ARGUMENT...`` runs a script of a user, and ends
it there; without a point it only runs it.
"""

import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pyspark import TaskContext

import oncelog.spark
from oncelog.spark.progress import STEPS, ProgressLog

__all__ = ["MID_TASK", "CrashPoint", "Stall", "StruckTask", "strike", "strike_steps", "struck"]

MID_TASK = "mid_task"
TASKS = ("_share_task", "_write_task", "_copy_task")
"""The methods by which a micro-batch makes its tasks that write."""
STALL_S = 300
"""Longer than any test waits."""

WriterT = TypeVar("WriterT")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A step of a batch, after which it kills; None means the first batch that reaches it."""

    name: str
    batch_id: int | None = None
    pids: tuple[int, ...] = ()
    """Ids of the processes to kill, in this order, before the process that reaches the point."""

    def __post_init__(self) -> None:
        if self.name not in STEPS:
            raise ValueError(f"crash point {self.name!r} is unknown; known are {STEPS}")

    @classmethod
    def parse(cls, text: str) -> "CrashPoint":
        """From ``name:batch``."""
        name, _, batch = text.partition(":")
        return cls(name, int(batch) if batch else None)

    def is_at(self, name: str, batch_id: int) -> bool:
        """Whether this is the crash point that is set."""
        return name == self.name and self.batch_id in (None, batch_id)

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        """Send SIGKILL to these processes, then to this one, without any cleanup."""
        for pid in (*self.pids, os.getpid()):
            try:
                send(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@dataclass(frozen=True, slots=True)
class Stall(CrashPoint):
    """Kills nothing: a write task in an executor makes a file, and goes on for minutes."""

    begun: str = ""

    def is_at(self, name: str, batch_id: int) -> bool:
        return TaskContext.get() is not None and CrashPoint.is_at(self, name, batch_id)

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        Path(self.begun).touch()
        time.sleep(STALL_S)


def strike(point: Any, name: str, batch_id: int) -> None:
    """Have the crash point kill, if this is it."""
    if point.is_at(name, batch_id):
        point.kill()


def strike_steps(progress: ProgressLog, point: Any) -> ProgressLog:
    """Have the driver that notes its steps there struck after them."""
    note = progress.step

    def step(name: str, batch_id: int, **details: object) -> None:
        note(name, batch_id, **details)
        strike(point, name, batch_id)

    progress.step = step  # type: ignore[method-assign]
    return progress


@dataclass(frozen=True, slots=True)
class StruckTask:
    """In the place of a task, which is struck between its last acknowledgement and its report."""

    task: Callable[[Iterable[Any]], Iterator[Any]]
    point: Any
    batch_id: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for reports in self.task(batches):
            strike(self.point, MID_TASK, self.batch_id)
            yield reports


def struck(writer: WriterT, point: CrashPoint) -> WriterT:
    """Return the same writer of `exactly_once` or `exactly_once_jdbc`, whose queries are struck."""
    sink: Any = writer._sink  # type: ignore[attr-defined]
    start, make_batch = sink._start, sink._batch

    def started(query: Any, context: Any) -> Any:
        run = start(query, context)
        aimed = aimed_at(point, context)
        strike_steps(run.progress, aimed)
        if hasattr(run, "direct"):
            run.direct.write = _then(run.direct.write, aimed)
        return run

    def batch_of(run: Any, df: Any, batch_id: int) -> Any:
        batch = make_batch(run, df, batch_id)
        aimed = aimed_at(point, run.context)
        makers = [name for name in TASKS if hasattr(batch, name)]
        assert makers, f"{type(batch).__name__} makes its tasks in another way"
        for name in makers:
            setattr(batch, name, _making(getattr(batch, name), aimed, batch.batch_id))
        return batch

    sink._start, sink._batch = started, batch_of
    return writer


def aimed_at(point: CrashPoint, context: Any) -> CrashPoint:
    """The crash point that also kills this driver's JVM and process, from wherever it strikes."""
    process = getattr(context._gateway, "proc", None)
    return replace(point, pids=(os.getpid(),) if process is None else (process.pid, os.getpid()))


def _then(write: Callable[..., Any], point: CrashPoint) -> Callable[..., Any]:
    def struck_write(identity: Any, batch_id: int, *others: Any) -> Any:
        reports = write(identity, batch_id, *others)
        strike(point, MID_TASK, batch_id)
        return reports

    return struck_write


def _making(
    make: Callable[..., Any], point: CrashPoint, batch_id: int
) -> Callable[..., StruckTask]:
    return lambda *given: StruckTask(make(*given), point, batch_id)


def main() -> None:
    text, script, *arguments = sys.argv[1:]
    if text:
        point, sink = CrashPoint.parse(text), oncelog.spark.exactly_once_jdbc

        def struck_sink(*rows: Any, **options: Any) -> Any:
            return struck(sink(*rows, **options), point)

        oncelog.spark.exactly_once_jdbc = struck_sink
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    # The class of this name that workers unpickle is that of the module, not of the script.
    from tests.spark import striking

    striking.main()

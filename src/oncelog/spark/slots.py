"""Counts the slots of the cluster, and reports a write stage that waits for some.

Spark starts the tasks of a barrier stage together, as soon as so many slots are free at once. Its
check before the stage counts all slots, those too that other jobs hold, and it says nothing while
the stage waits.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError

__all__ = ["slots_of", "waiting_reported"]

WAITED_S: Final = 5.0
"""After so long without a started task a stage is looked at, and after each such time again."""

REPEATED_COUNT: Final = 12
"""A stage that still waits is reported again after so many looks."""

log = logging.getLogger("oncelog.spark")


def slots_of(context: Any, *, least: int = 1) -> int:
    """Return the count of tasks that the cluster can run at the same time, or `least`.

    Slots in use count too: a barrier stage of as many tasks waits until they are free. One with
    more tasks would wait for executors that may never start. There are none while a cluster has no
    executor.
    """
    java = context._jsc.sc()  # noqa: SLF001 - no public call counts the slots
    try:
        profile = java.resourceProfileManager().defaultResourceProfile()
        return max(int(java.maxNumConcurrentTasks(profile)), least)
    except Py4JError:
        return max(int(context.defaultParallelism), least)


@contextmanager
def waiting_reported(context: Any, tag: str, *, batch_id: int, task_count: int) -> Iterator[None]:
    """Warn while the last stage of the job with this tag waits for slots that others hold."""
    has_ended = threading.Event()

    def look() -> None:
        waiting_count = 0
        while not has_ended.wait(WAITED_S):
            try:
                held_count = _held_count(context, tag)
                slots_count = slots_of(context)
            except (Py4JError, OSError):
                # The JVM ends, or Spark's status is not there; the stage says why it fails.
                return
            if held_count is None:
                continue
            if waiting_count % REPEATED_COUNT == 0:
                log.warning(
                    "batch %d: the write stage waits for %d slots at once, and other jobs hold %d "
                    "of %d; it starts when they are free, and max_tasks makes it need fewer",
                    batch_id,
                    task_count,
                    held_count,
                    slots_count,
                )
            waiting_count += 1

    threading.Thread(target=look, name="oncelog-slots", daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()


def _held_count(context: Any, tag: str) -> int | None:
    """Return the count of slots that other jobs hold, None unless the job's last stage waits."""
    tracker = context.statusTracker()
    numbers = context._jsc.sc().statusTracker().getJobIdsForTag(tag)  # noqa: SLF001 - the Python tracker cannot ask by tag
    jobs = [tracker.getJobInfo(number) for number in numbers]
    own = {number for job in jobs if job is not None for number in job.stageIds}
    active = {number: tracker.getStageInfo(number) for number in tracker.getActiveStageIds()}
    last = active.get(max(own, default=-1))
    if last is None or last.numActiveTasks or last.numCompletedTasks:
        return None
    others = (stage for number, stage in active.items() if number not in own)
    return sum(int(stage.numActiveTasks) for stage in others if stage is not None)

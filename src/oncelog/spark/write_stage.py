"""Prepares and checks the Spark job of the write stage.

Casts its columns, counts its partitions, explains its failures, and checks that each
stage had one attempt.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType

from oncelog.spark.checks import HEADERS_DDL
from oncelog.spark.errors import (
    DataLossError,
    PipelineError,
    TooLargeError,
    UnknownTargetError,
    UsageError,
    WriteStageError,
)

MESSAGE_LENGTH_MAX: Final = 800
"""Most characters of a failed job's cause in an error message."""

STATUS_TIMEOUT_S: Final = 60.0
"""Spark's status shows within this time that a job has ended, or the attempt counts as failed."""

STATUS_INTERVAL_S: Final = 0.002

ROWS_SIZE: Final = 1024 * 1024
"""Bytes of rows that go to a worker together. It writes and reads what its caches still hold."""

STAGE_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ROWS_SIZE),
}

_CAUSE: Final = re.compile(
    r"^(?:(?:: |Caused by: )(?=\w+\.)"
    r"|(?=[\w.$]*(?:Error|Exception|Violation|Exit|Interrupt)(?::|$)))([\w.$]+(?:: .+)?)$",
    re.MULTILINE,
)
"""Matches a line that names an exception: the last of a Python traceback, or the JVM's. In the
JVM's lines any class is one: not all names end alike (`BarrierJobSlotsNumberCheckFailed`)."""

_TRACEBACK: Final = "Traceback (most recent call last)"

_NOT_RETRIED: Final = {
    error.__name__: error for error in (UsageError, UnknownTargetError, DataLossError)
}
_OURS: Final = re.compile(rf"\b({'|'.join((*_NOT_RETRIED, TooLargeError.__name__))}): (.+)")
_TOO_LARGE: Final = re.compile(r"topic '(.+)' refuses a record batch of (\d+) bytes with (\d+)")


def record_columns(df: DataFrame, topic: str | None) -> dict[str, str]:
    """Return the columns that `oncelog.spark.encoder` reads, as expressions of its types."""
    types = {field.name: field.dataType for field in df.schema.fields}
    columns: dict[str, str] = {
        name: name if types[name] == BinaryType() else f"cast({name} as binary)"
        for name in ("value", "key")
        if name in types
    }
    if topic is None:
        columns["topic"] = "topic"
    if "partition" in types:
        columns["partition"] = "partition"
    if "headers" in types:
        columns["headers"] = f"cast(headers as {HEADERS_DDL})"
    if "timestamp" in types:
        columns["timestamp_us"] = "unix_micros(timestamp)"
    return columns


def with_columns(df: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return the rows with these columns, in any order. To plan nothing saves milliseconds."""
    names = df.columns
    if len(names) == len(columns) and dict(columns) == {name: name for name in names}:
        return df
    return df.selectExpr(*(f"{expression} as {name}" for name, expression in columns.items()))


def partition_count(df: DataFrame) -> int | None:
    """Return the partition count of the DataFrame, None if it is not a stream's computed plan."""
    try:
        return int(df._jdf.queryExecution().analyzed().rdd().getNumPartitions())  # noqa: SLF001 - the plan is in the JVM only
    except Py4JError:
        return None


@contextmanager
def stage_settings(session: Any) -> Iterator[None]:
    """Set what the job of a write stage needs, and restore it.

    Adaptive execution would run the job's two stages as two jobs. Spark hands a task rows by the
    thousand, and a thousand blobs are more than a task's whole share: they come by size, so that
    the first are sent while others are read.
    """
    before = {name: session.conf.get(name, None) for name in STAGE_SETTINGS}
    for name, value in STAGE_SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def tagged(context: Any, tag: str, stage: DataFrame) -> list[Any]:
    """Run the stage's job under its own tag."""
    with job_tag(context, tag):
        return stage.collect()


@contextmanager
def job_tag(context: Any, tag: str) -> Iterator[None]:
    """Run jobs under a tag. The job group is the query's and must remain: `stop` cancels by it."""
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def check_one_attempt(context: Any, tag: str, sends: bool = True) -> None:
    """Raise `WriteStageError` unless every stage of the job with this tag had one attempt.

    A stage gets a second attempt when files of the shuffle that it reads were lost. Spark computes
    the lost files again, and unless the query is deterministic they hold other rows: tasks that
    ended before have read some of these, and others are read by no task. Of a stage that `sends`,
    no task may have failed either; its tasks check that too.
    """
    tracker = context.statusTracker()
    for job in _ended_jobs(context, tag):
        for number in job.stageIds:
            stage = tracker.getStageInfo(number)
            if stage is None:
                raise WriteStageError(
                    f"Spark forgot how often stage {number} ran (spark.ui.retainedStages)"
                )
            failed_count = stage.numFailedTasks if sends and number == max(job.stageIds) else 0
            if stage.currentAttemptId > 0 or failed_count > 0:
                raise WriteStageError(
                    f"stage {number} was attempted {stage.currentAttemptId + 1} times, with "
                    f"{stage.numFailedTasks} failed tasks"
                )


def _ended_jobs(context: Any, tag: str) -> list[Any]:
    """Return the jobs with this tag, once Spark's status says that they have ended.

    The status arrives with a delay, but in order: a job's end after all attempts of its stages.
    Rows that Spark knows without a job have none.
    """
    java = context._jsc.sc()  # noqa: SLF001 - the Python tracker cannot ask by tag
    tracker, deadline_s = context.statusTracker(), time.monotonic() + STATUS_TIMEOUT_S
    while True:
        numbers = list(java.statusTracker().getJobIdsForTag(tag))
        if not numbers and _is_delivered(java):
            numbers = list(java.statusTracker().getJobIdsForTag(tag))
            if not numbers:
                return []
        jobs = [tracker.getJobInfo(number) for number in numbers]
        if jobs and all(job is not None and job.status != "RUNNING" for job in jobs):
            return jobs
        if time.monotonic() > deadline_s:
            raise WriteStageError(
                f"Spark did not report within {STATUS_TIMEOUT_S:.0f} s how often the stages of the "
                f"batch ran"
            )
        time.sleep(STATUS_INTERVAL_S)


def _is_delivered(java: Any) -> bool:
    """Whether all events of Spark's scheduler have reached its status."""
    try:
        java.listenerBus().waitUntilEmpty(int(STATUS_INTERVAL_S * 1000))
    except Py4JError:
        return False
    return True


def failure_of(error: Exception) -> PipelineError:
    """Return the error for a failed job, in one sentence.

    It is a user's mistake or lost data, which no retry fixes, or else a `WriteStageError`.
    """
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None and ours[1] in _NOT_RETRIED:
        return _NOT_RETRIED[ours[1]](_shortened(ours[2]))
    too_large = _TOO_LARGE.search(text) if ours is not None else None
    if too_large is not None:
        return TooLargeError(too_large[1], int(too_large[2]), int(too_large[3]))
    return WriteStageError(f"the write stage failed: {_shortened(_cause(text))}")


def _cause(text: str) -> str:
    """Return the most useful line: the end of a Python traceback, or the JVM's innermost cause."""
    causes = [cause for cause in _CAUSE.findall(text) if "An error occurred while" not in cause]
    if not causes:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[0] if lines else "no reason given"
    if _TRACEBACK in text:
        in_python = _CAUSE.findall(text[text.rindex(_TRACEBACK) :])
        return str(in_python[0] if in_python else causes[-1])
    return str(causes[-1])


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MESSAGE_LENGTH_MAX else f"{text[:MESSAGE_LENGTH_MAX]}..."

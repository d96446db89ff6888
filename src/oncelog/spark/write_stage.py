"""The write stage as Spark sees it.

Its columns and target partitions, how many tasks may run, what its failures mean, and the check
that it ran once.
"""

import re
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import TimestampType

from oncelog.spark.checks import HEADERS_DDL
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.tasks import TARGET_COLUMN, Targets

_CAUSE: Final = re.compile(r"^([\w.]*(?:Error|Exception|Violation): .+)$", re.MULTILINE)
"""The last line of a Python traceback within Spark's message."""

_USAGE_ERROR: Final = re.compile(r"UsageError: (.+)")


def with_targets(df: DataFrame, targets: Targets, topic: str | None) -> DataFrame:
    """The columns that go into records, and the number of each row's target partition."""
    names = df.columns
    value = F.col("value").cast("binary")
    key = F.col("key").cast("binary") if "key" in names else None
    spread = F.xxhash64(value)
    if key is None and "partition" not in names and topic is not None:
        target = F.pmod(spread, F.lit(targets.total)).cast("int")
    else:
        target = _target_function(targets, topic is None)(
            F.lit(None).cast("string") if topic is not None else F.col("topic"),
            F.col("partition") if "partition" in names else F.lit(None).cast("int"),
            F.lit(None).cast("binary") if key is None else key,
            spread,
        )
    columns = [value.alias("value"), target.alias(TARGET_COLUMN)]
    if key is not None:
        columns.append(key.alias("key"))
    if "headers" in names:
        columns.append(F.col("headers").cast(HEADERS_DDL).alias("headers"))
    if "timestamp" in names and isinstance(df.schema["timestamp"].dataType, TimestampType):
        columns.append(F.col("timestamp"))
    return df.select(*columns)


def _target_function(targets: Targets, has_topic: bool) -> Any:
    import pyarrow as pa

    def choose(topic: pa.Array, partition: pa.Array, key: pa.Array, spread: pa.Array) -> pa.Array:
        return targets.choose(topic if has_topic else None, partition, key, spread)

    # PySpark's overloads for this function name a type that a plain function never has.
    make: Any = arrow_udf
    return make(choose, "int")


def tagged(context: Any, tag: str, stage: DataFrame) -> list[Any]:
    """Run the stage's job under a tag of its own.

    The job group is the query's and must stay: it is how `stop` cancels.
    """
    context.addJobTag(tag)
    try:
        return stage.collect()
    finally:
        context.removeJobTag(tag)


def check_one_attempt(context: Any, tag: str) -> None:
    """The second look at what the tasks already refuse.

    The write stage ran once and none of its tasks failed.

    Spark's status arrives with a delay, so what is not known yet is not held against the stage.
    """
    tracker = context._jsc.sc().statusTracker()  # noqa: SLF001 - the Python tracker cannot ask by tag
    jobs = list(tracker.getJobIdsForTag(tag))
    if not jobs:
        return
    job = context.statusTracker().getJobInfo(max(jobs))
    stage = (
        context.statusTracker().getStageInfo(max(job.stageIds)) if job and job.stageIds else None
    )
    if stage is not None and (stage.currentAttemptId > 0 or stage.numFailedTasks > 0):
        raise WriteStageError(
            f"the write stage was attempted {stage.currentAttemptId + 1} times, with "
            f"{stage.numFailedTasks} failed tasks"
        )


def failure_of(error: Exception) -> Exception:
    """What a failed job means: a mistake of the user's, which no retry mends, or a failed stage."""
    match = _USAGE_ERROR.search(str(error))
    if match is not None:
        return UsageError(match[1].strip())
    causes = _CAUSE.findall(str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = causes[-1] if causes else (lines or [type(error).__name__])[0]
    return WriteStageError(f"the write stage failed: {cause}")


def slots_of(context: Any) -> int:
    """Tasks that can run at the same time.

    A barrier stage with more tasks than that would wait for ever.
    """
    java = context._jsc.sc()  # noqa: SLF001 - no public call counts the slots
    try:
        profile = java.resourceProfileManager().defaultResourceProfile()
        return max(int(java.maxNumConcurrentTasks(profile)), 1)
    except Py4JError:
        return max(int(context.defaultParallelism), 1)

"""Exactly-once pipelines on PySpark.

A streaming source, and a sink that makes each micro-batch one Kafka transaction (INV-10).

    from oncelog.spark import OncelogSource, exactly_once, session

    spark = session("my-job").getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "flights"}
    flights = spark.readStream.format("oncelog").options(**options).load()
    late = flights.where(...)
    writer = exactly_once(late, bootstrap_servers=servers, application_id="my-job", topic="late")
    query = writer.option("checkpointLocation", path).start()

Spark's own Kafka connector works as the source too, and is the one to use before PySpark 4.2.
Needs the extra ``oncelog[spark]``.
"""

import oncelog.spark.needed  # noqa: F401 - before everything that needs the extra
from oncelog.spark.batch_progress import last_progress
from oncelog.spark.errors import (
    DataLossError,
    DrainError,
    FailClosedError,
    JavaNotFoundError,
    PipelineError,
    UnsupportedModeError,
    UsageError,
    WriteStageError,
)
from oncelog.spark.java import find_java_home, prepare_environment, session
from oncelog.spark.jdbc import exactly_once_jdbc
from oncelog.spark.once import write_once
from oncelog.spark.progress import CrashRow, crash_row, read_progress
from oncelog.spark.sink import exactly_once
from oncelog.spark.versions import has_admission_control
from oncelog.spark.watch import watch

if has_admission_control():
    from oncelog.spark.source import OncelogSource
else:
    from oncelog.spark.source_refused import RefusedSource as OncelogSource  # type: ignore[assignment,unused-ignore]

__all__ = [
    "CrashRow",
    "DataLossError",
    "DrainError",
    "FailClosedError",
    "JavaNotFoundError",
    "OncelogSource",
    "PipelineError",
    "UnsupportedModeError",
    "UsageError",
    "WriteStageError",
    "crash_row",
    "exactly_once",
    "exactly_once_jdbc",
    "find_java_home",
    "last_progress",
    "prepare_environment",
    "read_progress",
    "session",
    "watch",
    "write_once",
]

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

The public names are imported when they are first used, so that a new worker of Spark imports what
its task needs, and not the whole sink and source.

Spark's own Kafka connector works as the source too, and is the one to use before PySpark 4.2.
Needs the extra ``oncelog[spark]``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import oncelog.spark.needed  # noqa: F401 - before everything that needs the extra
from oncelog.spark.versions import has_admission_control

if TYPE_CHECKING:
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
    from oncelog.spark.source import OncelogSource
    from oncelog.spark.watching import watch

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

_PLACES = {
    "CrashRow": "progress",
    "crash_row": "progress",
    "exactly_once": "sink",
    "exactly_once_jdbc": "jdbc",
    "find_java_home": "java",
    "last_progress": "batch_progress",
    "prepare_environment": "java",
    "read_progress": "progress",
    "session": "java",
    "watch": "watching",
    "write_once": "once",
}
"""The modules of what is not an error."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'oncelog.spark' has no attribute {name!r}")
    value: object
    if name == "OncelogSource":
        value = _source()
    else:
        value = getattr(import_module(f"oncelog.spark.{_PLACES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _source() -> object:
    """Return the source, or what says that this PySpark is too old for it."""
    if has_admission_control():
        return import_module("oncelog.spark.source").OncelogSource
    return import_module("oncelog.spark.source_refused").RefusedSource

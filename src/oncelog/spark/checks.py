"""Checks frames, settings and modes, and refuses unsuitable ones before the first write.

Each refusal is one sentence that names the fault and the remedy.
"""

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StringType, TimestampType

from oncelog.spark.errors import UnsupportedModeError, UsageError

__all__ = [
    "HEADERS_DDL",
    "check_columns",
    "check_configuration",
    "refuse_connect",
    "refuse_execution",
    "refuse_state",
    "state_of",
]

HEADERS_DDL: Final = "array<struct<key:string,value:binary>>"


STATEFUL: Final = {
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication",
    "Distinct": "a deduplication",
    "Except": "a difference of rows",
    "GlobalLimit": "a limit",
    "Intersect": "an intersection",
}
"""Nodes of a streaming query's plan that keep state, and what users call them.

Source: `UnsupportedOperationChecker.isStatefulOperation`, which cannot be called; distinct rows and
limits are stateful when they are planned.
"""


def refuse_connect(df: Any) -> None:
    """Refuse Spark Connect: it runs foreachBatch in another process, which is not tested."""
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedModeError(
            "Spark Connect runs foreachBatch in another process, where exactly_once is not "
            "tested; use a classic session (master=...)"
        )


def refuse_execution(execution: Any) -> None:
    """Refuse other triggers: only micro-batches have one write stage per offsets log entry."""
    name = str(execution.getClass().getSimpleName())
    trigger = str(execution.trigger().getClass().getSimpleName())
    if name != "MicroBatchExecution" or "RealTime" in trigger or "Continuous" in trigger:
        raise UnsupportedModeError(
            f"the query runs as {name} with {trigger}; exactly_once needs plain micro-batches (no "
            f"continuous, real-time or asynchronous-progress mode)"
        )


def check_configuration(df: DataFrame) -> None:
    """Refuse configs under which a task may run twice, or a barrier stage does not run."""
    configuration = df.sparkSession.sparkContext.getConf()
    if str(configuration.get("spark.speculation", "false")).lower() == "true":
        raise UnsupportedModeError(
            "spark.speculation runs tasks twice; turn it off for exactly_once"
        )


def refuse_state(df: DataFrame) -> None:
    """Refuse a query with state in the place of another one, whose state it does not have."""
    what = state_of(df)
    if what is not None:
        raise UsageError(
            f"replaces_query lets a query without state go on where another one ended; this one has"
            f" {what}, and would begin with an empty state: bring back the checkpoint of the "
            "replaced query, or begin anew under another application_id"
        )


def state_of(df: DataFrame) -> str | None:
    """Return what keeps state in a streaming DataFrame, None if nothing does."""
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark offers no public way to a plan
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        # Tables that a stream is joined with are no part of its state.
        if not node.isStreaming():
            continue
        found = node.children()
        children = [found.apply(index) for index in range(found.size())]
        name = str(node.getClass().getSimpleName())
        if "WithState" in name:
            return "a state of its own"
        if name in STATEFUL:
            return STATEFUL[name]
        if name == "Join" and all(child.isStreaming() for child in children):
            return "a join of two streams"
        nodes += children
    return None


def check_columns(df: DataFrame, topic: str | None) -> None:
    """Check the columns, as Spark's own Kafka sink does; the error names the expected type."""
    types = {column.name: column.dataType for column in df.schema.fields}
    text = (StringType, BinaryType)
    if "value" not in types:
        raise UsageError(f"the DataFrame has no column 'value'; it has {sorted(types)}")
    for name, allowed in (
        ("value", text),
        ("key", text),
        ("topic", StringType),
        ("partition", IntegerType),
        ("timestamp", TimestampType),
    ):
        if name in types and not isinstance(types[name], allowed):
            raise UsageError(
                f"column {name!r} is {types[name].simpleString()}; cast it to {_wanted(name)}"
            )
    if topic is None and "topic" not in types:
        raise UsageError("give the DataFrame a column 'topic', or pass topic=... to exactly_once")
    headers = types.get("headers")
    if headers is not None and headers.simpleString() != HEADERS_DDL:
        raise UsageError(f"column 'headers' is {headers.simpleString()}; it must be {HEADERS_DDL}")


def _wanted(name: str) -> str:
    others = {"topic": "string", "partition": "int", "timestamp": "timestamp"}
    return others.get(name, "string or binary")

"""The source that the tests read with: ours, or Spark's own where PySpark is too old for ours."""

import asyncio
import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from oncelog.client.admin import Admin
from oncelog.spark import OncelogSource
from oncelog.spark.versions import has_admission_control
from tests.support.peer.connector import connector
from tests.support.peer.kafka import PeerUnavailable

BY_SPARK = not has_admission_control()

COMMITTED = {"kafka.isolation.level": "read_committed"}
"""Spark's source reads as ours does."""


def connector_jars() -> str:
    """The jars of Spark's connector, "" where ours reads. Skips where none can be had."""
    if not BY_SPARK:
        return ""
    try:
        return ",".join(map(str, connector()))
    except PeerUnavailable as error:
        pytest.skip(str(error))


def register(spark: SparkSession) -> None:
    """Have Spark find our source, where it can."""
    if not BY_SPARK:
        spark.dataSource.register(OncelogSource)


def stream(
    spark: SparkSession, servers: str, options: dict[str, str], by_spark: bool = BY_SPARK
) -> DataFrame:
    """A stream of a topic."""
    return _loaded(spark.readStream, servers, options, by_spark)


def table(spark: SparkSession, servers: str, options: dict[str, str]) -> DataFrame:
    """What is in a topic now."""
    return _loaded(spark.read, servers, options, BY_SPARK)


def _loaded(reader: Any, servers: str, options: dict[str, str], by_spark: bool) -> DataFrame:
    given = {"kafka.bootstrap.servers": servers} | options
    if by_spark:
        if options.get("startingOffsets") == "group":
            given["startingOffsets"] = asyncio.run(_committed(servers, options))
        loaded: DataFrame = reader.format("kafka").options(**COMMITTED, **given).load()
    else:
        loaded = reader.format("oncelog").options(**given).load()
    return loaded


async def _committed(servers: str, options: dict[str, str]) -> str:
    """Return a group's offsets as Spark's source takes them: it does not read a group's itself."""
    async with Admin(servers) as admin:
        offsets = await admin.group_offsets(options["groupId"])
    topic = options["subscribe"]
    places = {str(tp.partition): at.offset for tp, at in offsets.items() if tp.topic == topic}
    return json.dumps({topic: places})

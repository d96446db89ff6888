"""Settings and modes under which a batch could be written twice are refused."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from oncelog.spark.checks import (
    check_columns,
    check_configuration,
    refuse_execution,
)
from oncelog.spark.errors import UnsupportedModeError, UsageError


def frame_with(**settings: str) -> Any:
    configuration = {name.replace("_", "."): value for name, value in settings.items()}
    context = SimpleNamespace(getConf=lambda: configuration)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_speculation_is_refused() -> None:
    with pytest.raises(UnsupportedModeError, match=r"spark\.speculation"):
        check_configuration(frame_with(spark_speculation="true"))
    check_configuration(frame_with(spark_speculation="false"))


@pytest.mark.parametrize("kind", [LongType(), TimestampNTZType()])
def test_a_timestamp_of_another_type_is_refused_rather_than_ignored(kind: DataType) -> None:
    def frame(time: DataType) -> Any:
        fields = [StructField("value", StringType()), StructField("timestamp", time)]
        return SimpleNamespace(schema=StructType(fields))

    check_columns(frame(TimestampType()), "out")
    with pytest.raises(UsageError, match=r"'timestamp' is .*; cast it to timestamp"):
        check_columns(frame(kind), "out")


class Named:
    def __init__(self, name: str, trigger: str = "") -> None:
        self.name, self._trigger = name, trigger

    def getClass(self) -> "Named":  # noqa: N802
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return self.name

    def trigger(self) -> "Named":
        return Named(self._trigger)


@pytest.mark.parametrize(
    ("execution", "trigger"),
    [
        ("AsyncProgressTrackingMicroBatchExecution", "ProcessingTimeTrigger"),
        ("ContinuousExecution", "ContinuousTrigger"),
        ("MicroBatchExecution", "RealTimeTrigger"),
    ],
)
def test_modes_without_plain_micro_batches_are_refused_by_name(
    execution: str, trigger: str
) -> None:
    with pytest.raises(UnsupportedModeError, match=execution):
        refuse_execution(Named(execution, trigger))
    refuse_execution(Named("MicroBatchExecution", "ProcessingTimeTrigger"))

"""What differs between the versions of PySpark, in one place.

The sink's protocol and its tasks are the same on all of them: the sink is a `foreachBatch`
function, which PySpark 3.5 has too. The source needs a Python data source with admission control,
which came with PySpark 4.2.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import pyspark

from oncelog.spark.errors import UnsupportedModeError

__all__ = [
    "JAVA_MAJOR_MIN",
    "checkpointing_package",
    "collected_batches",
    "has_admission_control",
    "java_major_max",
    "refuse_version",
    "source_refusal",
]

PYSPARK_MIN: Final = (3, 5)
"""The first one with job tags, by which the attempts of a job are counted, and with
`mapInArrow(barrier=True)`."""

ADMISSION_CONTROL: Final = (4, 2)
"""The first one that can limit the micro-batches of a Python data source."""

MOVED_CHECKPOINTING: Final = (4, 1)
"""The first one that has its checkpoints' classes in a package of their own."""

JAVA_MAJOR_MIN: Final = 17

JAVA_MAJOR_MAX: Final[Mapping[tuple[int, int], int]] = {(3, 5): 17, (4, 0): 21, (4, 1): 21}
"""The last long-term Java on which a Spark ran a `mapInArrow` here, where it is not the newest one.
The libraries of these raise errors on a newer one: Arrow's of 3.5 and 4.1 (`DirectByteBuffer`), and
Hadoop's of 4.0 at the start (`Subject.getSubject`)."""

STREAMING: Final = "org.apache.spark.sql.execution.streaming"


def release(version: str = pyspark.__version__) -> tuple[int, int]:
    """Return the major and the minor number of a version of PySpark, `(0, 0)` for another text."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def refuse_version(version: str = pyspark.__version__) -> None:
    """Raise `UnsupportedModeError` for a PySpark before 3.5."""
    if (0, 0) < release(version) < PYSPARK_MIN:
        raise UnsupportedModeError(
            f"PySpark {version} has no job tags and no barrier for mapInArrow; oncelog.spark needs "
            "PySpark 3.5 to 4.3: pip install 'pyspark>=3.5,<4.4'"
        )


def has_admission_control(version: str = pyspark.__version__) -> bool:
    """Whether Python data sources can limit their micro-batches."""
    return not (0, 0) < release(version) < ADMISSION_CONTROL


def source_refusal(version: str = pyspark.__version__) -> str:
    """Return why there is no `OncelogSource` on this PySpark, and what to use in its place."""
    return (
        f"PySpark {version} cannot limit the micro-batches of a Python data source, so "
        "OncelogSource needs PySpark 4.2 or 4.3; read with Spark's own Kafka connector instead, "
        "format('kafka'): exactly_once writes exactly once from it too"
    )


def java_major_max(version: str = pyspark.__version__) -> int | None:
    """Return the newest Java on which this PySpark starts, None if it starts on all of them."""
    return JAVA_MAJOR_MAX.get(release(version))


def checkpointing_package(version: str = pyspark.__version__) -> str:
    """Return the JVM's package of `CheckpointFileManager`."""
    is_old = (0, 0) < release(version) < MOVED_CHECKPOINTING
    return STREAMING if is_old else f"{STREAMING}.checkpointing"


def collected_batches(df: Any) -> list[Any]:
    """Return the rows of a DataFrame as Arrow batches, in their order."""
    if hasattr(df, "toArrow"):
        return list(df.toArrow().to_batches())
    # `toArrow` came with PySpark 4.0; `toPandas` is made of this in 3.5.
    return list(df._collect_as_arrow())  # noqa: SLF001

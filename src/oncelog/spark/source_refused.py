"""`OncelogSource` where PySpark is too old for it: refused in one sentence, not at the import.

PySpark 4.0 and 4.1 have Python data sources without admission control: ``load()`` raises the error
there. PySpark 3.5 has none, so there is no ``spark.dataSource`` to register one at: asking for it
raises the error in place of Python's, which names an attribute and no remedy.
"""

from typing import Any, Final, NoReturn

from pyspark.sql import SparkSession

from oncelog.spark.errors import UnsupportedModeError
from oncelog.spark.source_writes import SourceWrites
from oncelog.spark.versions import source_refusal

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    # PySpark 3.5.
    DataSource = object  # type: ignore[misc,assignment,unused-ignore]

__all__ = ["RefusedSource"]

REGISTRATION: Final = "dataSource"


class RefusedSource(SourceWrites, DataSource):
    """The source needs PySpark 4.2: each use of it raises `UnsupportedModeError`."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "oncelog"

    def schema(self) -> NoReturn:
        """Raise `UnsupportedModeError`. Spark calls this in ``load()``."""
        raise UnsupportedModeError(source_refusal())


class NoDataSourceError(UnsupportedModeError, AttributeError):
    """PySpark 3.5 has no Python data sources: ``hasattr(spark, "dataSource")`` stays False."""


class NoDataSources:
    """Takes the place of the attribute that PySpark 3.5 lacks."""

    def __get__(self, instance: Any, owner: Any = None) -> NoReturn:
        raise NoDataSourceError(source_refusal())


if not hasattr(SparkSession, REGISTRATION):
    setattr(SparkSession, REGISTRATION, NoDataSources())

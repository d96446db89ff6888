"""Refuses ``write.format("oncelog")`` and ``writeStream.format("oncelog")``."""

from typing import Any, NoReturn

from oncelog.spark.errors import UsageError

__all__ = ["SourceWrites"]


class SourceWrites:
    """The methods of a Python data source by which Spark would write."""

    def writer(self, schema: Any, overwrite: bool) -> NoReturn:
        """Raise `UsageError`: Spark repeats a failed task and does not report what it wrote."""
        raise UsageError(
            "write.format('oncelog') could write a row twice when a task fails: use "
            "oncelog.spark.write_once(df, ...), one transaction for all rows"
        )

    def streamWriter(self, schema: Any, overwrite: bool) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise `UsageError`, as `writer` does; such a sink also cannot read its checkpoint."""
        raise UsageError(
            "writeStream.format('oncelog') could write a row twice when a task fails: use "
            "oncelog.spark.exactly_once(df, ...)"
        )

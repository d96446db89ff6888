"""Imported first: raises an error with the command that installs what is missing or too old."""

from oncelog.runtime.installation import require_extra

require_extra("oncelog.spark", "spark", ("numpy", "pandas", "pyarrow", "pyspark"))

from oncelog.spark.versions import refuse_version  # noqa: E402 - it imports pyspark

refuse_version()

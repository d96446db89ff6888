"""Imported first: raises an error with the command that installs missing packages."""

from oncelog.runtime.installation import require_extra

require_extra("oncelog.spark", "spark", ("numpy", "pandas", "pyarrow", "pyspark"))

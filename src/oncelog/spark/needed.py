"""Imported first: raises an error with the installing command where packages are missing."""

from oncelog.runtime.installation import require_extra

require_extra("oncelog.spark", "spark", ("numpy", "pandas", "pyarrow", "pyspark"))

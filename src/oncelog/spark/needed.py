"""Imported first: says how to install the extra where its packages are missing."""

from oncelog.runtime.installation import require_extra

require_extra("oncelog.spark", "spark", ("numpy", "pandas", "pyarrow", "pyspark"))

"""Leaves out the tests of the source where PySpark is too old for it."""

from oncelog.spark.versions import has_admission_control

collect_ignore = [] if has_admission_control() else ["test_source.py", "test_source_read.py"]

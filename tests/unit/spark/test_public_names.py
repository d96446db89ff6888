"""The names of `oncelog.spark`, and what a worker of Spark has to import for its task."""

import subprocess
import sys

import pytest

import oncelog.spark
from oncelog.spark import watching
from oncelog.spark.source_refused import RefusedSource
from oncelog.spark.versions import has_admission_control

OF_THE_DRIVER = {"sink", "source", "preflight", "query", "java", "jdbc", "once", "write_stage"}


@pytest.mark.parametrize("name", oncelog.spark.__all__)
def test_each_public_name_is_there_and_told(name: str) -> None:
    assert getattr(oncelog.spark, name).__name__ in {name, RefusedSource.__name__}
    assert name in dir(oncelog.spark)


def test_a_name_that_is_a_module_too_is_the_public_one() -> None:
    assert oncelog.spark.watch is watching.watch


def test_the_source_is_the_one_that_this_pyspark_can_use() -> None:
    module = "source" if has_admission_control() else "source_refused"
    assert oncelog.spark.OncelogSource.__module__ == f"oncelog.spark.{module}"


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'oncelog\.spark' has no attribute 'sinks'"):
        oncelog.spark.sinks  # noqa: B018 - reading it is the test


@pytest.mark.parametrize("task", ["sharing", "tasks"])
def test_a_new_worker_imports_what_its_task_needs_and_not_the_drivers_part(task: str) -> None:
    """Each worker of a query imports this before its first rows."""
    code = f"import sys, oncelog.spark.{task}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("oncelog.spark.") for name in done.stdout.split()}
    assert task in loaded
    assert loaded & OF_THE_DRIVER == set()

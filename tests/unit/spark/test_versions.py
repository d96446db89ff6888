"""What each PySpark is told, and by which names it is called."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from oncelog.spark import OncelogSource
from oncelog.spark.errors import UnsupportedModeError
from oncelog.spark.source_refused import NoDataSourceError, NoDataSources, RefusedSource
from oncelog.spark.versions import (
    checkpointing_package,
    collected_batches,
    has_admission_control,
    java_major_max,
    refuse_version,
    release,
    source_refusal,
)


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4"])
def test_a_pyspark_before_3_5_is_refused_by_its_version(version: str) -> None:
    with pytest.raises(UnsupportedModeError, match=f"PySpark {version} .* 3.5 to 4.3"):
        refuse_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.3.0", "4.10.0", "5.0.0.dev0", "unknown"])
def test_later_ones_and_unknown_ones_are_taken(version: str) -> None:
    refuse_version(version)


@pytest.mark.parametrize(
    ("version", "is_there"),
    [("3.5.9", False), ("4.1.4", False), ("4.2.0", True), ("4.10.0", True), ("unknown", True)],
)
def test_the_source_needs_admission_control(version: str, is_there: bool) -> None:
    assert has_admission_control(version) is is_there


def test_the_checkpoints_classes_have_moved_with_4_1() -> None:
    assert checkpointing_package("4.0.5") == "org.apache.spark.sql.execution.streaming"
    assert (
        checkpointing_package("4.1.0") == "org.apache.spark.sql.execution.streaming.checkpointing"
    )


def test_old_versions_do_not_start_on_the_newest_java() -> None:
    assert [java_major_max(version) for version in ("3.5.9", "4.1.4", "4.2.0")] == [17, 21, None]


def test_rows_are_collected_as_arrow_with_and_without_to_arrow() -> None:
    batches = pa.table({"a": [1, 2, 3]}).to_batches(max_chunksize=2)
    new = SimpleNamespace(toArrow=lambda: pa.Table.from_batches(batches))
    old = SimpleNamespace(_collect_as_arrow=lambda: batches)
    assert collected_batches(new) == collected_batches(old) == batches


def test_the_refusal_is_one_sentence_with_the_version_and_the_remedy() -> None:
    text = source_refusal("4.1.4")
    assert text.startswith("PySpark 4.1.4 cannot limit the micro-batches")
    assert "format('kafka')" in text
    assert "\n" not in text


def test_a_refused_source_says_so_when_it_is_loaded_not_when_it_is_imported() -> None:
    with pytest.raises(UnsupportedModeError, match=r"needs PySpark 4\.2"):
        RefusedSource.__new__(RefusedSource).schema()


def test_where_there_is_nothing_to_register_at_the_attribute_says_so() -> None:
    class Session:
        dataSource = NoDataSources()  # noqa: N815 - Spark's name

    with pytest.raises(NoDataSourceError, match=r"needs PySpark 4\.2"):
        _ = Session().dataSource
    assert not hasattr(Session(), "dataSource")


@pytest.mark.skipif(has_admission_control(), reason="this PySpark has our source")
def test_this_pyspark_refuses_the_source() -> None:
    assert issubclass(OncelogSource, RefusedSource)
    assert OncelogSource.name() == "oncelog"
    assert hasattr(SparkSession, "dataSource") is (release() >= (4, 0))

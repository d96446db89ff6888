"""Our source on a PySpark that is too old for it: refused in one sentence, not at the import."""

import pytest
from pyspark.sql import SparkSession

from oncelog.spark import OncelogSource
from oncelog.spark.versions import has_admission_control, release, source_refusal

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(has_admission_control(), reason="this PySpark has our source"),
]


@pytest.mark.skipif(release() < (4, 0), reason="PySpark 3.5 has no Python data sources")
@pytest.mark.parametrize("reader", ["read", "readStream"])
def test_load_refuses_the_source_by_name(spark: SparkSession, reader: str) -> None:
    spark.dataSource.register(OncelogSource)
    loading = getattr(spark, reader).format("oncelog").option("subscribe", "in")
    with pytest.raises(Exception, match="UnsupportedModeError") as refused:
        loading.load()
    assert source_refusal() in str(refused.value)


@pytest.mark.skipif(release() >= (4, 0), reason="the source can be registered")
def test_where_nothing_can_be_registered_the_session_says_so(spark: SparkSession) -> None:
    assert not hasattr(spark, "dataSource")
    with pytest.raises(AttributeError) as refused:
        spark.dataSource.register(OncelogSource)
    assert str(refused.value) == source_refusal()

"""`write_once`, and the formats that are refused."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from oncelog.spark import OncelogSource, UsageError, write_once
from oncelog.spark.versions import release
from tests.spark.support import Job, load, read

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def rows(spark: SparkSession, job: Job) -> DataFrame:
    load(job.bootstrap_servers, job.name, 0, 0)
    return spark.range(50).selectExpr("id", "string(id) AS key", "string(id) AS value")


def write(df: DataFrame, job: Job, application_id: str = "") -> bool:
    return write_once(
        df,
        bootstrap_servers=job.bootstrap_servers,
        application_id=application_id or job.name,
        topic=f"{job.name}-out",
    )


def written(job: Job) -> list[int]:
    return sorted(int(value) for _, _, value in read(job.bootstrap_servers, f"{job.name}-out"))


def test_a_write_happens_once_per_name(rows: DataFrame, job: Job) -> None:
    assert write(rows, job)
    assert not write(rows, job)
    assert written(job) == list(range(50))
    assert write(rows, job, f"{job.name}-2")
    assert written(job) == sorted([*range(50), *range(50)])


def test_a_write_that_fails_leaves_nothing_and_may_be_tried_again(
    rows: DataFrame, job: Job
) -> None:
    broken = rows.selectExpr("key", "IF(id < 49, value, raise_error('a bad row')) AS value")
    with pytest.raises(Exception, match="a bad row") as failure:
        write(broken, job)
    assert len(str(failure.value)) < 1000
    assert written(job) == []
    assert write(rows, job)
    assert written(job) == list(range(50))


@pytest.mark.skipif(release() < (4, 0), reason="PySpark 3.5 has no Python data sources")
def test_the_formats_name_what_writes_once(spark: SparkSession, rows: DataFrame, job: Job) -> None:
    spark.dataSource.register(OncelogSource)
    source = {"kafka.bootstrap.servers": job.bootstrap_servers, "topic": f"{job.name}-out"}
    with pytest.raises(Exception, match="write_once"):
        rows.write.format("oncelog").options(**source).mode("append").save()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.selectExpr("string(value) AS value").writeStream.format("oncelog")
    query = writer.options(**source).option("checkpointLocation", str(job.checkpoint)).start()
    with pytest.raises(Exception, match="exactly_once"):
        query.awaitTermination(60)


def test_a_stream_is_refused(spark: SparkSession, rows: DataFrame, job: Job) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    stream = source.load().selectExpr("'x' AS value")
    with pytest.raises(UsageError, match="use exactly_once"):
        write(stream, job)

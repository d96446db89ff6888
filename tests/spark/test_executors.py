"""Executors of a standalone cluster die inside the write stage, and others join (INV-10).

Spark has one context per process, so these tests skip where another one runs:
``python -m pytest tests/spark/test_executors.py``.
"""

import os
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncelog.spark import OncelogSource
from oncelog.spark.direct import DRIVER_TASK
from oncelog.spark.kafka_run import has_barrier_stages
from tests.spark.cluster import Cluster
from tests.spark.crash_table import LARGE
from tests.spark.faults import Fault, FaultSequence, Victim
from tests.spark.job import builder_on
from tests.spark.support import Job, end_session, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1200)]

DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.scheduler.minRegisteredResourcesRatio": "0.0",
}
RUNS_COUNT = 3
VICTIMS = (Victim.EXECUTOR, Victim.WORKER, Victim.DAEMON, Victim.EXECUTOR)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    end_session()
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as cluster:
        yield cluster


@pytest.fixture
def on_cluster(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session on the cluster, with the settings that the test names."""
    builder = builder_on(cluster.master).config("spark.log.level", "ERROR")
    for name, value in getattr(request, "param", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(OncelogSource)
    yield spark
    spark.stop()


def job_of(query: str, bootstrap_servers: str, folder: Path) -> Job:
    return Job(bootstrap_servers, folder, f"job-{uuid.uuid4().hex[:8]}", query, LARGE)


def test_executors_lost_inside_the_write_stage_lose_and_double_nothing(
    on_cluster: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """In batches 1 to 4 an executor, a worker, all workers and an executor again die."""
    job = job_of("union", bootstrap_servers, tmp_path)
    faults = [
        Fault.at("mid_task", victim, batch, tmp_path / f"{batch}", Path(os.devnull))
        for batch, victim in enumerate(VICTIMS, 1)
    ]
    count = LARGE * (len(faults) + 2)
    job.load_orders(0, count)
    job.run_here(on_cluster, fault=FaultSequence.of(*faults))
    assert [fault for fault in faults if not Path(fault.struck).exists()] == []
    assert job.findings(count) == []
    failed = {step["batch"] for step in job.steps() if step["step"] == "failed"}
    assert failed == set(range(1, len(faults) + 1))


def test_a_worker_lost_for_good_and_one_that_joins_later_change_nothing(
    cluster: Cluster, on_cluster: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    job = job_of("counts", bootstrap_servers, tmp_path)
    job.load_orders(0, LARGE)
    job.run_here(on_cluster)
    cluster.processes[-1].kill()
    job.load_orders(LARGE, LARGE)
    job.run_here(on_cluster)
    cluster.add_worker()
    job.load_orders(2 * LARGE, LARGE)
    job.run_here(on_cluster)
    assert job.findings(3 * LARGE) == []


@pytest.mark.parametrize("on_cluster", [DYNAMIC], indirect=True)
def test_executors_that_dynamic_allocation_adds_and_takes_away_change_nothing(
    cluster: Cluster, on_cluster: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Each run begins without an executor, so its write stages wait for executors that join."""
    assert not has_barrier_stages(on_cluster.sparkContext)
    job = job_of("union", bootstrap_servers, tmp_path)
    started = [executors_of(cluster, on_cluster)]
    for run in range(RUNS_COUNT):
        job.load_orders(run * LARGE, LARGE)
        job.run_here(on_cluster)
        started.append(executors_of(cluster, on_cluster))
        wait_for_no_executor(on_cluster)
    joined = [len(after - before) for before, after in pairwise(started)]
    assert min(joined) > 0, joined
    assert job.findings(RUNS_COUNT * LARGE) == []
    writers = {step["task"] for step in job.steps() if step["step"] == "mid_task"}
    assert writers - {DRIVER_TASK}, "the driver wrote all alone"


def executors_of(cluster: Cluster, spark: SparkSession) -> set[str]:
    """The executors that the cluster ever started for this application: each has a folder."""
    work = cluster.folder / "work" / spark.sparkContext.applicationId
    return {folder.name for folder in work.glob("*")}


def wait_for_no_executor(spark: SparkSession) -> None:
    """Wait until dynamic allocation has taken all executors away; the driver itself stays."""
    context = spark.sparkContext._jsc.sc()
    wait_until(lambda: context.getExecutorMemoryStatus().size() <= 1, "executors stay, idle")

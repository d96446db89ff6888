"""Every row of the crash table, hit on purpose; what a reader sees is exact each time (INV-10).

The whole table for each query is `python -m tests.spark.matrix`, part of ``make test-full``.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncelog.core.ids import TopicPartition
from oncelog.spark.progress import read_progress
from tests.spark.crash_table import (
    KILLED,
    LARGE,
    SMALL,
    Case,
    Keeper,
    kept,
    run_case,
    what_the_driver_did,
)
from tests.spark.faults import (
    ANSWER_LOST,
    BROKER_CASES,
    CASES,
    ROW_OF,
    Fault,
    FaultSequence,
    Victim,
)
from tests.spark.support import Job, wait_until
from tests.spark.three_brokers import three_kept
from tests.support.broker import BrokerProcess
from tests.support.peer import PeerUnavailable, jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    """A broker that may be killed."""
    folder = tmp_path_factory.mktemp("crash-table")
    with BrokerProcess(folder / "data") as broker, kept(broker, folder) as keeper:
        yield keeper


def test_a_query_lives_through_a_fault_at_each_row(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    """The broker is killed at each row in turn, then a worker, all workers, a task, an answer."""
    cases = [case for case in CASES if case[1] not in (Victim.DRIVER, Victim.BOTH)]
    job = Job(keeper.broker.bootstrap_servers, tmp_path, "each-fault", "counts", LARGE)
    faults = [
        Fault.at(row, victim, batch, tmp_path / f"{row}-{victim}", keeper.pid_file)
        for batch, (row, victim) in enumerate(cases)
    ]
    count = LARGE * len(faults)
    job.load_orders(0, count)
    job.run_here(spark, fault=FaultSequence.of(*faults))
    assert [fault for fault in faults if not Path(fault.struck).exists()] == []
    assert job.findings(count) == []
    for batch, (row, victim) in enumerate(cases):
        assert what_the_driver_did(Case(row, victim, "counts", batch), job) == []


@pytest.mark.soak
def test_a_query_that_writes_something_else_at_each_attempt_loses_and_doubles_nothing(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    case = Case("mid_task", Victim.TASK, "scatter")
    assert run_case(case, spark, keeper, tmp_path) == []


@pytest.mark.soak
def test_workers_that_died_while_they_were_idle_use_up_no_attempt(
    spark: SparkSession, keeper: Keeper, tmp_path: Path
) -> None:
    """Spark keeps more than it would find dead in as many attempts as a batch has."""
    rows = spark.range(0, 2, numPartitions=2)
    for _ in range(8):
        rows = rows.mapInArrow(lambda batches: batches, rows.schema)
    rows.collect()
    assert run_case(Case("mid_task", Victim.DAEMON, "copy"), spark, keeper, tmp_path) == []
    steps = [step["step"] for step in read_progress(str(tmp_path / "progress"))]
    assert steps.count("failed") == 1


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["txn_ended"], id="txn_ended"),
        pytest.param(list(ROW_OF), id="each", marks=pytest.mark.soak),
    ],
)
def test_a_driver_killed_at_each_row_in_turn_loses_and_doubles_nothing(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, rows: list[str]
) -> None:
    """One application whose every life ends at another row, once with all its workers.

    Every second one meets a batch that the driver writes itself.
    """
    job = Job(keeper.broker.bootstrap_servers, tmp_path, f"rows-{len(rows)}", "union")
    lives = [(row, Victim.BOTH if row == "mid_task" else Victim.DRIVER) for row in rows]
    count = LARGE * (len(lives) + 1)
    job.load_orders(0, count)
    for batch, (row, victim) in enumerate(lives):
        job.per_batch = (SMALL, LARGE)[batch % 2]
        fault = Fault.at(row, victim, batch, tmp_path / row, keeper.pid_file)
        assert job.run(fault=fault) == KILLED, job.text()
        assert job.crash_row() is ROW_OF[row]
    job.run_here(spark)
    assert job.findings(count) == []


QUICK = (
    ("mid_task", Victim.LEADER),
    (ANSWER_LOST, Victim.COORDINATOR),
    ("offsets_committed", Victim.CONTROLLER),
)


@pytest.mark.parametrize(
    ("is_kafka", "cases"),
    [
        pytest.param(False, QUICK, id="oncelog, a row for each", marks=pytest.mark.soak),
        pytest.param(False, BROKER_CASES, id="oncelog", marks=pytest.mark.soak),
        pytest.param(True, BROKER_CASES, id="kafka", marks=pytest.mark.soak),
    ],
)
def test_a_query_lives_through_the_death_of_each_role_of_three_brokers(
    spark: SparkSession,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    is_kafka: bool,
    cases: tuple[tuple[str, Victim], ...],
) -> None:
    """A leader, the coordinator and the controller die in turn, and come back a batch later."""
    if is_kafka:
        try:
            jars()
        except PeerUnavailable as reason:
            pytest.skip(str(reason))
    # What Apache Kafka leaves is not ours to judge.
    folder = tmp_path_factory.mktemp("kafka") if is_kafka else tmp_path
    with three_kept(folder / "brokers", is_kafka=is_kafka) as keeper:
        job = Job(keeper.cluster.bootstrap_servers, tmp_path, "each-role", "counts", LARGE)
        keeper.follow(job.progress)
        output = TopicPartition(f"{job.name}-out", 0)
        roles = keeper.roles(output, job.name, is_kafka=is_kafka)
        faults = [
            replace(
                Fault.at(row, victim, batch, tmp_path / f"{batch}", keeper.pid_file), roles=roles
            )
            for batch, (row, victim) in enumerate(cases)
        ]
        count = LARGE * (len(faults) + 1)
        job.load_orders(0, count)
        job.run_here(spark, fault=FaultSequence.of(*faults))
        assert [fault for fault in faults if not Path(fault.struck).exists()] == []
        assert job.findings(count) == []
        for batch, (row, victim) in enumerate(cases):
            assert what_the_driver_did(Case(row, victim, "counts", batch), job) == []
        wait_until(lambda: len(keeper.killed) == len(faults), "a broker that comes back")

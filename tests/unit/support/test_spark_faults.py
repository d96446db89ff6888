"""The faults of the crash table strike where they are meant to."""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

import oncelog.spark
from oncelog.core.ids import TopicPartition
from oncelog.spark.progress import ProgressLog
from tests.spark.faults import (
    BETWEEN,
    BROKER_CASES,
    EXECUTOR_CLASS,
    ROLES,
    ROW_OF,
    Fault,
    FaultSequence,
    InjectedError,
    Victim,
    executor_pids,
)
from tests.spark.job import JobOptions
from tests.spark.striking import CrashPoint, StruckTask, strike_steps
from tests.spark.three_brokers import Roles


def test_two_tasks_at_one_point_do_not_strike_the_fault_of_the_next_batch(tmp_path: Path) -> None:
    struck = [tmp_path / "0", tmp_path / "1"]
    faults = [
        Fault.at("after_init", Victim.QUERY, batch, path, tmp_path / "pid")
        for batch, path in enumerate(struck)
    ]
    one = FaultSequence.of(*faults)
    other = pickle.loads(pickle.dumps(one))
    assert one.is_at("after_init", 0)
    assert other.is_at("after_init", 0)
    with pytest.raises(InjectedError):
        one.kill()
    other.kill()
    assert [path.exists() for path in struck] == [True, False]
    assert not other.is_at("after_init", 0)
    assert other.is_at("after_init", 1)


def test_a_fault_between_two_batches_strikes_when_spark_has_noted_the_first(tmp_path: Path) -> None:
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    pid_file, struck = tmp_path / "pid", tmp_path / "struck"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as broker:
        pid_file.write_text(str(broker.pid))
        fault = Fault.at(BETWEEN, Victim.BROKER, 3, struck, pid_file)
        assert not fault.is_at("txn_ended", 2)
        assert not fault.is_at("txn_ended", 3)
        (commits / "2").touch()
        assert not struck.exists()
        (commits / "3").touch()
        assert broker.wait(30) == -9
    assert struck.exists()


APPLICATION = f"app-{os.getpid()}"
"""Other processes run these tests at the same time, and see all processes."""


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that says that it is an executor of the application which "runs" here."""
    context = SimpleNamespace(applicationId=APPLICATION)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    command += [EXECUTOR_CLASS, "--app-id", APPLICATION]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # The system shows no arguments of a process for a moment after its start.
        process.stdout.readline()
        yield process
        process.kill()


def test_between_tasks_executors_die_before_the_driver(
    executor: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    for victim, driver in ((Victim.EXECUTOR, []), (Victim.CLUSTER, [11, 12])):
        struck = tmp_path / victim
        fault = replace(Fault.at("tasks_done", victim, 0, struck, tmp_path), pids=(11, 12))
        assert fault.is_at("tasks_done", 0)
        killed: list[int] = []
        fault.kill(lambda pid, number, killed=killed: killed.append(pid))  # type: ignore[misc]
        assert killed == [executor.pid, *driver]
        assert struck.exists()


def test_executors_of_another_application_are_left_alone(
    executor: "subprocess.Popen[bytes]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(applicationId="app-2")
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    with pytest.raises(RuntimeError, match="no executor of app-2"):
        executor_pids()


def test_a_fault_of_three_brokers_is_told_whom_to_look_for(tmp_path: Path) -> None:
    """It is pickled with its look-up, and kills who has the role when it strikes."""
    roles = Roles("127.0.0.1:1", TopicPartition("out", 0), "job", str(tmp_path / "pids"))
    at = Fault.at("mid_task", Victim.LEADER, 0, tmp_path / "struck", tmp_path)
    fault = pickle.loads(pickle.dumps(replace(at, roles=roles)))
    assert fault.roles == roles
    assert fault.is_at("mid_task", 0)
    assert set(ROLES) == {Victim.LEADER, Victim.COORDINATOR, Victim.CONTROLLER}
    assert {row for row, _ in BROKER_CASES} == set(ROW_OF)


def test_an_executor_is_hit_in_mid_task_by_its_task_alone(tmp_path: Path) -> None:
    fault = Fault.at("mid_task", Victim.EXECUTOR, 0, tmp_path / "struck", tmp_path)
    assert not fault.is_at("mid_task", 0)


def test_a_job_is_told_its_fault_as_it_is(tmp_path: Path) -> None:
    fault = Fault.at(BETWEEN, Victim.CLUSTER, 1, tmp_path / "struck", tmp_path / "pid")
    options = JobOptions("servers", "job", "checkpoint", "progress", fault=fault)
    decoded = JobOptions.decode(options.encode())
    assert decoded == options
    assert isinstance(decoded.fault, Fault)
    assert decoded.fault.victim is Victim.CLUSTER


def test_a_crash_point_is_for_its_batch_and_kills_the_named_processes_first() -> None:
    point = CrashPoint.parse("mid_task:2")
    assert [point.is_at("mid_task", n) for n in (1, 2)] == [False, True]
    assert not point.is_at("tasks_done", 2)
    killed = []
    CrashPoint("mid_task", None, (11, 12)).kill(lambda pid, sent: killed.append((pid, sent)))
    assert killed[:2] == [(11, signal.SIGKILL), (12, signal.SIGKILL)]


def test_an_unknown_crash_point_is_refused() -> None:
    with pytest.raises(ValueError, match="lunch"):
        CrashPoint("lunch")


@dataclass(frozen=True, slots=True)
class Raising(CrashPoint):
    """Kills nothing, so that a test lives to see where it strikes."""

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        raise InjectedError(self.name)


def test_a_driver_is_struck_once_it_has_noted_the_step() -> None:
    steps = strike_steps(ProgressLog(None), Raising("tasks_done", 1))
    steps.step("tasks_done", 0)
    steps.step("after_init", 1)
    with pytest.raises(InjectedError, match="tasks_done"):
        steps.step("tasks_done", 1, records=3)
    assert [step["step"] for step in steps.steps_of(1)] == ["after_init", "tasks_done"]


def test_a_task_is_struck_when_it_has_sent_all_and_reported_nothing() -> None:
    sent: list[int] = []

    def task(batches: Iterable[int]) -> Iterator[str]:
        sent.extend(batches)
        yield "the report"

    assert list(StruckTask(task, Raising("mid_task", 2), 1)([1])) == ["the report"]
    with pytest.raises(InjectedError):
        next(StruckTask(task, Raising("mid_task", 2), 2)([2, 3]))
    assert sent == [1, 2, 3]


def test_no_part_of_the_shipped_sink_can_kill_a_process() -> None:
    folder, kills = (
        Path(oncelog.spark.__file__).parent,
        re.compile(r"signal\.SIGKILL|os\.kill|CRASH_"),
    )
    sources = {path: path.read_text() for path in folder.rglob("*.py")}
    assert [path for path, text in sources.items() if kills.search(text)] == []

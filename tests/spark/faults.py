"""Faults that strike a query at one row of the crash table, once, and on purpose.

A `Fault` is a crash point (`tests.spark.striking`) that may hit something else than the process it
is in: a Python worker, all workers, the broker, or only the answer to EndTxn.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark import SparkContext, TaskContext

from oncelog.cli.demo.plan import KillTarget
from oncelog.client.errors import ConnectionLostError
from oncelog.client.transactions import TransactionDriver
from oncelog.spark.progress import CrashRow
from tests.spark.striking import MID_TASK, CrashPoint
from tests.spark.three_brokers import Roles

ANSWER_LOST = "answer_lost"
"""EndTxn went through, and its answer does not reach the driver."""

BETWEEN = "between_batches"
"""Spark has noted the batch in its commit log, and not yet planned the next one."""


EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Victim(StrEnum):
    """What a fault hits."""

    DRIVER = "driver"
    """The driver's Python process and its JVM, which is the executor too under ``local[N]``."""
    WORKER = "worker"
    """The Python worker that runs the write task."""
    DAEMON = "daemon"
    """The daemon that forks the workers, and all of them."""
    BOTH = "driver and workers"
    BROKER = "broker"
    TASK = "task"
    """Nothing is killed: the write task raises."""
    ANSWER = "answer"
    """Nothing is killed: the driver does not hear the outcome of EndTxn."""
    QUERY = "query"
    """Nothing is killed: the sink raises on the driver, so the query ends, and Spark lives on."""
    EXECUTOR = "executor"
    """The JVM of an executor on a standalone cluster, with its workers; of all between tasks."""
    CLUSTER = "driver and executor"
    """Both: the driver's two processes, and what `EXECUTOR` names."""
    LEADER = "partition leader"
    """Of three brokers the one that leads a partition of the output."""
    COORDINATOR = "coordinator"
    """Of three brokers the one that coordinates the query's transactions."""
    CONTROLLER = "controller"
    """Of three brokers the one that controls the cluster."""


OF_A_TASK = (
    Victim.WORKER,
    Victim.DAEMON,
    Victim.BOTH,
    Victim.TASK,
    Victim.EXECUTOR,
    Victim.CLUSTER,
)
"""What is hit from within a task of the write stage, at `MID_TASK`."""
KILLING_THE_DRIVER = (Victim.DRIVER, Victim.BOTH, Victim.CLUSTER)

ROW_OF = {
    "wal_written": CrashRow.WAL_WRITTEN,
    "after_init": CrashRow.AFTER_INIT,
    MID_TASK: CrashRow.MID_TASK,
    "tasks_done": CrashRow.TASKS_DONE,
    "offsets_committed": CrashRow.OFFSETS_COMMITTED,
    "ending": CrashRow.ENDING,
    ANSWER_LOST: CrashRow.ENDING,
    "txn_ended": CrashRow.TXN_ENDED,
    BETWEEN: CrashRow.BETWEEN_BATCHES,
}
"""What the progress file tells of a driver that was killed at a row."""

CASES = (
    *((row, Victim.DRIVER) for row in ROW_OF),
    (MID_TASK, Victim.BOTH),
    *((row, Victim.BROKER) for row in ROW_OF),
    (ANSWER_LOST, Victim.ANSWER),
    *((MID_TASK, victim) for victim in (Victim.WORKER, Victim.DAEMON, Victim.TASK)),
)
"""The crash table on one machine: every row, and whatever can be hit there."""

ROLES = {
    Victim.LEADER: KillTarget.LEADER,
    Victim.COORDINATOR: KillTarget.COORDINATOR,
    Victim.CONTROLLER: KillTarget.CONTROLLER,
}
"""The victims that are brokers of three, and what tells who has the role."""

BROKER_CASES = tuple((row, victim) for row in ROW_OF for victim in ROLES)
"""What only several brokers have."""

CLUSTER_CASES = (
    *((row, victim) for row in ROW_OF for victim in (Victim.EXECUTOR, Victim.CLUSTER)),
    (MID_TASK, Victim.DRIVER),
)
"""What only a cluster has: executors that die alone or with their driver, or outlive it."""


class InjectedError(Exception):
    """What a fault raises where it kills nothing."""


@dataclass(frozen=True, slots=True)
class Fault(CrashPoint):
    """A crash point with a victim. Picklable."""

    victim: Victim = Victim.DRIVER
    is_unheard: bool = False
    """Strike after EndTxn went through instead of at the point itself."""
    struck: str = ""
    """A file that is made when the fault strikes; it never strikes twice."""
    broker_pid: str = ""
    """A file with the broker's process id."""
    checkpoint: str = ""
    """Strike after the batch stands in this checkpoint's commit log, if one is named."""
    roles: Roles | None = None
    """Of three brokers: finds the one to kill."""

    @classmethod
    def at(cls, row: str, victim: Victim, batch: int, struck: Path, broker_pid: Path) -> "Fault":
        """The fault of one case of the table; the job's checkpoint is beside the file `struck`."""
        unheard = row == ANSWER_LOST
        name = {ANSWER_LOST: "ending", BETWEEN: "txn_ended"}.get(row, row)
        checkpoint = str(struck.parent / "checkpoint") if row == BETWEEN else ""
        return cls(name, batch, (), victim, unheard, str(struck), str(broker_pid), checkpoint)

    def is_at(self, name: str, batch_id: int) -> bool:
        if not CrashPoint.is_at(self, name, batch_id) or Path(self.struck).exists():
            return False
        if self.name == MID_TASK and self.victim in OF_A_TASK and TaskContext.get() is None:
            # The driver writes small batches itself; its parent is the one that runs the tests.
            return False
        if self.is_unheard:
            _strike_after_end_txn(self)
        elif self.checkpoint:
            _strike_after_commit_log(self, batch_id)
        return not self.is_unheard and not self.checkpoint

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        try:
            os.close(os.open(self.struck, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.victim in (Victim.DRIVER, Victim.BOTH):
            # A task names the daemon first: once the driver is gone it may not get that far.
            if self.victim is Victim.BOTH:
                send(os.getppid(), signal.SIGKILL)
            CrashPoint.kill(self, send)
        elif self.victim in (Victim.EXECUTOR, Victim.CLUSTER):
            self._kill_on_cluster(send)
        elif self.victim in ROLES:
            assert self.roles is not None
            self.roles.kill(ROLES[self.victim], send)
        elif self.victim is Victim.BROKER:
            send(int(Path(self.broker_pid).read_text()), signal.SIGKILL)
        elif self.victim is Victim.WORKER:
            send(os.getpid(), signal.SIGKILL)
        elif self.victim is Victim.DAEMON:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        elif self.victim in (Victim.TASK, Victim.QUERY):
            raise InjectedError(f"the {self.victim} fails, once")

    def _kill_on_cluster(self, send: Callable[[int, int], None]) -> None:
        """A task names its ancestors last: what it has not named when they die may live on."""
        driver = self.pids if self.victim is Victim.CLUSTER else ()
        if TaskContext.get() is None:
            doomed = (*executor_pids(), *driver)
        else:
            doomed = (*driver, _parent(os.getppid()), os.getppid(), os.getpid())
        for pid in doomed:
            send(pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class FaultSequence(CrashPoint):
    """Faults for batches of one run.

    Two tasks may come to the same point at once: each strikes the fault of that point, and the
    second one in vain. It must not strike the next one, which belongs to another batch.
    """

    faults: tuple[Fault, ...] = ()
    due: list[Fault] = field(default_factory=list)
    """The one that `kill` strikes, in this process."""

    @classmethod
    def of(cls, *faults: Fault) -> "FaultSequence":
        return cls(faults[0].name, faults=faults)

    def is_at(self, name: str, batch_id: int) -> bool:
        self.due[:] = [fault for fault in self.faults if fault.is_at(name, batch_id)]
        return bool(self.due)

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        self.due.pop().kill(send)


def _strike_after_end_txn(fault: Fault) -> None:
    """Let the next EndTxn of this process go through, and strike before its answer is heard."""
    end = TransactionDriver.end

    @wraps(end)
    async def ends_unheard(driver: TransactionDriver, commit: bool) -> None:
        TransactionDriver.end = end  # type: ignore[method-assign]
        await end(driver, commit)
        fault.kill()
        raise ConnectionLostError("the answer to EndTxn is lost")

    replacement: Callable[[TransactionDriver, bool], Coroutine[Any, Any, None]] = ends_unheard
    TransactionDriver.end = replacement  # type: ignore[method-assign, assignment]


def _strike_after_commit_log(fault: Fault, batch_id: int) -> None:
    """Strike when the batch stands in Spark's commit log, and before the next one is planned.

    The sink is not called then, so a thread looks. To be in time for a kill of the driver it takes
    the place of the next entry of Spark's offsets log, until the JVM stands still.
    """
    committed = Path(fault.checkpoint, "commits", str(batch_id))
    next_entry = Path(fault.checkpoint, "offsets", str(batch_id + 1))
    kills_driver = fault.victim in KILLING_THE_DRIVER

    def strike() -> None:
        while not committed.exists():
            time.sleep(0.001)
        doomed = fault
        if kills_driver:
            if fault.victim is Victim.CLUSTER:
                # A JVM that stands still does not tell which they are.
                doomed = replace(fault, victim=Victim.DRIVER, pids=(*executor_pids(), *fault.pids))
            # This process would not wake up again to kill itself.
            for pid in (pid for pid in fault.pids if pid != os.getpid()):
                os.kill(pid, signal.SIGSTOP)
                os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            next_entry.rmdir()
        doomed.kill()

    if kills_driver:
        next_entry.mkdir()
    threading.Thread(target=strike, daemon=True).start()


def lose_shuffle(lost: str) -> None:
    """Delete the files of all shuffles of this Spark, once: the file `lost` tells that it is done.

    A task that calls this when it ends loses them between two tasks, as with an executor that is
    taken away.
    """
    folders = os.environ["SPARK_LOCAL_DIRS"].split(",")
    files = [file for folder in folders for file in Path(folder).rglob("shuffle_*")]
    with contextlib.suppress(FileExistsError):
        Path(lost).touch(exist_ok=False)
        for file in files:
            file.unlink()


def executor_pids() -> list[int]:
    """The JVMs on this machine that run tasks of this process's Spark application."""
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("no Spark runs in this process")
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_text().split("\0")
            if EXECUTOR_CLASS in words and context.applicationId in words:
                found.append(int(line.parent.name))
    if not found:
        raise RuntimeError(f"no executor of {context.applicationId} runs here")
    return found


def _parent(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has no parent")

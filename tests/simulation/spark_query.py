"""A simulated Spark driver: one process that runs one streaming query after the other.

The loop is that of Spark's micro-batch execution: plan what batch N reads, write ``offsets/N``, run
the batch, write ``commits/N``. What a batch does is decided by the shipped `BatchProtocol` with the
shipped `TransactionDriver`; the executors are `spark_stage`. The process dies at the crash points
of `oncelog.spark.progress` and a few steps after each, and is started again over the same
checkpoint, sometimes while a rival still lives, sometimes over another one.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oncelog.client import Admin, ClientError, TransactionDriver
from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    Acked,
    Event,
    Value,
)
from oncelog.simulation.history import Progress as ProgressEvent
from oncelog.simulation.process import Process
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.direct import DirectWriter
from oncelog.spark.errors import FailClosedError, PipelineError
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import STEPS, CrashRow, ProgressLog, crash_row
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.source_offsets import limit_ends
from oncelog.spark.source_options import Isolation
from oncelog.spark.write_stage import check_one_attempt
from tests.simulation import spark_desk
from tests.simulation.lockstep import Lockstep, current
from tests.simulation.spark_application import Application
from tests.simulation.spark_checkpoint import Checkpoint, ConcurrentQueryError
from tests.simulation.spark_duties import DriverDuties
from tests.simulation.spark_stage import Stage
from tests.simulation.spark_transaction import JournalingTransaction
from tests.spark.striking import MID_TASK, strike

__all__ = ["CRASHED", "run_driver"]

T = TypeVar("T")

CRASHED: Final = "crash"
OF_THE_DRIVER: Final = frozenset(STEPS) - {MID_TASK}
"""Why a process died that the model killed at a place of its own choosing."""
PAUSE_MS: Final = (1.0, 80.0)
"""Between two looks for new records."""

DIRECT: Final = 0.3
"""How many micro-batches the driver sends itself."""

LOOKS_COUNT: Final = 5

TAKE_OVER: Final = 0.25
"""How likely a rival is started at the step that a run has chosen for it."""


class _Steps(ProgressLog):
    """The steps of one driver life, kept in memory. It dies soon after some of them."""

    def __init__(self, life: "_Life") -> None:
        super().__init__(None)
        self._life = life
        self.steps: list[dict[str, Any]] = []

    def step(self, name: str, batch_id: int, **details: object) -> None:
        life = self._life
        is_settled = name == "txn_ended" and self.steps[-1]["step"] == "failed"
        if is_settled:
            life.app.count("doubt settled by the marker, committed")
        self.steps.append({"step": name, "batch": batch_id})
        if life.duties is not None:
            life.duties.step(name, details)
        life.app.count(f"step {name}")
        if name == "ending":
            life.lose_answer()
        if name == life.app.take_over_step and life.rng.random() < TAKE_OVER:
            life.is_taken_over()
        # EndTxn is over in a moment, so it is aimed at twice.
        if life.may_crash() or (name == "ending" and life.may_crash()):
            life.process.kill_after_steps(int(life.rng.expovariate(1 / 8)), CRASHED)
        if name in OF_THE_DRIVER and not is_settled:
            strike(_DriverCrash(life), name, batch_id)


class _DriverCrash:
    """As `tests.spark.striking.CrashPoint`, at any of the points, now and then."""

    def __init__(self, life: "_Life") -> None:
        self._life = life

    def is_at(self, name: str, batch_id: int) -> bool:
        life = self._life
        is_now = life.may_crash()
        if is_now:
            life.app.count(f"crash point {name}")
        return is_now

    def kill(self) -> None:
        self._life.lockstep.die(CRASHED)


class _TaskCrash(_DriverCrash):
    """The same for a task of a local application: it and its driver are one process."""

    def kill(self) -> None:
        async def kill() -> None:
            self._life.process.kill(CRASHED)

        current().call(kill())


class _Batch:
    """One micro-batch, as `oncelog.spark.kafka_micro_batch` hands it to the protocol."""

    def __init__(self, life: "_Life", checkpoint: Checkpoint, batch_id: int, steps: _Steps) -> None:
        self._life = life
        self._checkpoint = checkpoint
        self._steps = steps
        self.query_id = checkpoint.query_id
        self.batch_id = batch_id
        # Not of every batch, as in queries without a watermark.
        self._watermark_ms = 1_000 * batch_id if batch_id % 3 else None
        if life.duties is not None:
            life.duties.checkpoint, life.duties.batch_id = checkpoint, batch_id
            life.duties.watermark_ms = self._watermark_ms

    def source_lines(self) -> tuple[str, ...]:
        return self._checkpoint.lines(self.batch_id)

    def planned_at_s(self) -> float | None:
        return self._checkpoint.planned_at_s(self.batch_id)

    def initial_offsets(self) -> dict[TopicPartition, int] | None:
        return self._checkpoint.initial

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        life = self._life
        stage = life.stage = Stage(
            options=life.app.stage,
            driver=life.process,
            client_options=life.client_options,
            journal=life.record,
            ranges=self._checkpoint.ranges(self.batch_id),
            batch_id=self.batch_id,
            transaction=life.transactions,
            identity=identity,
            numbers=life.number,
            progress=self._steps,
            crash_point=_TaskCrash(life),
        )
        if life.rng.random() < DIRECT:
            reports = self._write_direct(stage)
        else:
            reports = life.lockstep.call(stage.run())
            check_one_attempt(stage.spark_context(), "tag")
        if life.duties is not None:
            life.duties.wrote(life.transactions, reports, is_clean=stage.is_clean)
        return reports

    def _write_direct(self, stage: Stage) -> list[TaskReport]:
        """The rows are few: the driver sends them, with the producer of its last small batch."""
        life = self._life
        life.app.count("driver writes")
        rows = life.lockstep.call(stage.read())
        if life.direct is None:
            life.direct = stage.direct_writer(life.lockstep)
        blobs = [[blob] for blob in stage.encode(rows)]
        if not blobs:
            return []
        targets = life.app.stage.targets
        reports = life.direct.write(stage.identity, self.batch_id, targets, blobs)
        strike(_DriverCrash(life), MID_TASK, self.batch_id)
        return reports

    def drain(self) -> None:
        self._life.lockstep.sleep(self._life.rng.uniform(1.0, 30.0))

    def next_watermark_ms(self) -> int | None:
        return self._watermark_ms

    def is_stopping(self) -> bool:
        return self._life.rng.random() < 0.1


@dataclass
class _Life:
    """One driver process."""

    app: Application
    context: ClientContext
    process: Process
    lockstep: Lockstep
    transactions: int = 0
    numbers: int = 0
    stage: Stage | None = None
    direct: DirectWriter | None = None
    steps: _Steps | None = None
    checkpoint: Checkpoint | None = None
    duties: DriverDuties | None = None

    @property
    def rng(self) -> random.Random:
        return self.process.rng

    def record(self, kind: Callable[..., Event], values: tuple[object, ...]) -> None:
        """All of them are events of the driver, which owns the transaction."""
        world = self.app.stage.world
        world.record(kind(world.now_s, self.process.name, *values))
        if kind is Acked and self.duties is not None:
            value, place, offset = values
            assert isinstance(value, Value)
            self.duties.acked[value.transaction, place].append(offset)  # type: ignore[index,arg-type]

    def may_crash(self) -> bool:
        """Whether the process dies at the place where this is asked."""
        return not self.app.stage.is_healed() and self.rng.random() < self.app.crash / 2

    def is_taken_over(self) -> None:
        """A rival starts here and now, and this driver may be a zombie meanwhile."""
        scheduler = self.process.scheduler
        if self.app.take_over() and self.rng.random() < 0.6:
            self.app.count("driver froze")
            self.process.freeze()
            scheduler.call_after(self.rng.uniform(0.2, 3.0), None, self.process.thaw)

    def lose_answer(self) -> None:
        """Now and then EndTxn arrives, and its answer does not, for a while or for good."""
        app, world, rng = self.app, self.app.stage.world, self.rng
        if app.stage.is_healed() or rng.random() >= app.lose_answer:
            return
        app.count("answer of EndTxn lost")
        until_s = world.now_s + rng.expovariate(1 / 1.5)
        broker, driver = world.broker.host, self.process.host
        if rng.random() < 0.5:
            world.network.partition(broker, driver, both=False, until_s=until_s)
        else:
            ends = world.network.between(driver, broker)
            world.network.arm_drop(ends, 0, "to client", until_s=until_s)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def client_options(self, process: Process) -> dict[str, Any]:
        return {
            "client_id": process.name,
            "network": process.network,
            "clock": process.clock,
            "rng": process.rng,
            "request_timeout_ms": self.rng.choice((1_500, 3_000, 5_000)),
            "retry_backoff_ms": 20,
            "transaction_version_max": self.app.transaction_version_max,
        }

    # --- life and death

    def run(self) -> None:
        """Queries, until everything is copied and the run is to end."""
        app = self.app
        until_s = self.context.get("lives_s", 1e9) * self.rng.random()
        until_s += app.stage.world.now_s
        while app.stage.world.now_s < until_s:
            checkpoint = self.checkpoint = app.choose_checkpoint(self.rng)
            self._look()
            try:
                if self._query(checkpoint, until_s):
                    return
            except FailClosedError as error:
                app.count(f"failed closed: {error.reason}")
            except (PipelineError, ClientError, ConcurrentQueryError) as error:
                app.count(f"query ended: {type(error).__name__}")
            self.lockstep.sleep(self.rng.uniform(10.0, 1_000.0))

    def _look(self) -> None:
        """An operator looks at what is decided, of the last driver's marker."""
        rng = random.Random(self.rng.getrandbits(64))
        driver = None if self.duties is None else self.duties.driver
        for _ in range(LOOKS_COUNT):
            spark_desk.look(rng, None if driver is None else driver.marker, self.app.complain)

    def died(self, restart: Callable[[], None]) -> None:
        """Count where, and let executors outlive the driver for a while."""
        scheduler = self.process.scheduler
        if self.process.died_because not in ("exit", "the end"):
            self.app.rows[self._row().name] += 1
            if self.stage is not None:
                self.stage.leave_behind()
        if self.process.died_because == CRASHED:
            scheduler.call_after(self.rng.uniform(0.0, 2.0), None, restart)

    def _row(self) -> CrashRow:
        """As `crash_row`, with the checkpoint at hand."""
        checkpoint, steps = self.checkpoint, [] if self.steps is None else self.steps.steps
        last = -1 if checkpoint is None else checkpoint.last_batch
        if checkpoint is None or last < 0 or last in checkpoint.commits:
            return CrashRow.BETWEEN_BATCHES
        if not steps or steps[-1]["batch"] != last:
            return CrashRow.WAL_WRITTEN
        return crash_row(steps)

    # --- a query

    def _query(self, checkpoint: Checkpoint, until_s: float) -> bool:
        """Run one query until it fails; True if there is nothing more to do."""
        app = self.app
        options = self.client_options(self.process)
        admin = Admin(app.stage.bootstrap, **options)
        inner = TransactionDriver(
            app.stage.bootstrap,
            app.application_id,
            transaction_timeout_ms=self.rng.choice((2_000, 5_000, 10_000)),
            timeout_ms=self.rng.choice((200, 1_000, 10_000)),
            **options,
        )
        steps = self.steps = _Steps(self)
        write_attempts = self.rng.choice((1, 2, 3))
        duties = self.duties = DriverDuties(
            app.complain, app.now_s, app.application_id, write_attempts, checkpoint=checkpoint
        )
        driver = duties.driver = BatchProtocol(
            ProtocolOptions(
                app.application_id,
                marker_partition=app.marker_partition,
                write_attempts=write_attempts,
            ),
            JournalingTransaction(self, inner),
            self.lockstep,
            steps,
            now_s=app.now_s,
        )
        last = checkpoint.last_batch
        batch_id = last if last >= 0 and last not in checkpoint.commits else last + 1
        try:
            if self.rng.random() < 0.3:
                with _called(duties, "prepare"):
                    driver.prepare(checkpoint.query_id if last < 0 else None)
            while app.stage.world.now_s < until_s:
                if batch_id > last and not self._plan(checkpoint, batch_id, admin, until_s):
                    self._renew(driver)
                    return True
                if self.rng.random() < 0.3:
                    self._renew(driver)
                try:
                    with _called(duties, "batch"):
                        driver.process(_Batch(self, checkpoint, batch_id, steps))
                except FailClosedError as error:
                    app.refused(error, checkpoint, batch_id, driver, self.process.name)
                    raise
                duties.done(checkpoint, batch_id)
                app.finish(checkpoint, batch_id, self.process.name)
                app.count(f"batch done under TV{inner.transaction_version}")
                self.lockstep.sleep(self.rng.uniform(0.0, 5.0))
                checkpoint.log_commit(batch_id)
                batch_id, last = batch_id + 1, batch_id
            return True
        finally:
            if self.direct is not None:
                self.direct.close()
                self.direct = None
            self.lockstep.call(self._disconnect(admin, inner))

    def _renew(self, driver: BatchProtocol) -> None:
        """Between two batches; how it goes does not matter to the query."""
        before, duties = self.transactions, self.duties
        assert duties is not None
        is_due = duties.is_due()
        try:
            with _called(duties, "renew"):
                driver.renew()
        except ClientError:
            self.app.count("renewal failed")
            return
        is_done = self.transactions > before
        self.app.count("renewed" if is_done else "nothing to renew")
        if is_due is not None and is_due is not is_done:
            self.app.complain("a renewal is wrong", f"due was {is_due}, done is {is_done}")

    def _plan(self, checkpoint: Checkpoint, batch_id: int, admin: Admin, until_s: float) -> bool:
        """Wait for new records and log what batch N reads. False if none come in time."""
        starts = checkpoint.ends(batch_id - 1)
        while True:
            if self.app.stage.world.now_s > until_s:
                return False
            is_last = self.context.stopping() and self.app.sources_settled()
            latest = self._latest(admin, "read_committed")
            ends = limit_ends(starts, latest, self.rng.choice((4, 15, 60)))
            if ends != starts:
                break
            # Records behind a transaction that is still open are yet to come.
            if is_last and latest == self._latest(admin, "read_uncommitted"):
                return False
            self.lockstep.sleep(self.rng.uniform(*PAUSE_MS))
        self.lockstep.sleep(self.rng.uniform(0.0, 3.0))
        checkpoint.log_offsets(batch_id, ends, self.app.now_s())
        self.lockstep.sleep(self.rng.uniform(0.0, 3.0))
        return True

    def _latest(self, admin: Admin, isolation: Isolation) -> dict[TopicPartition, int]:
        wanted = admin.list_offsets(
            dict.fromkeys(self.app.partitions, "latest"), isolation_level=isolation
        )
        return self.lockstep.call(wanted)

    async def _disconnect(self, admin: Admin, transaction: TransactionDriver) -> None:
        await transaction.close()
        await admin.close()


@contextmanager
def _called(duties: DriverDuties, mode: str) -> Iterator[None]:
    """The driver is called, and may raise."""
    duties.begin(mode)
    try:
        yield
    except BaseException as error:
        duties.ended(error)
        raise
    duties.ended(None)


async def run_driver(
    app: Application, context: ClientContext, process: Process, restart: Callable[[], None]
) -> None:
    """The role of a driver: one life of it."""
    life = _Life(app, context, process, Lockstep(process))
    process.on_death.append(lambda: life.died(restart))
    await life.lockstep.run(life.run)
    context.record(ProgressEvent, "settled")

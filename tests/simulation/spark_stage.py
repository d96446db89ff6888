"""The write stage of a simulated micro-batch, run by a scheduler that may be faulty.

Spark runs one barrier stage: a task that fails ends the stage, and no task runs twice. The
scheduler here usually does that. Now and then it starts a task a second time, or a copy of one that
is slow, or the whole stage again: those are the dangers that the sink has to refuse, since a second
attempt under the same (producer id, epoch) begins at sequence 0 and is dropped as a duplicate of
the first. Executors die, freeze, lose their connections, and go on after the driver gave up.

As in a local Spark, the tasks may instead be those of the query's own last stage: each encodes the
rows of its source partition, and sends them in its turns (`ShareTask`). The driver's process then
has the shipped `TurnServer`, and the executors are on its machine.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from oncelog.client.errors import ClientError
from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Acked, Event, Value
from oncelog.simulation.loop import ProcessLoop
from oncelog.simulation.process import Process, ProcessDied
from oncelog.simulation.world import World
from oncelog.spark.direct import DirectWriter
from oncelog.spark.encoder import Blob, Encoder, to_arrow
from oncelog.spark.errors import DataLossError, PipelineError, UsageError, WriteStageError
from oncelog.spark.parties import ProducerIdentity, Runner, TaskReport
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.sharing import ShareTask, merged
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.source_options import SourceOptions
from oncelog.spark.targets import Targets
from oncelog.spark.tasks import WriteTask, report_of
from oncelog.spark.turn_server import TurnServer
from tests.simulation.lockstep import Lockstep
from tests.simulation.spark_duties import CheckedTurns
from tests.simulation.spark_executor import (
    Journal,
    Row,
    TaskSurroundings,
    read_rows,
    row_batches,
)
from tests.simulation.spark_faults import Faults, afflict, dying
from tests.spark.striking import StruckTask

__all__ = ["Stage", "StageOptions"]

ValuedRow = tuple[Value, bytes]
"""A row's value and key."""

RPC_S: Final = (0.0002, 0.004)
"""How long a message between driver and executor takes."""
LOSS_NOTICED_S: Final = (0.01, 0.3)
"""After this time the driver learns that an executor is gone."""


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What all stages of an application share."""

    world: World
    bootstrap: str
    application_id: str
    targets: Targets
    task_count: int
    shares: float
    """How many of the stages are the query's own last one, whose tasks share the targets."""
    faults: Faults
    count: Callable[[str], None]
    """Counts what was reached."""
    complain: Callable[[str, str], None]
    """Takes what is wrong, and the particulars."""
    is_healed: Callable[[], bool]
    """Whether the time of faults is over."""


@dataclass
class _Attempt:
    process: Process
    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    task: int
    attempt: int
    rows: list[Any] | None
    error: str = ""
    is_usage: bool = False


@dataclass
class Stage:
    """One write stage of one batch, under one producer identity, of one driver process."""

    options: StageOptions
    driver: Process
    client_options: Callable[[Process], dict[str, Any]]
    journal: Journal
    ranges: Mapping[TopicPartition, tuple[int, int]]
    batch_id: int
    transaction: int
    identity: ProducerIdentity
    numbers: Callable[[], int]
    progress: Any
    crash_point: Any
    failed_tasks: int = 0
    stage_attempt: int = 0
    _launched: int = 0
    _attempts: list[_Attempt] = field(default_factory=list)
    _server: TurnServer | None = None
    """The turns of the tasks, if they share the targets."""

    def __post_init__(self) -> None:
        self._rng: random.Random = self.driver.rng
        self._outcomes: asyncio.Queue[_Outcome] = asyncio.Queue()
        self._rows: list[list[ValuedRow]] = []
        self._blobs: list[Blob] = []
        faults = self.options.faults
        # Attempts get their rows in other orders, but in Arrow batches of one size, as in Spark.
        self._rows_per_batch = self._rng.choice((1, 1, 3, 50))
        # With one record in each batch, two attempts send other records under the same sequences.
        self._batch_size = self._rng.choice((1, 100, 300, 16_384))
        self._hides_failures = self._rng.random() < faults.late_status

    # --- the scheduler

    async def run(self) -> list[TaskReport]:
        """Read, shuffle, write. Raises `WriteStageError`."""
        rows = await self.read()
        if self._rng.random() < self.options.shares:
            self._server = TurnServer()
            self._server.turns = CheckedTurns(self.options.complain)
        try:
            if self._server is not None:
                await self._server.start()
            return await self._attempt(rows)
        finally:
            if self._server is not None:
                self._count_failure(self._server.turns.failure or "")
                await self._server.close()
            self.leave_behind()

    async def _attempt(self, rows: list[Row]) -> list[TaskReport]:
        self._prepare(rows)
        if self._rng.random() < self.options.faults.again:
            self.options.count("stage run twice")
            self.stage_attempt = 1
            await self._attempt_half()
            self._prepare(rows)
        reports = await self._write()
        if self._server is not None:
            writers = Counter(report.topic_partition for report in reports)
            reports = merged(reports)
            self._server.check(reports, self.options.targets)
            self.options.count("stage shares")
            if max(writers.values(), default=0) > 1:
                self.options.count("partition shared by tasks")
        else:
            self.options.count("stage writes")
        return reports

    @property
    def is_clean(self) -> bool:
        """Whether each task was begun once, and none failed."""
        tasks_count = self._launched - 1
        is_once = tasks_count in (0, self._task_count)
        return is_once and not self.failed_tasks and not self.stage_attempt

    def _count_failure(self, reason: str) -> None:
        for kind in ("was lost", "began a second time"):
            if reason.startswith("task ") and kind in reason:
                self.options.count(f"turns: a task {kind}")

    async def read(self) -> list[Row]:
        """What the sources hold. Raises as `run`."""
        options = SourceOptions.parse(
            {
                "bootstrapServers": self.options.bootstrap,
                "subscribe": ",".join(sorted({tp.topic for tp in self.ranges})),
            }
        )
        self._launch(-1, 0, lambda: read_rows(options, dict(self.ranges)))
        outcome = await self._outcomes.get()
        if outcome.rows is None:
            raise self._failure(outcome)
        return outcome.rows

    def encode(self, rows: list[Row]) -> list[Blob]:
        """The blobs of all source partitions. Each attempt of the stage has its own values."""
        return [
            blob
            for source, own in enumerate(self._valued(rows))
            for some in self._encoder().encode(source, self._batches(own))
            for blob in some
        ]

    def _prepare(self, rows: list[Row]) -> None:
        """Have what the tasks of one attempt of the stage begin with."""
        if self._server is not None:
            self._rows = self._valued(rows)
        else:
            self._blobs = self.encode(rows)

    def _valued(self, rows: list[Row]) -> list[list[ValuedRow]]:
        """The rows of each source partition as the query computes them: values and keys."""
        return [
            [
                (
                    Value(
                        self.owner,
                        self.numbers(),
                        self.transaction,
                        f"{tp.topic}-{tp.partition}@{at}",
                    ),
                    f"{tp}@{at}".encode(),
                )
                for tp, at in rows
                if tp == place
            ]
            for place in sorted(self.ranges)
        ]

    def _encoder(self) -> Encoder:
        return Encoder(self.options.targets, self.batch_id, self._batch_size, "none")

    def _batches(self, own: list[ValuedRow]) -> Iterable[Any]:
        return row_batches(own, self.driver.clock, self._rows_per_batch)

    @property
    def _task_count(self) -> int:
        return self.options.task_count if self._server is None else len(self.ranges)

    async def _write(self) -> list[TaskReport]:
        faults = self.options.faults
        for task in range(self._task_count):
            self._start(task, 0)
        gives_up_s = self._rng.uniform(0.0, 0.2) if self._rng.random() < faults.give_up else None
        found: dict[int, list[Any]] = {}
        while len(found) < self._task_count:
            try:
                async with asyncio.timeout(gives_up_s):
                    outcome = await self._outcomes.get()
            except TimeoutError:
                self.options.count("stage given up")
                raise WriteStageError("the stage was cancelled") from None
            if outcome.rows is not None:
                found.setdefault(outcome.task, outcome.rows)
                continue
            self.failed_tasks += 1
            self.options.count("task failed")
            if outcome.attempt < 2 and self._rng.random() < faults.retry:
                self.options.count("task retried")
                self._start(outcome.task, outcome.attempt + 1)
            else:
                raise self._failure(outcome)
        return [report_of(row) for task in sorted(found) for row in found[task]]

    async def _attempt_half(self) -> None:
        """A stage attempt that gets nowhere: its tasks go on."""
        for task in range(self._task_count):
            self._start(task, 0)
        await asyncio.sleep(self._rng.uniform(0.0, 0.05))
        self._outcomes = asyncio.Queue()

    def _start(self, task: int, attempt: int) -> None:
        rng = self._rng
        work = self._writer() if self._server is None else self._sharer(self._server)
        work.producer_options["delivery_timeout_ms"] = rng.choice((3e3, 2e4))
        if self._server is None:
            batches: Iterable[Any] = self._shuffled(task)
        else:
            batches = self._batches(self._rows[task])
        struck = StruckTask(work, self.crash_point, self.batch_id)
        self._launch(task, attempt, partial(_reported, struck, batches), work.producer_options)
        if attempt == 0 and rng.random() < self.options.faults.copy:
            self.options.count("task copied")
            delay_s = rng.choice((0.0, 0.02, 0.1)) * rng.random()
            self.options.world.scheduler.call_after(delay_s, self.driver, self._start, task, 1)

    def _writer(self) -> WriteTask:
        return WriteTask(
            bootstrap_servers=self.options.bootstrap,
            transactional_id=self.options.application_id,
            identity=self.identity,
            batch_id=self.batch_id,
            targets=self.options.targets,
            progress_path=self.progress,
        )

    def _sharer(self, server: TurnServer) -> ShareTask:
        return ShareTask(
            encoder=self._encoder(),
            turns=server.address,
            bootstrap_servers=self.options.bootstrap,
            transactional_id=self.options.application_id,
            identity=self.identity,
            progress_path=self.progress,
        )

    def _shuffled(self, task: int) -> list[Any]:
        """What the shuffle gives to an attempt of a task."""
        count = self._task_count
        blobs = [blob for blob in self._blobs if blob.target % count == task]
        blobs = _interleaved(self._rng, blobs)
        per_batch = self._rng.choice((1, 2, 10))
        # Stamping changes a batch in place, so each attempt has its own copy of the bytes.
        return [
            to_arrow(blobs[at : at + per_batch], range(count))
            for at in range(0, len(blobs), per_batch)
        ]

    def _failure(self, outcome: _Outcome) -> Exception:
        text = f"task {outcome.task} failed: {outcome.error}"
        return UsageError(text) if outcome.is_usage else WriteStageError(text)

    def leave_behind(self) -> None:
        """What still runs is killed after a while, which may be later than its end."""
        world = self.options.world
        for attempt in self._attempts:
            if attempt.process.alive:
                self.options.count("zombie task")
                delay_s = self._rng.choice((0.0, 0.1, 1.0, 20.0)) * self._rng.random()
                world.scheduler.call_after(delay_s, None, attempt.process.kill, "killed")

    @property
    def owner(self) -> str:
        """The driver, in the history."""
        return self.driver.name

    def _note(self, kind: Callable[..., Event], values: tuple[object, ...]) -> None:
        """What a task sends and hears; two attempts of one stage are both acknowledged."""
        if not (kind is Acked and self.stage_attempt):
            self.journal(kind, values)

    # --- an executor

    def _launch(
        self,
        task: int,
        attempt: int,
        run: Callable[[], list[Any]],
        producer_options: dict[str, Any] | None = None,
    ) -> None:
        world, rng = self.options.world, self._rng
        self._launched += 1
        serial = f"b{self.batch_id}e{self.identity.producer_epoch}.{self._launched}"
        number = self.numbers()
        host = f"10.{1 + number // 65_536}.{number // 256 % 256}.{number % 256}"
        if self._server is not None:
            host = self.driver.host
        process = world.new_process(f"{self.owner}.{serial}", host)
        process.wall_offset_ms = self.driver.wall_offset_ms
        self._attempts.append(_Attempt(process, task, attempt))
        process.on_death.append(
            partial(self._tell, LOSS_NOTICED_S, _Outcome(task, attempt, None, "executor lost"))
        )
        client_options = self.client_options(process)
        if producer_options is not None:
            dies = 0.0 if self.options.is_healed() else self.options.faults.die / 2
            journal = dying(self._note, process, dies, self.options.count)
            producer_options.update(client_options, journal=journal)
        about = TaskSurroundings(process, task, attempt, self.options.bootstrap, client_options)
        slow = rng.random() < self.options.faults.slow
        delay_s = rng.uniform(0.0, 1.5) if slow else rng.uniform(0.0, 0.02)
        world.scheduler.call_after(delay_s, process, self._begin, about, run)
        if not self.options.is_healed():
            driver = None if self._server is None else self.driver
            afflict(process, driver, world, self.options.faults, rng, self.options.count)

    def _begin(self, about: TaskSurroundings, run: Callable[[], list[Any]]) -> None:
        loop = about.process.loop
        assert isinstance(loop, ProcessLoop)
        loop.keep(self._execute(about, run))

    async def _execute(self, about: TaskSurroundings, run: Callable[[], list[Any]]) -> None:
        lockstep = Lockstep(about.process)
        lockstep.about = about
        try:
            outcome = _Outcome(about.task, about.attempt, await lockstep.run(run))
        except ProcessDied:
            return
        except Exception as error:  # noqa: BLE001 - a task boundary, as in Spark's executors
            if isinstance(error, DataLossError):
                self.options.count("data loss")
            if not isinstance(error, (PipelineError, ClientError)):
                # Else a model that no longer fits the code would only see tasks fail.
                self.options.world.bugs.append((about.process.name, error))
            text = f"{type(error).__name__}: {error}"
            is_usage = isinstance(error, UsageError)
            outcome = _Outcome(about.task, about.attempt, None, text, is_usage)
        self._tell(RPC_S, outcome)
        about.process.on_death = [
            tell for tell in about.process.on_death if getattr(tell, "func", None) != self._tell
        ]
        about.process.kill("exit")

    def _tell(self, within_s: tuple[float, float], outcome: _Outcome) -> None:
        delay_s = self._rng.uniform(*within_s)
        self.options.world.scheduler.call_after(
            delay_s, self.driver, self._outcomes.put_nowait, outcome
        )

    # --- the driver as the one sender

    def direct_writer(self, runner: Runner) -> DirectWriter:
        """The writer that small micro-batches go through."""
        options: dict[str, Any] = {**self.client_options(self.driver), "journal": self._note}
        sink = SinkOptions(
            bootstrap_servers=self.options.bootstrap,
            protocol=ProtocolOptions(self.options.application_id),
            topic=None,
            topics=None,
            max_tasks=None,
            batch_size=self._batch_size,
            compression_type="none",
            transaction_timeout_ms=self._rng.choice((3_000, 20_000)),
            progress_path=self.progress,
            client_options=options,
        )
        return DirectWriter(sink, runner)

    # --- Spark's status tracker, as `oncelog.spark.write_stage` asks it

    def spark_context(self) -> Any:
        """What `check_one_attempt` needs of a SparkContext."""
        shown = 0 if self._hides_failures else self.failed_tasks
        info = SimpleNamespace(currentAttemptId=self.stage_attempt, numFailedTasks=shown)
        ended = SimpleNamespace(stageIds=[0], status="SUCCEEDED")
        tracker = SimpleNamespace(getJobInfo=lambda job: ended, getStageInfo=lambda stage: info)
        java_tracker = SimpleNamespace(getJobIdsForTag=lambda tag: [1])
        java = SimpleNamespace(statusTracker=lambda: java_tracker)
        return SimpleNamespace(statusTracker=lambda: tracker, _jsc=SimpleNamespace(sc=lambda: java))


def _reported(work: StruckTask, batches: Iterable[Any]) -> list[Any]:
    """The rows that a task returns to Spark."""
    return [row for batch in work(batches) for row in batch.to_pylist()]


def _interleaved(rng: random.Random, blobs: list[Blob]) -> list[Blob]:
    """The blobs as one attempt gets them: each source partition's in order, mixed by chance."""
    queues: dict[int, list[Blob]] = {}
    for blob in reversed(blobs):
        queues.setdefault(blob.source, []).append(blob)
    mixed = []
    while queues:
        source = rng.choice(sorted(queues))
        mixed.append(queues[source].pop())
        if not queues[source]:
            del queues[source]
    return mixed

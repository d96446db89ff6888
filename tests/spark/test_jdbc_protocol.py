"""The batch driver on a real PostgreSQL, without Spark: crash points, fences, a server's crash.

A driver that dies is one whose connection is closed: the server sees no more of a SIGKILL.
"""

import json
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from oncelog.client.errors import ClientError
from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.errors import FailClosedError, StoppedError, UsageError, WriteStageError
from oncelog.spark.jdbc.copying import CopyTask
from oncelog.spark.jdbc.database import parse_url
from oncelog.spark.jdbc.runner import DirectRunner, StoppableRunner
from oncelog.spark.jdbc.sink import JdbcOptions, refuse_another_query
from oncelog.spark.jdbc.target import Target
from oncelog.spark.jdbc.transaction import (
    MARKER_PARTITION,
    STAGED_ROWS_COUNT_MAX,
    PostgresTransaction,
    StagedRows,
)
from oncelog.spark.marker import BatchIdentity, Marker
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.protocol_options import ProtocolOptions
from tests.support.postgres import PASSWORD, USER, PostgresProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


IN = TopicPartition("in", 0)


class KilledError(BaseException):
    """Stands for SIGKILL."""


class Steps(ProgressLog):
    """Ends the driver of a test once it has noted a step."""

    def __init__(self, last: str | None) -> None:
        super().__init__(None)
        self._last = last

    def step(self, name: str, batch_id: int, **details: object) -> None:
        super().step(name, batch_id, **details)
        if name == self._last:
            raise KilledError(name)


@dataclass
class Application:
    """One application id, its table, and the driver that runs now."""

    server: PostgresProcess
    name: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.drivers: list[Driver] = []
        self.table = self.name.replace("-", "_")
        self.server.run(f"CREATE TABLE {self.table} (id bigint NOT NULL, text text)")

    def set_key(self) -> None:
        self.keys = ("id",)
        self.server.run(f"ALTER TABLE {self.table} ADD PRIMARY KEY (id)")

    def driver(self, point: str | None = None, replaces: str | None = None) -> "Driver":
        self.drivers.append(Driver(self, point, replaces))
        return self.drivers[-1]

    def close(self) -> None:
        for driver in self.drivers:
            driver.runner.call(driver.transaction.close())

    def rows(self) -> list[Any]:
        return self.server.rows(f"SELECT id, text FROM {self.table} ORDER BY 1, 2")

    def stages(self) -> list[str]:
        prefix = self.driver().transaction._stage_prefix
        names = self.server.rows("SELECT relname FROM pg_class WHERE relkind = 'r'")
        return sorted(name for (name,) in names if name.startswith(prefix))


@pytest.fixture
def application(postgres: PostgresProcess) -> Iterator[Application]:
    one = Application(postgres)
    yield one
    one.close()


class Driver:
    """A Spark driver's process, as far as the database knows one."""

    def __init__(self, application: Application, point: str | None, replaces: str | None) -> None:
        self.database = parse_url(application.server.url, USER, PASSWORD)
        target = Target((application.table,), ("id", "text"), application.keys)
        self.transaction = PostgresTransaction(
            self.database, application.name, "oncelog_markers", target
        )
        options = ProtocolOptions(
            application.name,
            marker_partition=MARKER_PARTITION,
            has_group_markers=False,
            replaces_query=replaces,
        )
        self.runner = DirectRunner()
        self.driver = BatchProtocol(options, self.transaction, self.runner, Steps(point))

    def process(self, batch: "Batch") -> None:
        batch.driver = self
        self.driver.process(batch)

    def die(self, batch: "Batch") -> None:
        with pytest.raises(KilledError):
            self.process(batch)
        self.runner.call(self.transaction.close())


class Batch:
    """Three rows, copied by two tasks. `faults` are called by the writes in turn."""

    def __init__(
        self,
        batch_id: int,
        rows: Iterable[tuple[int, str]] | None = None,
        *faults: Callable[["Batch"], None],
    ) -> None:
        self.batch_id = batch_id
        self.query_id = "q"
        self.begins: dict[TopicPartition, int] | None = None
        self.rows = [(10 * batch_id + n, "x") for n in range(3)] if rows is None else list(rows)
        self.faults = list(faults)
        self.drains = 0
        self.writes = 0
        self.driver: Driver | None = None

    def source_lines(self) -> tuple[str, ...]:
        return (json.dumps({"in": {"0": 10 * (self.batch_id + 1)}}),)

    def planned_at_s(self) -> float | None:
        return None

    def initial_offsets(self) -> dict[TopicPartition, int] | None:
        return self.begins

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        assert self.driver is not None
        self.writes += 1
        self.copy(identity, 7, self.rows[:1])  # a first attempt that Spark lost
        staged = [
            StagedRows(attempt, self.copy(identity, attempt, rows))
            for attempt, rows in ((8, self.rows[:1]), (9, self.rows[1:]))
            if rows
        ]
        self.driver.transaction.staged = staged
        if self.faults:
            self.faults.pop(0)(self)
        return []

    def copy(self, identity: ProducerIdentity, attempt: int, rows: list[tuple[int, str]]) -> int:
        assert self.driver is not None
        task = CopyTask(
            self.driver.database,
            self.driver.transaction.staging,
            ("id", "text"),
            identity.producer_epoch,
            self.batch_id,
        )
        columns = [pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows])]
        return task.copy(attempt, [pa.record_batch(columns, names=["id", "text"])])

    def drain(self) -> None:
        self.drains += 1

    def next_watermark_ms(self) -> int | None:
        return None

    def is_stopping(self) -> bool:
        return False


def once(*batches: int) -> list[tuple[int, str]]:
    return [(10 * batch + n, "x") for batch in batches for n in range(3)]


@pytest.mark.parametrize(
    "point", ["wal_written", "after_init", "tasks_done", "offsets_committed", "txn_ended"]
)
def test_a_driver_killed_at_any_point_leaves_its_batch_to_the_next_one_exactly_once(
    application: Application, point: str
) -> None:
    application.driver().process(Batch(0))
    application.driver(point).die(Batch(1))
    is_committed = point == "txn_ended"
    assert application.rows() == (once(0, 1) if is_committed else once(0))
    driver, again = application.driver(), Batch(1)
    driver.process(again)
    assert (again.writes, again.drains) == ((0, 1) if is_committed else (1, 0))
    driver.process(Batch(2))
    assert application.rows() == once(0, 1, 2)
    assert len(application.stages()) == 1, "staging tables of dead drivers are left"


def test_a_failed_attempt_and_a_lost_task_leave_no_row(application: Application) -> None:
    def fail(batch: Batch) -> None:
        raise WriteStageError("a task fails")

    application.driver().process(Batch(0, None, fail, fail))
    assert application.rows() == once(0)


def test_a_frozen_driver_that_wakes_after_its_successor_commits_nothing(
    application: Application,
) -> None:
    zombie, successor = application.driver(), application.driver()
    zombie.process(Batch(0))

    def sleep(batch: Batch) -> None:
        successor.process(Batch(1))
        successor.process(Batch(2))

    with pytest.raises(FailClosedError, match="older-batch"):
        zombie.process(Batch(1, None, sleep))
    assert application.rows() == once(0, 1, 2)


def test_a_driver_that_froze_inside_its_transaction_is_fenced_by_the_row(
    application: Application,
    postgres: PostgresProcess,
) -> None:
    """Its successor waits for the row until the server ends the idle transaction."""
    frozen = application.driver()
    frozen.process(Batch(0))
    runner, transaction = frozen.runner, frozen.transaction
    runner.call(transaction.new_epoch())
    marker = Marker(2, BatchIdentity("q", 1, "hash"))
    runner.call(transaction.append(MARKER_PARTITION, b"", marker.encode().encode()))
    row = postgres.rows("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'")
    postgres.run(f"SELECT pg_terminate_backend({row[0][0]})")  # what the timeout does
    application.driver().process(Batch(1))
    with pytest.raises(ClientError, match="terminating connection"):
        runner.call(transaction.end(commit=True))
    assert application.rows() == once(0, 1)


def test_a_server_that_crashes_between_copy_and_commit_loses_no_row(
    application: Application,
    postgres: PostgresProcess,
) -> None:
    """Recovery empties the staging table, and the count tells."""

    def crash(batch: Batch) -> None:
        postgres.kill(signal.SIGQUIT)
        postgres.start()
        assert batch.driver is not None
        transaction = batch.driver.transaction
        DirectRunner().call(transaction.close())
        transaction._connection = batch.driver.database.connect()

    driver = application.driver()
    driver.process(Batch(0))
    batch = Batch(1, None, crash)
    driver.process(batch)
    assert batch.writes == 2
    assert application.rows() == once(0, 1)


def test_a_lost_answer_to_commit_is_settled_by_the_marker(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, batch = application.driver(), Batch(0)
    end = driver.transaction.end

    async def lost(commit: bool) -> None:
        await end(commit)
        monkeypatch.undo()
        await driver.transaction.close()
        await driver.transaction.new_epoch()  # what a call on a lost connection raises

    monkeypatch.setattr(driver.transaction, "end", lost)
    driver.process(batch)
    assert (batch.writes, batch.drains) == (1, 0)
    driver.process(Batch(1))
    assert application.rows() == once(0, 1)


def test_a_statement_of_a_stopped_query_ends_at_the_server_too(
    application: Application, postgres: PostgresProcess
) -> None:
    """It would hold the application's row, for which the next start waits."""
    driver = application.driver()
    driver.process(Batch(0))
    batch = Batch(1)
    batch.driver = driver
    driver.runner.call(driver.transaction.new_epoch())
    batch.write(ProducerIdentity(driver.transaction.producer_id, 2))
    marker = Marker(2, BatchIdentity("q", 1, "hash")).encode().encode()
    stoppable = StoppableRunner(driver.transaction, lambda: True)
    with postgres.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {application.table}".encode())
        with pytest.raises(StoppedError):
            stoppable.call(driver.transaction.append(MARKER_PARTITION, b"", marker))
        active = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'INSERT%'"
        deadline_s = time.monotonic() + 30
        while postgres.rows(active):
            assert time.monotonic() < deadline_s
    application.driver().process(Batch(1))
    assert application.rows() == once(0, 1)


def test_a_stopped_query_that_connects_in_the_end_fences_no_driver(
    application: Application, postgres: PostgresProcess
) -> None:
    application.driver().process(Batch(0))
    successor, late = application.driver(), application.driver()
    successor.process(Batch(1))
    epoch = successor.transaction.producer_id
    late.transaction.abandon()
    with pytest.raises(ClientError):
        late.runner.call(late.transaction.open())
    successor.process(Batch(2))
    assert successor.transaction.producer_id == epoch
    postgres.kill(signal.SIGQUIT)
    try:
        with pytest.raises(StoppedError, match="could not be reached"):
            late.runner.call(late.transaction.open())
    finally:
        postgres.start()


def test_an_upsert_replaces_rows_by_key_and_refuses_two_of_one_key(
    application: Application,
) -> None:
    application.set_key()
    driver = application.driver()
    driver.process(Batch(0, [(1, "a"), (2, "a")]))
    driver.process(Batch(1, [(2, "b"), (3, "b")]))
    assert application.rows() == [(1, "a"), (2, "b"), (3, "b")]
    batch = Batch(2, [(4, "c"), (4, "d")])
    with pytest.raises(UsageError, match="same key_columns"):
        driver.process(batch)
    assert batch.writes == 1, "a mistake of the user's was tried again"
    assert application.rows() == [(1, "a"), (2, "b"), (3, "b")]


def test_a_row_that_breaks_a_constraint_ends_the_query_without_a_trace_of_the_batch(
    application: Application,
    postgres: PostgresProcess,
) -> None:
    postgres.run(f"ALTER TABLE {application.table} ADD CHECK (text <> 'secret')")
    with pytest.raises(UsageError, match="violates check constraint") as refusal:
        application.driver().process(Batch(0, [(1, "fine"), (2, "secret")]))
    assert "secret" not in str(refusal.value)
    assert application.rows() == []


def test_an_empty_batch_writes_its_marker_only(application: Application) -> None:
    driver = application.driver()
    driver.process(Batch(0, []))
    driver.process(Batch(1))
    again = Batch(1)
    application.driver().process(again)
    assert again.drains == 1
    assert application.rows() == once(1)


def test_a_query_with_a_lost_checkpoint_goes_on_where_the_replaced_one_ended(
    application: Application, postgres: PostgresProcess
) -> None:
    application.driver().process(Batch(0))
    new = Batch(0, [(7, "new")])
    new.query_id = "new"
    with pytest.raises(FailClosedError, match="other-query"):
        application.driver().process(new)
    for begin, outcome in ((0, "written again"), (11, "written never"), (None, "not tell where")):
        new.begins = None if begin is None else {IN: begin}
        with pytest.raises(FailClosedError, match=outcome):
            application.driver(replaces="q").process(new)
    new.begins = {IN: 10}
    application.driver(replaces="q").process(new)
    assert application.rows() == sorted([*once(0), (7, "new")])


def test_a_start_that_is_refused_fences_no_driver(application: Application) -> None:
    live = application.driver()
    options = JdbcOptions(
        database=live.database,
        target=Target((application.table,), ("id", "text")),
        columns=(),
        marker_table="oncelog_markers",
        protocol=ProtocolOptions(application.name, marker_partition=MARKER_PARTITION),
        progress_path=None,
    )
    missing = replace(options, marker_table=f"{application.table}_markers")
    refuse_another_query(missing, None)
    live.process(Batch(0))
    for query_id in (None, "second"):
        with pytest.raises(FailClosedError, match="other-query"):
            refuse_another_query(options, query_id)
    refuse_another_query(options, "q")
    refuse_another_query(
        replace(options, protocol=replace(options.protocol, replaces_query="q")), None
    )
    epoch = live.transaction.producer_id
    live.process(Batch(1))
    assert live.transaction.producer_id == epoch
    assert application.rows() == once(0, 1)


def test_a_marker_table_without_the_offsets_gets_their_column(
    application: Application, postgres: PostgresProcess
) -> None:
    application.driver().process(Batch(0))
    postgres.run("ALTER TABLE oncelog_markers DROP COLUMN source_offsets")
    application.driver().process(Batch(1))
    assert application.rows() == once(0, 1)
    name = application.name
    found = postgres.rows(
        f"SELECT source_offsets FROM oncelog_markers WHERE application_id = '{name}'"
    )
    assert found == [('{"in": {"0": 20}}',)]


def test_a_full_staging_table_is_emptied_after_its_batch(
    application: Application, postgres: PostgresProcess
) -> None:
    driver = application.driver()
    driver.process(Batch(0, [(n, "x") for n in range(STAGED_ROWS_COUNT_MAX)]))
    assert postgres.rows(f"SELECT count(*) FROM {driver.transaction.staging}") == [(0,)]
    driver.process(Batch(1, [(-1, "x")]))
    assert len(application.rows()) == STAGED_ROWS_COUNT_MAX + 1


def test_a_marker_row_that_was_removed_with_its_epoch_does_not_keep_a_new_query_out(
    application: Application, postgres: PostgresProcess
) -> None:
    """The staging table of the first epoch is there already."""
    application.driver().process(Batch(0))
    postgres.run(f"DELETE FROM oncelog_markers WHERE application_id = '{application.name}'")
    application.driver().process(Batch(0, [(7, "again")]))
    assert application.rows() == [(0, "x"), (1, "x"), (2, "x"), (7, "again")]

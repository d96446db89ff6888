"""A query into PostgreSQL that is stopped while the database is away."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from oncelog.spark import exactly_once_jdbc, session
from tests.spark.job import QUICK_JVM, worker_environment
from tests.spark.striking import CrashPoint, struck
from tests.spark.support import end_session
from tests.support.postgres import PASSWORD, USER, PostgresProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

STOP_S_MAX = 10
STRIKE_TIMEOUT_S = 120
ROWS_COUNT = 20


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    end_session()
    os.environ.update(worker_environment())
    running = (
        session("jdbc-stopping", cores=2)
        .config("spark.log.level", "OFF")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .getOrCreate()
    )
    yield running
    running.stop()


STRIKES: dict[str, Callable[[], None]] = {}
"""What takes the database away, by the file that tells that it has happened."""


@dataclass(frozen=True, slots=True)
class Strike(CrashPoint):
    """Kills nothing of Spark's: it takes the database away, once, from Spark's driver."""

    struck: str = ""

    def is_at(self, name: str, batch_id: int) -> bool:
        is_driver = TaskContext.get() is None
        return is_driver and CrashPoint.is_at(self, name, batch_id) and not self.has_struck()

    def has_struck(self) -> bool:
        return Path(self.struck).exists()

    def kill(self, send: Callable[[int, int], None] = os.kill) -> None:
        STRIKES[self.struck]()
        Path(self.struck).touch()


@dataclass
class Outage:
    """Takes the server away, and brings it back."""

    server: PostgresProcess
    kind: str

    def __post_init__(self) -> None:
        self.pids: list[int] = []

    def begin(self) -> None:
        if self.kind == "frozen":
            self.pids = self.server.freeze()
        else:
            self.server.kill(signal.SIGQUIT)

    def end(self) -> None:
        if self.kind == "frozen":
            self.server.thaw(self.pids)
        else:
            self.server.start()


@pytest.mark.parametrize("point", ["after_init", "tasks_done", "ending"])
@pytest.mark.parametrize("kind", ["gone", "frozen"])
def test_a_query_that_is_stopped_does_not_wait_for_a_database_that_is_away(
    spark: SparkSession, postgres: PostgresProcess, tmp_path: Path, kind: str, point: str
) -> None:
    """INV-10: the batch is whole or not there, and the next start writes it once."""
    table = f"away_{kind}_{point}"
    postgres.run(f"CREATE TABLE {table} (id bigint)")
    folder, marked = tmp_path / "rows", str(tmp_path / "struck")
    folder.mkdir()
    (folder / "0.json").write_text("\n".join(f'{{"id": {n}}}' for n in range(ROWS_COUNT)))
    writer = exactly_once_jdbc(
        spark.readStream.schema("id long").json(str(folder)),
        url=postgres.url,
        user=USER,
        password=PASSWORD,
        table=table,
        application_id=table,
    )
    writer = struck(writer, Strike(point, struck=marked))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    outage = Outage(postgres, kind)
    STRIKES[marked] = outage.begin
    query = writer.start()
    try:
        deadline_s = time.monotonic() + STRIKE_TIMEOUT_S
        while not Path(marked).exists():
            assert time.monotonic() < deadline_s, query.exception()
            time.sleep(0.05)
        stopping = threading.Thread(target=query.stop)
        began_s = time.monotonic()
        stopping.start()
        stopping.join(STOP_S_MAX)
        took_s = time.monotonic() - began_s
    finally:
        outage.end()
    stopping.join(STRIKE_TIMEOUT_S)
    assert took_s < STOP_S_MAX
    assert query.exception() is None
    writer.trigger(availableNow=True).start().awaitTermination()
    assert postgres.rows(f"SELECT id FROM {table} ORDER BY id") == [(n,) for n in range(ROWS_COUNT)]

"""`exactly_once_jdbc` end to end: Spark, PostgreSQL, kills, failing tasks, every type."""

import datetime
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import oncelog.spark.jdbc.sink as sink_module
from oncelog.spark import (
    PipelineError,
    UsageError,
    exactly_once_jdbc,
    last_progress,
    session,
)
from oncelog.spark.jdbc.copying import CopyTask
from oncelog.spark.progress import STEPS
from oncelog.spark.versions import release
from tests.spark.faults import lose_shuffle
from tests.spark.job import QUICK_JVM, worker_environment
from tests.spark.support import JOB_TIMEOUT_S, end_session, kill_session
from tests.support.postgres import PASSWORD, USER, PostgresProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
FILES_COUNT = 4
ROWS_PER_FILE = 50


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    end_session()
    os.environ.update(worker_environment())
    running = (
        session("jdbc", cores=2)
        .master("local[2,3]")  # a task may fail twice
        .config("spark.log.level", "OFF")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .getOrCreate()
    )
    yield running
    running.stop()


def folder_of_orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    for number in range(FILES_COUNT):
        rows = [
            {"id": number * ROWS_PER_FILE + n, "customer": 'Ann, "A"', "amount": "1.50"}
            for n in range(ROWS_PER_FILE)
        ]
        path = folder / f"{number}.json"
        path.write_text("\n".join(json.dumps(row | {"at": "2026-01-02T03:04:05Z"}) for row in rows))
        os.utime(path, (number, number))
    return folder


def run_example(server: PostgresProcess, tmp_path: Path, crash_point: str) -> int:
    """Run examples/spark_postgresql.py to its end, or to the crash."""
    command = [sys.executable, "-m", "tests.spark.striking", crash_point]
    command += [str(ROOT / "examples" / "spark_postgresql.py")]
    command += [str(tmp_path / "orders"), server.url, str(tmp_path / "checkpoint")]
    environment = {**os.environ, **worker_environment()}
    environment |= {"PGUSER": USER, "PGPASSWORD": PASSWORD, "JDK_JAVA_OPTIONS": QUICK_JVM}
    with (tmp_path / "output").open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        return process.wait(JOB_TIMEOUT_S)
    finally:
        kill_session(process)


def crash_and_finish(server: PostgresProcess, tmp_path: Path, *points: str) -> None:
    folder_of_orders(tmp_path)
    server.run(
        "DROP TABLE IF EXISTS orders, oncelog_markers",
        "CREATE TABLE orders (id bigint, customer text, amount numeric(10,2), at timestamptz)",
    )
    output = tmp_path / "output"
    for point in points:
        assert run_example(server, tmp_path, point) == -9, output.read_text()
    assert run_example(server, tmp_path, "") == 0, output.read_text()
    assert PASSWORD not in output.read_text()
    ids = [row[0] for row in server.rows("SELECT id FROM orders ORDER BY id")]
    assert ids == list(range(FILES_COUNT * ROWS_PER_FILE))
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    rows = server.rows("SELECT DISTINCT customer, amount, at FROM orders")
    assert rows == [('Ann, "A"', Decimal("1.50"), at)]


@pytest.mark.soak
def test_a_driver_killed_between_commit_and_sparks_commit_log_leaves_every_row_once(
    postgres: PostgresProcess, tmp_path: Path
) -> None:
    """The row that needs Spark: the batch comes again. test_jdbc_protocol.py has all others."""
    crash_and_finish(postgres, tmp_path, "txn_ended:2")


@pytest.mark.soak
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("point", STEPS)
def test_every_row_of_the_crash_table(
    postgres: PostgresProcess, tmp_path: Path, point: str, batch: int
) -> None:
    crash_and_finish(postgres, tmp_path, f"{point}:{batch}")


TYPES = {
    "flag": ("boolean", "true", True),
    "small": ("smallint", "cast(-7 as smallint)", -7),
    "big": ("bigint", "9223372036854775807L", 9223372036854775807),
    "single": ("real", "cast(0.1 as float)", pytest.approx(0.1)),
    "double": ("double precision", "double('-Infinity')", float("-inf")),
    "money": ("numeric(38,10)", "cast('-0.0000000001' as decimal(38,10))", Decimal("-1E-10")),
    "empty": ("text", "''", ""),
    "none": ("text", "cast(null as string)", None),
    "words": ("varchar(40)", "'a,\"b\"\\n\\\\N ü'", 'a,"b"\n\\N ü'),
    "id": ("uuid", "'8c6b5a2e-0000-4000-8000-000000000001'", None),
    "bytes": ("bytea", "X'00FF22'", b"\x00\xff\x22"),
    "no_bytes": ("bytea", "X''", b""),
    "day": ("date", "date'1969-12-31'", datetime.date(1969, 12, 31)),
    "moment": (
        "timestamptz",
        "timestamp'2026-03-29 01:30:00.000001+02:00'",
        datetime.datetime(2026, 3, 28, 23, 30, 0, 1, tzinfo=datetime.UTC),
    ),
    "local": (
        "timestamp",
        "timestamp_ntz'2026-03-29 02:30:00.123456'",
        datetime.datetime(2026, 3, 29, 2, 30, 0, 123456),
    ),
    "numbers": ("integer[]", "array(1, null, 3)", [1, None, 3]),
    "texts": (
        "text[]",
        "array('a\"', 'NULL', null, '', '\\\\,}')",
        ['a"', "NULL", None, "", "\\,}"],
    ),
    "no_texts": ("text[]", "cast(array() as array<string>)", []),
    "moments": (
        "timestamptz[]",
        "array(timestamp'2026-03-29 01:30:00.000001+02:00')",
        [datetime.datetime(2026, 3, 28, 23, 30, 0, 1, tzinfo=datetime.UTC)],
    ),
    "blobs": ("bytea[]", "array(X'00', null)", [b"\x00", None]),
    "tree": ("jsonb", "named_struct('a', 1, 'b', cast(null as int))", {"a": 1, "b": None}),
    "map": ("jsonb", "map('k', array(1.5D))", {"k": [1.5]}),
    "text_json": ("json", "'{\"x\": [1]}'", {"x": [1]}),
}


def rows_of(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of orders, four micro-batches."""
    folder = folder_of_orders(tmp_path)
    reader = spark.readStream.schema("id long, customer string").option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


def write(df: DataFrame, server: PostgresProcess, tmp_path: Path, **options: Any) -> Any:
    settings = {"url": server.url, "user": USER, "password": PASSWORD} | options
    writer = exactly_once_jdbc(df, application_id=tmp_path.name, **settings)
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    )


def test_every_type_arrives_as_it_was(
    spark: SparkSession, postgres: PostgresProcess, tmp_path: Path
) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _, _) in TYPES.items())
    postgres.run('CREATE SCHEMA "My Shop"', f'CREATE TABLE "My Shop"."T" ({columns})')
    df = rows_of(spark, tmp_path).where("id = 0")
    df = df.select(*(F.expr(text).alias(name) for name, (_, text, _) in TYPES.items()))
    write(df, postgres, tmp_path, table='"My Shop"."T"').start().awaitTermination()
    names = ", ".join(f'"{name}"' for name in TYPES)
    (row,) = postgres.rows(f'SELECT {names} FROM "My Shop"."T"')
    found = dict(zip(TYPES, row, strict=True))
    assert str(found.pop("id")) == "8c6b5a2e-0000-4000-8000-000000000001"
    assert found == {name: value for name, (_, _, value) in TYPES.items() if name != "id"}


def test_a_failed_task_runs_again_inside_its_batch_and_an_upsert_keeps_one_row_per_key(
    spark: SparkSession, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.run("CREATE TABLE customers (customer text PRIMARY KEY, count bigint)")
    path = str(tmp_path / "failed")

    def fail_once(value: str) -> str:
        import os

        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        raise RuntimeError("a task fails, once")

    counts = rows_of(spark, tmp_path).groupBy("customer").count()
    failing = F.udf(fail_once, "string", useArrow=False)
    counts = counts.withColumn("customer", failing("customer"))
    progress = tmp_path / "progress"
    options = {"key_columns": ["customer"], "progress_path": str(progress)}
    writer = write(counts, postgres, tmp_path, table="customers", **options)
    query = writer.outputMode("update").start()
    query.awaitTermination()
    assert postgres.rows("SELECT * FROM customers") == [('Ann, "A"', FILES_COUNT * ROWS_PER_FILE)]
    assert Path(path).exists()
    assert '"failed"' not in progress.read_text(), "the batch, not the task, ran again"
    told = last_progress(query)
    assert told is not None
    assert told["oncelog"]["outcome"] == "committed"
    assert told["oncelog"]["numOutputRows"] == 1


CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""With either of them Spark notices that a shuffle has other rows when it is computed again."""


@dataclass(frozen=True, slots=True)
class LosingTask:
    """Copies; the first task that ends deletes the files of the shuffle that it read."""

    lost: str
    task: CopyTask

    def __call__(self, batches: Any) -> Any:
        yield from self.task(batches)
        lose_shuffle(self.lost)


@pytest.mark.soak
def test_rows_of_two_runs_of_a_lost_shuffle_are_not_committed_together(
    spark: SparkSession,
    postgres: PostgresProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """INV-10: Spark computes what is lost again, and other rows may be in each partition then.

    By default Spark compares checksums and fails the job itself; here that is turned off.
    """
    for name in CHECKSUMS:
        spark.conf.set(name, "false")
        request.addfinalizer(partial(spark.conf.unset, name))
    postgres.run("CREATE TABLE salted (id bigint, customer text)")
    lost, progress = tmp_path / "lost", tmp_path / "progress"

    def losing(**options: Any) -> LosingTask:
        return LosingTask(str(lost), CopyTask(**options))

    monkeypatch.setattr(sink_module, "CopyTask", losing)
    salt = F.udf(lambda key: random.randrange(10_000), "int", useArrow=False)
    rows = rows_of(spark, tmp_path).withColumn("salt", salt("id")).repartition(8, "salt")
    options = {"table": "salted", "progress_path": str(progress)}
    write(rows.drop("salt"), postgres, tmp_path, **options).start().awaitTermination()
    assert lost.exists()
    seen = Counter(row[0] for row in postgres.rows("SELECT id FROM salted"))
    assert seen == Counter(range(FILES_COUNT * ROWS_PER_FILE))
    steps = [json.loads(line) for line in progress.read_text().splitlines()]
    failures = [step["error"] for step in steps if step["step"] == "failed"]
    assert [bool(re.search("attempt", failure)) for failure in failures] == [True]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("missing", {}, r'CREATE TABLE "missing" \("id" bigint, "customer" text\)'),
        ("narrow", {}, "'id' is bigint and integer in PostgreSQL"),
        ("fewer", {}, 'ADD COLUMN "customer" text'),
        ("strict", {}, "'day' of table strict is NOT NULL"),
        ("seen", {}, "no table"),
        ("plain", {"key_columns": ["id"]}, r"ADD PRIMARY KEY \(\"id\"\)"),
        ("plain", {"key_columns": ["x"]}, "names 'x'"),
        ("loose", {"key_columns": ["id"]}, "SET NOT NULL"),
        ("plain", {"password": "wrong"}, "password authentication failed"),
        ("plain", {"url": "jdbc:postgresql://127.0.0.1:1/postgres"}, "refused"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_start(
    spark: SparkSession,
    postgres: PostgresProcess,
    tmp_path: Path,
    table: str,
    options: dict[str, Any],
    message: str,
) -> None:
    postgres.run(
        "CREATE TABLE IF NOT EXISTS narrow (id integer, customer text)",
        "CREATE TABLE IF NOT EXISTS fewer (id bigint)",
        "CREATE TABLE IF NOT EXISTS strict (id bigint, customer text, day date NOT NULL)",
        "CREATE TABLE IF NOT EXISTS plain (id bigint, customer text)",
        "CREATE TABLE IF NOT EXISTS loose (id bigint UNIQUE, customer text)",
        "CREATE OR REPLACE VIEW seen AS SELECT * FROM plain",
    )
    with pytest.raises(PipelineError, match=message) as refusal:
        write(rows_of(spark, tmp_path), postgres, tmp_path, table=table, **options)
    assert PASSWORD not in str(refusal.value)


def test_a_query_without_a_lasting_checkpoint_does_not_start(
    spark: SparkSession, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.run("CREATE TABLE IF NOT EXISTS plain (id bigint, customer text)")
    settings: dict[str, Any] = {"url": postgres.url, "user": USER, "password": PASSWORD}
    writer = exactly_once_jdbc(
        rows_of(spark, tmp_path), application_id="a", table="plain", **settings
    )
    with pytest.raises(UsageError, match="name a lasting one"):
        writer.start()


def test_a_query_with_state_takes_the_place_of_none(spark: SparkSession) -> None:
    """It is refused before the database is asked for anything."""
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    with pytest.raises(UsageError, match="has an aggregation, and would begin with an empty state"):
        exactly_once_jdbc(
            counts,
            url="jdbc:postgresql://127.0.0.1:1/none",
            table="t",
            application_id="replacing",
            replaces_query="6b1f7d34-4c0c-4a36-9d5e-0b3f8f0b8a11",
        )


SPARKS_CALLS_COUNT = 3
"""From the JVM to the function that `foreachBatch` was given."""

HAS_STATES = release() >= (4, 0)
"""Whether this PySpark gives a failure an SQLSTATE, on a line of its own."""
RAISED = "[USER_RAISED_EXCEPTION]" if HAS_STATES else "RuntimeException: no such customer"

FAILURES = {
    "a bug in a function of the user's": ("fails(customer)", "ValueError: no such customer"),
    "an error of Spark's": ("string(raise_error('no such customer'))", RAISED),
    "a value that the table refuses": ("'secret'", "violates check constraint"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_query_that_fails_says_why_in_one_short_line(
    spark: SparkSession, postgres: PostgresProcess, tmp_path: Path, case: str
) -> None:
    expression, cause = FAILURES[case]
    table = "CREATE TABLE IF NOT EXISTS checked (id bigint, customer text CHECK (customer <> '"
    postgres.run(f"{table}secret'))")

    def fails(value: str) -> str:
        raise ValueError("no such customer")

    spark.udf.register("fails", F.udf(fails, "string", useArrow=False))
    rows = rows_of(spark, tmp_path).withColumn("customer", F.expr(expression))
    query = write(rows, postgres, tmp_path, table="checked", write_attempts=1).start()
    with pytest.raises(StreamingQueryException) as failure:
        query.awaitTermination()
    # Spark puts the calls down to ours before the message, and the query's plan behind it.
    message = str(failure.value).partition("=== Streaming Query ===")[0]
    assert message.count('  File "') <= SPARKS_CALLS_COUNT + 1, message
    lines = [line for line in message.splitlines() if line[:2].strip()]
    if HAS_STATES:
        assert lines.pop().startswith(" SQLSTATE")
    _, said = lines
    assert said.startswith("oncelog.spark.errors.")
    assert cause in said
    assert len(said) < 1000
    assert "secret" not in said
    assert postgres.rows("SELECT * FROM checked") == []

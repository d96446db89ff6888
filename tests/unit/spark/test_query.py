"""What needs no Spark: how checkpoints are read."""

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from oncelog.spark import query
from oncelog.spark.errors import DrainError, StoppedError, WriteStageError
from oncelog.spark.parties import MicroBatch
from oncelog.spark.query import ForeachBatch, SparkMicroBatch, described, read_text
from tests.support.logged import said_by


@pytest.mark.parametrize("name", ["check point", "run#1", "a?b", "dt=2026%2D11", "100%"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_checkpoint_is_read_by_the_path_that_spark_gives(
    tmp_path: Path, name: str, prefix: str
) -> None:
    """Spark's paths are Hadoop's: nothing in them is escaped."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "0").write_text("v1")
    assert read_text(None, f"{prefix}{folder}/0") == "v1"


class IdleRun(query.QueryRun):
    """A run of a sink that writes nothing."""

    def prepare(self) -> None:
        pass

    def process(self, batch: MicroBatch) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("master", "shares"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*, 3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://127.0.0.1:7077", False),
        ("yarn", False),
        ("k8s://https://local:443", False),
    ],
)
def test_tasks_are_in_the_drivers_jvm_in_a_local_spark_only(master: str, shares: bool) -> None:
    found = SimpleNamespace(run_id="r", query_id="q", checkpoint="")
    run = IdleRun(found, SimpleNamespace(master=master), None)
    assert run.shares_machine is shares


def test_a_jobs_description_is_put_back() -> None:
    class Context:
        def __init__(self) -> None:
            self.properties: dict[str, str | None] = {"spark.job.description": "Spark's"}
            self.seen: list[str | None] = []

        def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's names
            return self.properties[name]

        def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
            self.properties[name] = value
            self.seen.append(value)

    context = Context()
    with described(context, "batch 7"):
        assert context.properties == {"spark.job.description": "batch 7"}
    assert context.seen == ["batch 7", "Spark's"]


class Frame:
    """A DataFrame whose records are gone."""

    @property
    def write(self) -> "Frame":
        return self

    def format(self, name: str) -> "Frame":
        return self

    def mode(self, name: str) -> "Frame":
        return self

    def save(self) -> None:
        raise Py4JError("DataLossError: in-0 no longer has offset 3")


def run_of_a_query(*, is_stopping: bool = False) -> Any:
    context = SimpleNamespace(
        getLocalProperty=lambda name: None, setLocalProperty=lambda name, value: None
    )
    return SimpleNamespace(
        query_id="q", context=context, checkpoint="/c", is_stopping=lambda: is_stopping
    )


@pytest.fixture
def batch() -> SparkMicroBatch:
    frame: Any = Frame()
    return SparkMicroBatch(run_of_a_query(), frame, 7)


def test_a_committed_batch_without_state_needs_no_records_any_more(
    batch: SparkMicroBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "exists", lambda context, path: False)
    batch.drain()


def test_a_committed_batch_whose_state_cannot_be_made_again_says_so(
    batch: SparkMicroBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "exists", lambda context, path: path == "/c/state")
    with pytest.raises(DrainError, match=r"batch 7 is committed.*no longer has offset 3") as failed:
        batch.drain()
    assert len(traceback.format_exception(failed.value)[-1]) < 1000
    assert "Py4JError" not in "".join(traceback.format_exception(failed.value))


def test_a_drain_that_a_stop_cancels_is_no_lost_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "exists", lambda context, path: path == "/c/state")
    frame: Any = Frame()
    with pytest.raises(StoppedError, match="batch 7 again for its state; the batch is committed"):
        SparkMicroBatch(run_of_a_query(is_stopping=True), frame, 7).drain()


def call_sink(process: Callable[[object], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what Spark does for batch 7, with a run that does this for it."""
    run: Any = SimpleNamespace(process=process)
    spark = SimpleNamespace(streams=SimpleNamespace(get=lambda query_id: None))
    batch: Any = object()
    sink: ForeachBatch[Any] = ForeachBatch(spark, lambda *_: run, lambda *_: batch)
    monkeypatch.setattr(sink, "run_of", lambda query, context: run)
    context = SimpleNamespace(getLocalProperty=lambda name: "q")
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    sink(frame, 7)


def test_a_batch_that_fails_says_why_and_not_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes the traceback a part of the query's message."""

    def process(batch: object) -> None:
        try:
            raise Py4JError("at org.apache.spark")
        except Py4JError as error:
            raise WriteStageError("the write stage failed: no space left") from error

    with pytest.raises(WriteStageError, match="no space left") as raised:
        call_sink(process, monkeypatch)
    text = "".join(traceback.format_exception(raised.value))
    assert "org.apache.spark" not in text
    assert "in process" not in text


def test_a_bug_of_ours_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(batch: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        call_sink(process, monkeypatch)
    assert "in process" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "between",
    [pytest.param(r"((.|\r\n|\r|\n)*)", id="4.x"), pytest.param(r".+(\r\n|\r|\n): ", id="3.5")],
)
def test_a_stopped_query_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, between: str
) -> None:
    """Spark knows its own interruption by the text of the error, within few bytes of stack."""

    def process(batch: object) -> None:
        raise StoppedError("the query was stopped while it wrote batch 7")

    with pytest.raises(StoppedError) as raised:
        call_sink(process, monkeypatch)
    text = "".join(traceback.format_exception(raised.value))
    assert re.search(
        r"py4j\.protocol\.Py4JJavaError: An error occurred while calling"
        rf"{between}java\.lang\.InterruptedException",
        text,
    )
    assert [record.getMessage() for record in said_by(caplog)] == [
        "the query was stopped while it wrote batch 7"
    ]

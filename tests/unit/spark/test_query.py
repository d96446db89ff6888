"""What needs no Spark: how checkpoints are read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from oncelog.spark import query
from oncelog.spark.errors import DrainError
from oncelog.spark.query import QueryBatch, described, read_text


def test_a_checkpoint_path_with_spaces_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "0").write_text("v1")
    assert read_text(None, (folder / "0").as_uri()) == "v1"
    assert read_text(None, str(folder / "0")) == "v1"


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


@pytest.fixture
def batch() -> QueryBatch:
    context = SimpleNamespace(
        getLocalProperty=lambda name: None, setLocalProperty=lambda name, value: None
    )
    run: Any = SimpleNamespace(query_id="q", context=context, checkpoint="/c")
    frame: Any = Frame()
    return QueryBatch(run, frame, 7)


def test_a_committed_batch_without_state_needs_no_records_any_more(
    batch: QueryBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "exists", lambda context, path: False)
    batch.drain()


def test_a_committed_batch_whose_state_cannot_be_made_again_says_so(
    batch: QueryBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "exists", lambda context, path: path == "/c/state")
    with pytest.raises(DrainError, match=r"batch 7 is committed.*no longer has offset 3"):
        batch.drain()

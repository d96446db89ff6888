"""What needs no Spark: how checkpoints are read."""

from pathlib import Path

from oncelog.spark.query import described, read_text


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

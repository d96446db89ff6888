"""What needs no Spark: how checkpoints are read."""

from pathlib import Path

from oncelog.spark.query import read_text


def test_a_checkpoint_path_with_spaces_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "0").write_text("v1")
    assert read_text(None, (folder / "0").as_uri()) == "v1"
    assert read_text(None, str(folder / "0")) == "v1"

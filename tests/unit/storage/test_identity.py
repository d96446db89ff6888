"""Whose a log directory is, and what is refused without a change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oncelog.storage import FolderMismatch
from tests.support.folders import open_logs, take_folders
from tests.unit.storage.test_log_manager import PARTITION, contents, fill


def assert_refused(folder: Path, match: str, node_id: int = 1) -> None:
    (folder / ".lock").touch()
    before = contents(folder)
    with pytest.raises(FolderMismatch, match=match):
        take_folders(folder, node_id=node_id)
    assert contents(folder) == before


def test_a_folder_of_another_broker_is_refused(tmp_path: Path) -> None:
    open_logs(tmp_path).close()
    assert_refused(tmp_path, "belongs to broker 1, not 2", node_id=2)


def test_a_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    assert_refused(tmp_path, "another program")


def test_an_empty_meta_properties_without_a_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("")
    assert_refused(tmp_path, r"no oncelog\.format")


@pytest.mark.parametrize("name", ["t-0", "t-0." + "0" * 32 + "-stray"])
def test_a_folder_with_partitions_and_no_format_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert_refused(tmp_path, rf"holds {name} but no oncelog\.format")


def test_a_new_folder_may_hold_what_is_of_no_broker(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    open_logs(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.damages
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"meta\.properties of the folder .* is empty"),
        (b" \n\n", "is empty"),
        (b"\x00" * 80, r"has no valid cluster\.id"),
        (b"version=1\ncluster.id=c\nnode.id=1\n", r"has no valid directory\.id"),
        (b"version=1\ncluster.id=c\nnode.id=one\ndirectory.id=d\n", r"has no valid node\.id"),
    ],
)
@pytest.mark.parametrize("filled", [True, False])
def test_a_damaged_meta_properties_is_refused_and_never_overwritten(
    tmp_path: Path, content: bytes, match: str, filled: bool
) -> None:
    manager = open_logs(tmp_path)
    if filled:
        fill(manager)
    manager.close()
    (tmp_path / "meta.properties").write_bytes(content)
    assert_refused(tmp_path, match)


@pytest.mark.damages
def test_a_missing_meta_properties_is_refused_and_not_created_again(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / "meta.properties").unlink()
    assert_refused(tmp_path, r"holds .*, but its meta\.properties is gone: put it back")


@pytest.mark.damages
@pytest.mark.parametrize("made", [[], ["metadata.sqlite", "metadata.sqlite-wal"]])
def test_a_first_start_that_died_between_its_two_files_is_finished(
    tmp_path: Path, made: list[str]
) -> None:
    for name in made:
        (tmp_path / name).touch()
    (tmp_path / "oncelog.format").write_text("2\n")
    open_logs(tmp_path).close()
    assert "cluster.id=" in (tmp_path / "meta.properties").read_text()


def test_an_older_format_is_upgraded_and_a_newer_one_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / "oncelog.format").write_text("1\n")
    meta = (tmp_path / "meta.properties").read_text()
    with caplog.at_level(logging.INFO):
        again = open_logs(tmp_path)
    assert "from format 1 to 2: older versions of Oncelog refuse it" in caplog.text
    held = again.get(PARTITION)
    assert held is not None
    assert held.log_end_offset == 3
    again.close()
    assert (tmp_path / "oncelog.format").read_text() == "2\n"
    assert (tmp_path / "meta.properties").read_text() == meta
    (tmp_path / "oncelog.format").write_text("3\n")
    assert_refused(tmp_path, "has format 3 of a newer Oncelog; this version reads formats 1 to 2")


@pytest.mark.damages
@pytest.mark.parametrize("content", [b"", b"two\n", b"0\n", b"\xb2\n"])
def test_a_damaged_format_is_refused(tmp_path: Path, content: bytes) -> None:
    open_logs(tmp_path).close()
    (tmp_path / "oncelog.format").write_bytes(content)
    assert_refused(tmp_path, r"the oncelog\.format of the folder .* is damaged")

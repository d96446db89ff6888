"""Log directories whose disks were exchanged: what is missing, and what came in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

from oncelog.storage import LogManager
from tests.support.folders import take_folders

NAMES = ("a", "b")


def started(root: Path, noted: frozenset[str], *names: str) -> LogManager:
    """A start of which the store has noted these directories. It dies right after."""
    manager = take_folders(*(root / name for name in names))
    manager.expect(noted)
    manager.abandon()
    return manager


def registered(root: Path, *names: str) -> frozenset[str]:
    return started(root, frozenset(), *names).directory_ids


def exchange(root: Path, name: str) -> None:
    shutil.rmtree(root / name)
    (root / name).mkdir()


def rename(root: Path, name: str, directory_id: str) -> None:
    """Give a new directory an id that no other had: here ids are numbers."""
    path = root / name / "meta.properties"
    found = take_folders(root / name)
    (own,) = found.directory_ids
    found.abandon()
    path.write_text(path.read_text().replace(own, directory_id))


def exchanged(root: Path, name: str, directory_id: str) -> None:
    exchange(root, name)
    rename(root, name, directory_id)


def test_a_disk_is_exchanged_where_one_came_for_the_one_that_is_missing(tmp_path: Path) -> None:
    noted = registered(tmp_path, *NAMES)
    assert started(tmp_path, noted, *NAMES).has_all
    exchanged(tmp_path, "b", "new")
    manager = started(tmp_path, noted, *NAMES)
    assert len(manager.missing) == 1
    assert manager.has_replacements


def test_an_exchange_is_known_after_a_kill_and_after_a_registration(tmp_path: Path) -> None:
    noted = registered(tmp_path, *NAMES)
    exchanged(tmp_path, "b", "new")
    for _ in range(2):
        manager = started(tmp_path, noted, *NAMES)
        assert manager.has_replacements
    again = started(tmp_path, noted | manager.directory_ids, *NAMES)
    assert again.missing == manager.missing
    assert again.has_replacements


def test_a_disk_that_is_exchanged_again_replaces_both(tmp_path: Path) -> None:
    noted = registered(tmp_path, "a")
    for directory_id in ("second", "third"):
        exchanged(tmp_path, "a", directory_id)
        manager = started(tmp_path, noted, "a")
        assert manager.has_replacements
        noted |= manager.directory_ids
    assert len(manager.missing) == 2


def test_a_directory_that_is_left_out_is_not_exchanged(tmp_path: Path) -> None:
    noted = registered(tmp_path, *NAMES)
    manager = started(tmp_path, noted, "a")
    assert len(manager.missing) == 1
    assert not manager.has_replacements


def test_one_new_disk_does_not_replace_two(tmp_path: Path) -> None:
    noted = registered(tmp_path, *NAMES, "c")
    exchanged(tmp_path, "b", "new")
    manager = started(tmp_path, noted, "a", "b")
    assert len(manager.missing) == 2
    assert not manager.has_replacements

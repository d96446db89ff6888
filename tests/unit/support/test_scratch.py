"""Folders of tests in memory."""

from pathlib import Path

from tests.support.scratch import scratch_folder


def test_a_folder_with_room_is_used(tmp_path: Path) -> None:
    assert scratch_folder(str(tmp_path), 1) == str(tmp_path)


def test_a_system_without_room_in_memory_uses_its_disk(tmp_path: Path) -> None:
    assert scratch_folder(str(tmp_path / "missing"), 1) is None
    assert scratch_folder(str(tmp_path), 1 << 80) is None

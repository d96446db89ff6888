"""From the death of a broker on, its disk takes nothing more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.testing.disk import ControlledDisk, Killed


@pytest.fixture
def disk(tmp_path: Path) -> ControlledDisk:
    (tmp_path / "old").write_bytes(b"old")
    return ControlledDisk()


def test_a_write_is_seen_before_and_after(disk: ControlledDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "old")
    seen: list[tuple[str, bytes, bool, bytes]] = []
    disk.watch = lambda name, data, is_coming: seen.append(
        (name, bytes(data), is_coming, Path(path).read_bytes())
    )
    disk.open(path).pwrite(b"new", 0)
    assert seen == [(path, b"new", True, b"old"), (path, b"new", False, b"new")]


@pytest.mark.parametrize(
    "change",
    [
        lambda disk, path: disk.open(path + "2", create=True),
        lambda disk, path: disk.mkdir(path + "2"),
        lambda disk, path: disk.rename(path, path + "2"),
        lambda disk, path: disk.remove(path),
        lambda disk, path: disk.remove_tree(path),
        lambda disk, path: disk.write_atomic(path, b"new", sync=False),
        lambda disk, path: disk.open(path).pwrite(b"new", 0),
        lambda disk, path: disk.open(path).truncate(0),
    ],
)
def test_a_dead_broker_changes_nothing(
    disk: ControlledDisk, tmp_path: Path, change: Callable[[ControlledDisk, str], object]
) -> None:
    disk.is_dead = True
    with pytest.raises(Killed):
        change(disk, str(tmp_path / "old"))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old", b"old")]
    assert disk.open(str(tmp_path / "old")).pread(3, 0) == b"old"

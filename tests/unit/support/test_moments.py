"""Every change of a disk has a moment before it and one after it, and a process may end at each."""

from pathlib import Path

import pytest

from oncelog.runtime.disk import SystemDisk
from tests.support.moments import Moments, counted_disk


class EndedError(Exception):
    pass


def act(folder: Path, end_at: int) -> str:
    """Three changes; returns at which moment they ended, "" if they did not."""

    def end(what: str) -> None:
        raise EndedError(what.replace(str(folder), ""))

    disk = counted_disk(SystemDisk(), Moments(end, end_at))
    try:
        disk.mkdir(f"{folder}/d")
        file = disk.open(f"{folder}/f", create=True)
        file.pwrite(b"ab", 0)
        assert file.pread(2, 0) == b"ab"
        file.fsync()
    except EndedError as ended:
        return str(ended)
    return ""


@pytest.mark.parametrize(
    ("end_at", "where"),
    [
        (1, "before mkdir of /d"),
        (2, "after mkdir of /d"),
        (3, "before write to /f"),
        (4, "after write to /f"),
        (5, "before fsync of /f"),
        (6, "after fsync of /f"),
        (7, ""),
    ],
)
def test_a_process_ends_at_that_moment(tmp_path: Path, end_at: int, where: str) -> None:
    assert act(tmp_path, end_at) == where
    written = (tmp_path / "f").read_bytes() if (tmp_path / "f").exists() else b""
    assert written == (b"ab" if end_at > 3 else b"")

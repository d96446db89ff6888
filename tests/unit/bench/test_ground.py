"""What a figure stands on is named beside it."""

import platform
from pathlib import Path

import pytest

from bench.ground import file_system, ground, python_build

VERSION = f"Python {platform.python_version()}"


@pytest.mark.parametrize(
    ("prefix", "configured", "told"),
    [
        ("/opt", "'--enable-optimizations' '--with-lto'", "with PGO and LTO"),
        ("/opt", "'--enable-optimizations'", "with PGO, without LTO"),
        ("/opt", "'--enable-shared'", "without PGO and LTO"),
        ("/usr", "'--enable-shared'", "of the distribution"),
    ],
)
def test_a_build_of_python_tells_its_optimizations(prefix: str, configured: str, told: str) -> None:
    assert python_build(prefix, configured) == f"{VERSION} {told}"


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n/dev/vdb /data xfs rw 0 0\n"
    (tmp_path / "mounts").write_text(mounts)
    journals = tmp_path / "fs" / "jbd2"
    journals.mkdir(parents=True)
    assert file_system(tmp_path / "logs", tmp_path) == "tmpfs"
    assert file_system(Path("/data"), tmp_path) == "xfs"
    assert file_system(Path("/database"), tmp_path) == "ext4 without a journal"
    (journals / "vda-8").touch()
    assert file_system(Path("/"), tmp_path) == "ext4 with a journal"


def test_this_machine_has_a_ground(tmp_path: Path) -> None:
    assert ground(tmp_path).startswith(f"{VERSION} ")

"""Files beside the log are synced while other threads write and delete them."""

import errno
from pathlib import Path

import pytest

from oncelog.runtime import DiskFile, StorageFailure, SystemDisk
from oncelog.storage.state_files import StateFiles


class LateDisk(SystemDisk):
    """Another thread writes each missing file right after it was found missing."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        try:
            return super().open(path, create=create)
        except StorageFailure:
            Path(path).write_bytes(b"0\n0\n")
            raise


class FullDisk(SystemDisk):
    """No descriptor is left."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        raise StorageFailure("open", path, OSError(errno.EMFILE, "too many open files"))


def test_a_file_written_for_the_first_time_meanwhile_does_not_end_the_log(tmp_path: Path) -> None:
    StateFiles(LateDisk(), str(tmp_path)).sync_names()


def test_a_file_that_is_there_and_cannot_be_opened_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    with pytest.raises(StorageFailure, match="too many open files"):
        StateFiles(FullDisk(), str(tmp_path)).sync_names()

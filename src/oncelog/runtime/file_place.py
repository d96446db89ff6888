"""Where a file is on this machine, by which a copy or a restart of the system is told apart."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

__all__ = ["FilePlace", "boot_id", "system_place"]

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_MOUNTS_PATH: Final = "/proc/self/mountinfo"

LOCAL_FILE_SYSTEMS: Final = frozenset(
    "bcachefs btrfs ext2 ext3 ext4 f2fs jfs tmpfs xfs zfs".split()  # noqa: SIM905 - reads better
)
"""File systems of this machine alone: what a process wrote outlives it in the page cache.

Others keep pages on another machine or in another process, or are layers over an unknown one.
"""


class FilePlace(NamedTuple):
    """A copy of a file has another inode, and each boot of the system another `boot_id`."""

    boot_id: str
    """Of the running system; empty where it has none."""
    device: int
    inode: int
    is_local: bool
    """Whether what was written here outlives its process, as long as the system runs."""

    def is_same_boot(self, other: FilePlace) -> bool:
        """Whether both are one file, and the system has not gone down between."""
        here, there = (self.boot_id, *self[1:3]), (other.boot_id, *other[1:3])
        return bool(self.boot_id) and here == there


def boot_id() -> str:
    """Return the id of the running system, another after each restart; empty where it has none."""
    return _read(_BOOT_ID_PATH).strip()


def system_place(path: str) -> FilePlace | None:
    """Return the place of a file of this machine; None where there is none. Raises `OSError`."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    is_local = _file_system(os.path.realpath(path)) in LOCAL_FILE_SYSTEMS
    return FilePlace(boot_id(), status.st_dev, status.st_ino, is_local)


def _file_system(path: str) -> str:
    """The type of the file system that a real path is on; empty where that is unknown."""
    found, found_length = "", -1
    for line in _read(_MOUNTS_PATH).splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        # A later mount hides an earlier one at the same point.
        if len(point) >= found_length and (path == point or path.startswith(f"{point}/")):
            found, found_length = source.split(" ", 1)[0], len(point)
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

"""Reads and writes the note of a broker's life in a log directory; `lives` says what it means."""

from __future__ import annotations

import contextlib

from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.files import CLEAN_SHUTDOWN_NAME, LIFE_NAME
from oncelog.storage.lives import (
    FolderLife,
    LifeNote,
    format_note,
    parse_clean_shutdown,
    parse_note,
)

__all__ = ["forget_life", "note_life", "read_life"]


def read_life(disk: Disk, directory: str, *, is_new: bool) -> FolderLife:
    """Return what a folder says of its last life, before a start changes it. Blocking."""
    path = f"{directory}/{LIFE_NAME}"
    return FolderLife(
        directory,
        is_new,
        parse_clean_shutdown(disk.read(f"{directory}/{CLEAN_SHUTDOWN_NAME}")),
        parse_note(disk.read(path)),
        disk.place_of(path),
    )


def note_life(disk: Disk, directory: str, broker_epoch: int, *, is_synced: bool) -> None:
    """Note the broker's present life in a folder. Blocking. Without space there is no note.

    Raises `StorageFailure`.
    """
    try:
        _write_note(disk, directory, broker_epoch, is_synced=is_synced)
    except StorageFailure as failure:
        forget_life(disk, directory)
        if not failure.refused:
            raise


def forget_life(disk: Disk, directory: str) -> None:
    """Have the next start count as unclean unless this folder is closed cleanly. Blocking."""
    with contextlib.suppress(StorageFailure):
        disk.remove(f"{directory}/{LIFE_NAME}")


def _write_note(disk: Disk, directory: str, broker_epoch: int, *, is_synced: bool) -> None:
    """Write the note in a new file, which knows its own inode."""
    path = f"{directory}/{LIFE_NAME}"
    temporary = f"{path}.tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)  # A process may have died here before.
        place = disk.place_of(temporary)
        if place is None:
            return
        file.pwrite(format_note(LifeNote(broker_epoch, place, is_synced)), 0)
        if is_synced:
            file.fsync()
    finally:
        file.close()
    disk.rename(temporary, path)
    if is_synced:
        disk.sync_dir(directory)

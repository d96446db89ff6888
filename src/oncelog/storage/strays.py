"""Finds, restores or removes stray folders of partitions, when an administrator decides so.

For a tool that holds the locks of the log directories while no broker runs. A restored folder has
the same files under the partition's name, as after a crash: the next start recovers it. The folder
that it replaces becomes a stray itself, unless no record was written to it (D14).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.runtime.disk import Disk
from oncelog.storage.checkpoints import (
    format_offsets,
    format_partition_metadata,
    log_start_in,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from oncelog.storage.files import (
    CLEAN_OFFSETS_NAME,
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARKS_NAME,
    LOG_STARTS_NAME,
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    RECOVERY_POINTS_NAME,
    STRAY_NOTE_NAME,
)
from oncelog.storage.folder_names import STRAY_SUFFIX, parse_folder_name, parse_suffixed_name
from oncelog.storage.identity import FolderMismatch
from oncelog.storage.log_directory import LogDirectory

__all__ = ["Stray", "find_strays", "remove_stray", "restore_stray"]

_CHECKPOINTS = (RECOVERY_POINTS_NAME, HIGH_WATERMARKS_NAME, LOG_STARTS_NAME, CLEAN_OFFSETS_NAME)


class Stray(NamedTuple):
    """One folder that was set aside. `partition` is None where its name was cut off."""

    directory: str
    name: str
    partition: TopicPartition | None
    topic_id: TopicId | None
    size_bytes: int
    reason: str | None
    log_start_offset: int

    @property
    def path(self) -> str:
        """The path of its files."""
        return f"{self.directory}/{self.name}"


def find_strays(disk: Disk, directory: str) -> list[Stray]:
    """Return all strays of a log directory, by name. Blocking."""
    return [
        _look_at(disk, directory, name)
        for name in disk.list(directory)
        if _is_stray(name) and disk.is_dir(f"{directory}/{name}")
    ]


def restore_stray(disk: Disk, stray: Stray, folders: Sequence[LogDirectory]) -> str | None:
    """Restore a stray; return the new path of the folder that it replaced. Blocking.

    `folders` are all log directories of the broker, taken. The partition must be in one of them,
    which has the topic's id. Raises `FolderMismatch`, and nothing has changed then.
    """
    partition = stray.partition
    if partition is None:
        raise FolderMismatch(f"{stray.path} does not say which partition it was of")
    present = next((folder for folder in folders if partition in folder), None)
    if present is None:
        raise FolderMismatch(
            f"no folder {partition} is in {', '.join(folder.directory for folder in folders)}: "
            "name all log directories of the broker, or have it create the topic "
            f"{partition.topic} with at least {partition.partition + 1} partitions first, "
            "and stop it"
        )
    topic_id = present.topic_id(partition)
    if topic_id is None:
        raise FolderMismatch(f"{present.path_of(partition)} does not say of which topic it is")
    for folder in folders:
        _expect_recovery(disk, folder.directory)
    moved = _clear_name(disk, present, partition, stray)
    metadata = format_partition_metadata(topic_id)
    disk.write_atomic(f"{stray.path}/{PARTITION_METADATA_NAME}", metadata, sync=True)
    for name in _CHECKPOINTS:
        start = stray.log_start_offset if name == LOG_STARTS_NAME else 0
        _note(disk, f"{stray.directory}/{name}", partition, start)
    disk.rename(stray.path, f"{stray.directory}/{partition}")
    disk.sync_dir(stray.directory)
    disk.remove(f"{stray.directory}/{partition}/{STRAY_NOTE_NAME}")
    return moved


def remove_stray(disk: Disk, stray: Stray) -> None:
    """Remove it with all its records. Blocking."""
    disk.remove_tree(stray.path)
    disk.sync_dir(stray.directory)


def _is_stray(name: str) -> bool:
    parsed = parse_suffixed_name(name)
    return parsed is not None and parsed.suffix == STRAY_SUFFIX


def _look_at(disk: Disk, directory: str, name: str) -> Stray:
    path = f"{directory}/{name}"
    note = parse_properties(disk.read(f"{path}/{STRAY_NOTE_NAME}"))
    parsed = parse_suffixed_name(name)
    noted = note.get("partition", parsed.name if parsed is not None else "")
    return Stray(
        directory,
        name,
        parse_folder_name(noted),
        parse_partition_metadata(disk.read(f"{path}/{PARTITION_METADATA_NAME}")),
        _log_bytes(disk, path),
        note.get("reason"),
        log_start_in(note),
    )


def _log_bytes(disk: Disk, path: str) -> int:
    total = 0
    for name in disk.list(path):
        if name.endswith(LOG_SUFFIX):
            file = disk.open(f"{path}/{name}")
            total += file.size()
            file.close()
    return total


def _clear_name(
    disk: Disk, folder: LogDirectory, partition: TopicPartition, stray: Stray
) -> str | None:
    """Clear the partition's name."""
    if _log_bytes(disk, folder.path_of(partition)):
        return folder.set_aside(partition, f"{stray.name} was put back in its place")
    folder.delete(partition)
    return None


def _expect_recovery(disk: Disk, directory: str) -> None:
    """Make the next start recover the folder, and raise leader epochs."""
    disk.remove(f"{directory}/{CLEAN_SHUTDOWN_NAME}")
    disk.sync_dir(directory)


def _note(disk: Disk, path: str, partition: TopicPartition, offset: int) -> None:
    """Replace the partition's entry in a checkpoint; 0 removes it."""
    offsets = parse_offsets(disk.read(path)) or {}
    before = dict(offsets)
    offsets.pop(partition, None)
    if offset:
        offsets[partition] = offset
    if offsets != before:
        disk.write_atomic(path, format_offsets(offsets), sync=True)

"""Determines the kind of a file in a log directory, and what a path on the command line names."""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import Final, NamedTuple

from oncelog.cli.tool import Failure
from oncelog.storage.files import (
    ABORTED_SUFFIX,
    BATCHES_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCHS_NAME,
    LIFE_NAME,
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    REGISTER_NAME,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
)

__all__ = [
    "CLEAN_SHUTDOWN_NAME",
    "FORMAT_NAME",
    "LOG_STARTS_NAME",
    "META_NAME",
    "OFFSET_CHECKPOINTS",
    "RECOVERY_POINTS_NAME",
    "FileKind",
    "NamedPath",
    "base_offset",
    "is_partition_folder",
    "is_passing",
    "kind_of",
    "look_at",
    "partition_folders",
    "partition_of",
    "segments_in",
    "unreadable",
]

META_NAME: Final = "meta.properties"
FORMAT_NAME: Final = "oncelog.format"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME: Final = "log-start-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINTS_NAME,
    LOG_STARTS_NAME,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)

_PASSING = re.compile(r"\.(deleted|cleaned|swap|orphan|(\d+\.)?(damaged|cut))$")
"""Suffixes after that of the kind: files that are set aside, deleted, or not yet in place."""
_PARTITION_FOLDER = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})(\.[0-9a-f]{32}-(stray|delete|future))?"
)


class FileKind(Enum):
    """The kinds of files, by what they are called in print."""

    LOG = "log"
    INDEX = "offset index"
    TIME_INDEX = "time index"
    ABORTED = "aborted transactions"
    SNAPSHOT = "producer snapshot"
    BATCHES = "producer batches"
    LEADER_EPOCHS = "leader epochs"
    PARTITION_METADATA = "partition metadata"
    REGISTER = "sealed segments"
    OFFSETS = "offset checkpoint"
    PROPERTIES = "folder properties"
    FORMAT = "folder format"
    CLEAN_SHUTDOWN = "clean shutdown marker"


_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.LOG,
    INDEX_SUFFIX: FileKind.INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    ABORTED_SUFFIX: FileKind.ABORTED,
    SNAPSHOT_SUFFIX: FileKind.SNAPSHOT,
    BATCHES_SUFFIX: FileKind.BATCHES,
}
_BY_NAME = {
    LEADER_EPOCHS_NAME: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA_NAME: FileKind.PARTITION_METADATA,
    REGISTER_NAME: FileKind.REGISTER,
    META_NAME: FileKind.PROPERTIES,
    LIFE_NAME: FileKind.PROPERTIES,
    FORMAT_NAME: FileKind.FORMAT,
    CLEAN_SHUTDOWN_NAME: FileKind.CLEAN_SHUTDOWN,
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSETS),
}


class NamedPath(NamedTuple):
    """The target of a path: one file, one partition's folder, or a whole log directory."""

    path: str
    is_file: bool
    is_partition: bool


def kind_of(path: str) -> FileKind | None:
    """Return the kind of a file by its name; None if neither Oncelog nor Kafka writes that name."""
    name = _settled_name(path)
    if name in _BY_NAME:
        return _BY_NAME[name]
    stem, dot, suffix = name.rpartition(".")
    is_ours = bool(dot) and stem.isdigit() and len(stem) == 20
    return _BY_SUFFIX.get(dot + suffix) if is_ours else None


def _settled_name(path: str) -> str:
    return _PASSING.sub("", os.path.basename(path))


def is_passing(path: str) -> bool:
    """Whether a file is set aside, deleted or not yet in place, so no part of the log."""
    return _PASSING.search(path) is not None


def base_offset(path: str) -> int:
    """The offset in a file's name; 0 when there is none."""
    stem = _settled_name(path).partition(".")[0]
    return int(stem) if stem.isdigit() else 0


def partition_of(folder: str) -> tuple[str, int] | None:
    """Return topic and partition of a folder by its name; also of strays and deleted folders."""
    match = _PARTITION_FOLDER.fullmatch(os.path.basename(os.path.abspath(folder)))
    return (match["topic"], int(match["partition"])) if match else None


def is_partition_folder(path: str) -> bool:
    """Whether a folder holds one partition: by its name, or by the segments in it."""
    if os.path.exists(os.path.join(path, META_NAME)):
        return False
    return partition_of(path) is not None or bool(segments_in(path))


def segments_in(folder: str) -> list[int]:
    """Base offsets of the `.log` files in a folder, rising."""
    found = (base_offset_of(name, LOG_SUFFIX) for name in os.listdir(folder))
    return sorted(offset for offset in found if offset is not None)


def partition_folders(folder: str) -> list[str]:
    """Paths of the partitions' folders in a log directory, by topic and number."""
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        partition = partition_of(path)
        if partition is not None and os.path.isdir(path):
            found.append((partition, path))
    return [path for _, path in sorted(found)]


def look_at(path: str) -> NamedPath:
    """Find out what a path names. Raises `Failure`, a sentence, when it can be nothing of ours."""
    try:
        os.stat(path)
        if not os.path.isdir(path):
            if kind_of(path) is None:
                raise Failure(
                    f"{path} is no file of a log directory: the name should be one like "
                    "00000000000000000000.log or recovery-point-offset-checkpoint"
                )
            open(path, "rb").close()
            return NamedPath(path, is_file=True, is_partition=False)
        if is_partition_folder(path):
            return NamedPath(path, is_file=False, is_partition=True)
        if partition_folders(path) or any(kind_of(name) for name in os.listdir(path)):
            return NamedPath(path, is_file=False, is_partition=False)
    except OSError as error:
        raise unreadable(path, error) from None
    raise Failure(
        f"{path} holds no partitions: name a log directory, a partition's folder or a file"
    )


def unreadable(path: str, error: OSError) -> Failure:
    """The sentence for a file or folder that the system refuses."""
    return Failure(f"cannot read {error.filename or path}: {error.strerror or error}")

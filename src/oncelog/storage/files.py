"""Names of the files in a log directory and in a partition's.

They are Kafka's, so that its tools read ours (D5); those with `oncelog` in it and `.batches` are
our own.
"""

import re

__all__ = [
    "ABORTED_SUFFIX",
    "BATCHES_SUFFIX",
    "CAUGHT_UP_NAME",
    "CLEANED_SUFFIX",
    "CLEAN_OFFSETS_NAME",
    "CLEAN_SHUTDOWN_NAME",
    "CUT_SUFFIX",
    "DELETED_SUFFIX",
    "FAILED_SYNC_NAME",
    "FORMAT_NAME",
    "HIGH_WATERMARKS_NAME",
    "INDEX_SUFFIX",
    "LEADER_EPOCHS_NAME",
    "LIFE_NAME",
    "LOCK_NAME",
    "LOG_STARTS_NAME",
    "LOG_SUFFIX",
    "META_NAME",
    "MOVE_NOTE_NAME",
    "ORPHAN_SUFFIX",
    "PARTITION_METADATA_NAME",
    "RECOVERY_POINTS_NAME",
    "REGISTER_NAME",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT_SUFFIX",
    "STRAY_NOTE_NAME",
    "SWAP_SUFFIX",
    "TIME_INDEX_SUFFIX",
    "base_offset_of",
    "file_prefix",
]

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
BATCHES_SUFFIX = ".batches"
"""Ours, beside each snapshot: see `producer_snapshot`."""
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
"""Suffix of a cleaned segment that has not replaced the old ones yet: see `swap`."""
CUT_SUFFIX = ".cut"
"""Ours: bytes that recovery cut off."""
ORPHAN_SUFFIX = ".orphan"
"""Ours: an index file without its `.log`."""
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)

LEADER_EPOCHS_NAME = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME = "partition.metadata"
REGISTER_NAME = "oncelog.segments"
"""The sizes and checksums of each sealed segment's files: see `segment_register`."""
FAILED_SYNC_NAME = "oncelog.failed-fsync"
"""An fsync in this folder has failed, and no recovery has written everything again since."""

FORMAT_NAME = "oncelog.format"
LOCK_NAME = ".lock"
META_NAME = "meta.properties"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
LIFE_NAME = "oncelog.life"
"""Ours: the broker's life in which the folder was written last; see `lives`."""
CLEAN_OFFSETS_NAME = "cleaner-offset-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
CAUGHT_UP_NAME = "oncelog.caught-up"
"""Ours: when each replica of a compacted partition last had everything, in wall ms."""
STRAY_NOTE_NAME = "oncelog.stray"
"""In a folder that was set aside: its partition, and the reason."""
MOVE_NOTE_NAME = "oncelog.moved"
"""In a complete copy of a log: the log directory that it replaces."""

_NAME = re.compile(r"(\d{20})(\.[a-z]+)")


def file_prefix(directory: str, base_offset: int) -> str:
    """Path of a segment's files without their suffix."""
    return f"{directory}/{base_offset:020d}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, if it has that suffix."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[2] == suffix else None

"""Names of the files in a partition's folder. Kafka's, so that its tools read ours (D5)."""

import re

__all__ = [
    "ABORTED_SUFFIX",
    "BATCHES_SUFFIX",
    "DELETED_SUFFIX",
    "INDEX_SUFFIX",
    "LEADER_EPOCHS_NAME",
    "LOG_SUFFIX",
    "PARTITION_METADATA_NAME",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT_SUFFIX",
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
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)

LEADER_EPOCHS_NAME = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME = "partition.metadata"

_NAME = re.compile(r"(\d{20})(\.[a-z]+)")


def file_prefix(directory: str, base_offset: int) -> str:
    """Path of a segment's files without their suffix."""
    return f"{directory}/{base_offset:020d}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, if it has that suffix."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[2] == suffix else None

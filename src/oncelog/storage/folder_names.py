"""Defines the names of partitions' folders in a log directory, and their suffixes.

`<topic>-<partition>` is served. A suffix is a recorded decision about the folder (D14): `-delete`
may be removed, `-stray` remains until a person decides, `-future` is a copy in progress in another
log directory. They are Kafka's (D5).
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from oncelog.core.ids import TopicPartition

__all__ = [
    "DELETE_SUFFIX",
    "FUTURE_SUFFIX",
    "STRAY_SUFFIX",
    "SuffixedName",
    "parse_folder_name",
    "parse_suffixed_name",
    "suffixed_name",
]

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"

_PARTITION = r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})"
_FOLDER = re.compile(_PARTITION)
_SUFFIXED = re.compile(r"(?P<name>.+)\.(?P<unique>[0-9a-f]{32})(?P<suffix>-delete|-stray|-future)")
_NAME_LENGTH_MAX = 255


class SuffixedName(NamedTuple):
    """`name` is the folder's name before, cut off where both would have been too long."""

    name: str
    unique: str
    suffix: str


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition that a folder of this name is of; None if it is of none."""
    match = _FOLDER.fullmatch(name)
    if match is None:
        return None
    partition = TopicPartition(match["topic"], int(match["partition"]))
    return partition if str(partition) == name else None


def suffixed_name(topic_partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """A partition's folder name with what makes it unique and a suffix."""
    tail = f".{unique.hex}{suffix}"
    return str(topic_partition)[: _NAME_LENGTH_MAX - len(tail)] + tail


def parse_suffixed_name(name: str) -> SuffixedName | None:
    """The parts of such a name; None for any other."""
    match = _SUFFIXED.fullmatch(name)
    return SuffixedName(match["name"], match["unique"], match["suffix"]) if match else None

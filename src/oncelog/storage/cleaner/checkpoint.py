"""Reads and writes `cleaner-offset-checkpoint`: up to which offset each log is clean.

Each log directory has one, in Kafka's format.

It only saves work. A log that it does not name counts as dirty from its start.
"""

import logging
from collections.abc import Collection, Mapping

from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import Disk
from oncelog.storage.checkpoints import format_offsets, parse_offsets
from oncelog.storage.files import CLEAN_OFFSETS_NAME

__all__ = ["read_clean_offsets", "write_clean_offsets"]

log = logging.getLogger(__name__)


def read_clean_offsets(
    disk: Disk, folders: Mapping[str, Collection[TopicPartition]]
) -> dict[TopicPartition, int]:
    """First dirty offsets of the partitions that each log directory holds. Blocking.

    What a folder's file says of others is of logs that were deleted there, or moved away: a topic
    of the same name may be in another folder now.
    """
    found: dict[TopicPartition, int] = {}
    for folder, held in folders.items():
        path = f"{folder}/{CLEAN_OFFSETS_NAME}"
        data = disk.read(path)
        offsets = parse_offsets(data)
        if data is not None and offsets is None:
            log.warning("%s is damaged: compacted logs are cleaned from their start", path)
        found |= {each: offset for each, offset in (offsets or {}).items() if each in held}
    return found


def write_clean_offsets(disk: Disk, folder: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file of one log directory. Blocking."""
    disk.write_atomic(f"{folder}/{CLEAN_OFFSETS_NAME}", format_offsets(offsets), sync=True)

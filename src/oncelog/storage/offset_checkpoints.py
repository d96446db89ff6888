"""Reads and writes the offset checkpoints of one log directory, in Kafka's files.

They are recovery points, log starts, high watermarks and clean offsets, by partition. What they
may say, and when, is `LogDirectory`'s to decide. All calls are blocking.
"""

import logging
from collections.abc import Mapping, Set

from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import Disk
from oncelog.storage.checkpoints import format_offsets, parse_offsets
from oncelog.storage.files import HIGH_WATERMARKS_NAME
from oncelog.storage.identity import FolderMismatch

__all__ = ["OffsetCheckpoints"]

log = logging.getLogger(__name__)


class OffsetCheckpoints:
    """The offset checkpoints of one directory."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def read(self, name: str, consequence: str) -> dict[TopicPartition, int]:
        """Return what a file says; nothing where it is damaged, which `consequence` follows."""
        path = self._path(name)
        content = self._disk.read(path)
        found = parse_offsets(content)
        if found is None and content is not None:
            log.warning("%s is damaged, %d bytes: %s", path, len(content), consequence)
        return found or {}

    def read_quietly(self, name: str) -> dict[TopicPartition, int]:
        """Return what a file says; nothing where it is damaged."""
        return parse_offsets(self._disk.read(self._path(name))) or {}

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks last written; empty when there are none.

        Raises `FolderMismatch`.
        """
        path = self._path(HIGH_WATERMARKS_NAME)
        content = self._disk.read(path)
        found = parse_offsets(content)
        if found is None and content is not None:
            raise FolderMismatch(
                f"{path} is damaged: remove it, and high watermarks are found anew"
            )
        return found or {}

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a file, durably."""
        self._disk.write_atomic(self._path(name), format_offsets(offsets), sync=True)

    def remove(self, name: str, gone: Set[TopicPartition]) -> None:
        """Take partitions out of a file."""
        noted = self.read_quietly(name)
        kept = {p: offset for p, offset in noted.items() if p not in gone}
        if kept != noted:
            self.write(name, kept)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

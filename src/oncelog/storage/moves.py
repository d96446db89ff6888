"""Moves a log into another log directory, so that a crash at any step loses nothing.

The log is copied into a folder with the suffix `-future` while it is in use. When appends have
stopped, the rest is copied and synced, and a note in the copy marks it as complete: from then on
the copy is the log. The old folder is renamed as deleted, the copy to the partition's name.

A start removes a copy without that note, as the log itself still exists; one with it is put in
place (`finish_moves`). A directory that was off line then may still contain the old folder: the
note remains, and names it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import MOVE_READ_BYTES, MOVE_STEP_BYTES
from oncelog.protocol.batch import iter_headers
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.checkpoints import (
    format_partition_metadata,
    format_properties,
    log_start_in,
    parse_properties,
)
from oncelog.storage.files import MOVE_NOTE_NAME, PARTITION_METADATA_NAME
from oncelog.storage.folder_names import (
    FUTURE_SUFFIX,
    parse_folder_name,
    parse_suffixed_name,
    suffixed_name,
)
from oncelog.storage.log import PartitionLog
from oncelog.storage.log_folder import LogFolder
from oncelog.storage.producer_state import Origin
from oncelog.storage.results import OffsetOutOfRange

__all__ = ["LogMove", "finish_moves", "moved_from"]

log = logging.getLogger(__name__)


class LogMove:
    """One log on its way from a log directory to another one. All methods are blocking."""

    def __init__(
        self,
        disk: Disk,
        held: PartitionLog,
        source: LogFolder,
        target: LogFolder,
        topic_id: TopicId,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._held = held
        self._now_ms = now_ms
        self._future: PartitionLog | None = None
        self.source = source
        self.target = target
        self.topic_id = topic_id
        self.topic_partition: TopicPartition = held.topic_partition
        name = suffixed_name(held.topic_partition, topic_id, FUTURE_SUFFIX)
        self.path = f"{target.directory}/{name}"

    @property
    def size_bytes(self) -> int:
        """Bytes copied so far."""
        return self._future.size_bytes if self._future is not None else 0

    @property
    def lag(self) -> int:
        """Offsets still to be copied."""
        held = self._held
        reached = held.log_start_offset if self._future is None else self._future.log_end_offset
        return max(0, held.log_end_offset - reached)

    def copy(self) -> bool:
        """Copy one step; True when the copy has all that was in the log when the step began.

        Raises `StorageFailure`, and `ProtocolError` where the log is damaged.
        """
        held = self._held
        end = held.log_end_offset
        copied = 0
        while copied < MOVE_STEP_BYTES:
            at = held.log_start_offset
            if self._future is not None:
                at = max(at, self._future.log_end_offset)
            if at >= end and self._future is not None:
                return True
            try:
                data = bytes(held.read_cold(at, MOVE_READ_BYTES, upper_bound=end))
            except OffsetOutOfRange:
                return False  # Retention deleted the batch before it was copied.
            copied += len(data)
            self._append(data, at)
            if not data:
                return True
        return False

    def finish(self) -> None:
        """Copy the rest of a log that takes no appends, and durably mark the copy as complete."""
        while not self.copy():
            pass
        future = self._future
        if future is None:
            raise StorageFailure("copy", self.path, "nothing was begun")
        future.delete_records(min(self._held.log_start_offset, future.log_end_offset))
        future.flush()
        future.close()
        metadata = format_partition_metadata(self.topic_id)
        self._disk.write_atomic(f"{self.path}/{PARTITION_METADATA_NAME}", metadata, sync=True)
        self._disk.sync_dir(self.target.directory)
        note = {
            "partition": str(self.topic_partition),
            "from": self.source.directory_id,
            "log-start-offset": str(future.log_start_offset),
        }
        self._disk.write_atomic(f"{self.path}/{MOVE_NOTE_NAME}", format_properties(note), sync=True)

    def swap(self) -> None:
        """Put the finished copy in the log's place, and open it there."""
        partition = self.topic_partition
        start = self._future.log_start_offset if self._future is not None else 0
        self.target.expect(partition, start)
        doomed = self.source.delete(partition)
        self.source.sync_names()
        self._disk.rename(self.path, self.target.path_of(partition))
        self.target.sync_names()
        self.target.adopt(partition, self.topic_id, self._held.config, self._now_ms, start)
        self.target.checkpoint()
        self.source.checkpoint()
        self._disk.remove(f"{self.target.path_of(partition)}/{MOVE_NOTE_NAME}")
        self._disk.remove_tree(doomed)

    def abandon(self) -> None:
        """Drop an unfinished copy."""
        if self._future is not None:
            self._future.abandon()
            self._future = None
        self._disk.remove_tree(self.path)

    def _append(self, data: bytes, at: int) -> None:
        if self._future is None:
            first = next((header.base_offset for _, header in iter_headers(data)), at)
            self._disk.remove_tree(self.path)
            self._future = PartitionLog.open(
                self._disk,
                self.path,
                self.topic_partition,
                self._held.config,
                self._now_ms,
                log_start_offset=first,
            )
            self._future.flushes_on_append = False
        if data:
            result = self._future.append(
                bytearray(data), leader_epoch=-1, now_ms=self._now_ms, origin=Origin.REPLICATION
            )
            if result.error is not ErrorCode.none:
                raise StorageFailure("copy", self.path, result.message or result.error.name)


def finish_moves(disk: Disk, folders: Sequence[LogFolder], *, has_all: bool) -> None:
    """Finish or undo what a crash left of moves, before any log is opened. Blocking."""
    for folder in folders:
        for name in disk.list(folder.directory):
            parsed = parse_suffixed_name(name)
            path = f"{folder.directory}/{name}"
            if parsed is None or parsed.suffix != FUTURE_SUFFIX or not disk.is_dir(path):
                continue
            note = parse_properties(disk.read(f"{path}/{MOVE_NOTE_NAME}"))
            partition = parse_folder_name(note.get("partition", parsed.name))
            if partition is not None and "from" in note:
                folder.expect(partition, log_start_in(note))
                _drop_old(disk, folders, partition, note["from"])
                disk.rename(path, folder.path_of(partition))
                folder.sync_names()
                folder.find(partition)
                log.warning("finished the move of %s to %s", partition, folder.directory)
            elif partition is not None and any(partition in other for other in folders):
                disk.remove_tree(path)
                log.warning("removed %s, an unfinished copy: ask for the move again", path)
            else:
                log.error("%s is a copy of a log that is not there; it is kept", path)
    for partition in _held_twice(folders):
        for folder in folders:
            old_id = moved_from(disk, folder, partition)
            if old_id is not None:
                _drop_old(disk, folders, partition, old_id)
                if has_all:
                    disk.remove(f"{folder.path_of(partition)}/{MOVE_NOTE_NAME}")


def moved_from(disk: Disk, folder: LogFolder, partition: TopicPartition) -> str | None:
    """Return the directory id of the log that this one replaced, if a note names it."""
    if partition not in folder:
        return None
    note = parse_properties(disk.read(f"{folder.path_of(partition)}/{MOVE_NOTE_NAME}"))
    return note.get("from")


def _drop_old(
    disk: Disk, folders: Sequence[LogFolder], partition: TopicPartition, old_id: str
) -> None:
    for folder in folders:
        if folder.directory_id == old_id and partition in folder:
            doomed = folder.delete(partition)
            folder.sync_names()
            disk.remove_tree(doomed)


def _held_twice(folders: Sequence[LogFolder]) -> list[TopicPartition]:
    seen: set[TopicPartition] = set()
    twice = []
    for folder in folders:
        for partition in folder:
            if partition in seen:
                twice.append(partition)
            seen.add(partition)
    return twice

"""Moves a log into another log directory, so that a crash at any step loses nothing.

The log is copied into a folder with the suffix `-future` while it is in use. When appends have
stopped, the rest is copied and synced, and a note in the copy marks it as complete. Then the old
folder is renamed as deleted. That decides the move: until then the old folder is the log, also if
it takes appends again because the move failed; from then on the copy is. At last the copy is
renamed to the partition's name.

A start (`finish_move`) removes a copy whose log is still there, and puts a complete one in place if
the directory that the note names has no log of the partition. While that directory is off line
nothing is decided: the copy is kept, and not served.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import MOVE_READ_BYTES, MOVE_STEP_BYTES
from oncelog.protocol.batch import iter_headers
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.checkpoints import (
    format_partition_metadata,
    format_properties,
    log_start_in,
    parse_partition_metadata,
    parse_properties,
)
from oncelog.storage.files import (
    LOG_SUFFIX,
    MOVE_NOTE_NAME,
    PARTITION_METADATA_NAME,
    base_offset_of,
)
from oncelog.storage.folder_names import (
    FUTURE_SUFFIX,
    parse_folder_name,
    parse_suffixed_name,
    suffixed_name,
)
from oncelog.storage.log import PartitionLog
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.producer_state import Origin
from oncelog.storage.results import OffsetOutOfRange

__all__ = ["LogMove", "drop_replaced", "finish_move", "moved_from", "unfinished_moves"]

log = logging.getLogger(__name__)


class LogMove:
    """One log on its way from a log directory to another one. All methods are blocking."""

    def __init__(
        self,
        disk: Disk,
        held: PartitionLog,
        source: LogDirectory,
        target: LogDirectory,
        topic_id: TopicId,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._held = held
        self._now_ms = now_ms
        self._future: PartitionLog | None = None
        self.is_decided = False
        """Whether the old folder may have been renamed: then only the copy may be the log."""
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
        self._require_on_line()
        held = self._held
        end = held.log_end_offset
        copied = 0
        while copied < MOVE_STEP_BYTES:
            at = self._next_offset()
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

    def _next_offset(self) -> int:
        start = self._held.log_start_offset
        if self._future is not None and start <= self._future.log_end_offset:
            return self._future.log_end_offset
        if self._future is not None:
            # Records were deleted before they were copied. The copy begins again at the new start:
            # a recovery would take a gap for damage.
            self._future.abandon()
            self._future = None
        return start

    def finish(self) -> None:
        """Copy the rest of a log that takes no appends, and durably mark the copy as complete.

        Raises as `copy` does.
        """
        while not self.copy():
            pass
        future = self._future
        if future is None:
            raise StorageFailure("copy", self.path, "nothing was begun")
        end = self._held.log_end_offset
        if future.log_end_offset != end:
            reached = future.log_end_offset
            raise ProtocolError(
                ErrorCode.corrupt_message,
                f"{self._held.directory} ends at offset {end}, but nothing is readable from offset "
                f"{reached} on",
            )
        future.delete_records(self._held.log_start_offset)
        # After a loss of power the log must not end before a complete copy of it.
        self._held.flush()
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
        self._require_on_line()
        partition = self.topic_partition
        start = self._future.log_start_offset if self._future is not None else 0
        self.target.expect(partition, start)
        # Before the rename: one that fails may have been done.
        self.is_decided = True
        doomed = self.source.delete(partition)
        self.source.sync_names()
        self._disk.rename(self.path, self.target.path_of(partition))
        self.target.sync_names()
        self.target.adopt(partition, self.topic_id, self._held.config, self._now_ms, start)
        moved = self.target.get(partition)
        if moved is not None:
            moved.producers.take_unreplicated(self._held.producers, moved.log_end_offset)
        self.target.checkpoint()
        self.source.checkpoint()
        self._disk.remove(f"{self.target.path_of(partition)}/{MOVE_NOTE_NAME}")
        self._disk.remove_tree(doomed)

    def abandon(self) -> None:
        """Drop a copy that is not the log; harmless where it may be."""
        if self.is_decided:
            return
        if self._future is not None:
            self._future.abandon()
            self._future = None
        _remove_copy(self._disk, self.path)

    def is_moot(self, failure: StorageFailure) -> bool:
        """Whether a failure is only that the log was deleted during the copy."""
        is_deleted = self._held.is_deleted and not self.is_decided
        return is_deleted and failure.path.startswith(f"{self._held.directory}/")

    def _require_on_line(self) -> None:
        for folder in (self.source, self.target):
            if folder.off_line is not None:
                raise folder.off_line

    def _append(self, data: bytes, at: int) -> None:
        if self._future is None:
            # A batch may begin before the log does, or, where compaction took those at its start,
            # behind it: the copy starts where the log does.
            first = min(at, next((header.base_offset for _, header in iter_headers(data)), at))
            _remove_copy(self._disk, self.path)
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
                # Where it came from is damaged; the target is sound.
                reason = result.message or result.error.name
                raise ProtocolError(
                    result.error, f"{self._held.directory} from offset {at} on: {reason}"
                )


def unfinished_moves(disk: Disk, folder: LogDirectory) -> list[str]:
    """Return the names of the copies in a log directory. Blocking."""
    found = ((name, parse_suffixed_name(name)) for name in disk.list(folder.directory))
    return [
        name
        for name, parsed in found
        if parsed is not None
        and parsed.suffix == FUTURE_SUFFIX
        and disk.is_dir(f"{folder.directory}/{name}")
    ]


def finish_move(
    disk: Disk, folder: LogDirectory, name: str, folders: Sequence[LogDirectory]
) -> None:
    """Finish or undo a move that left the copy `name`, before any log is opened. Blocking.

    `folders` are those on line. A copy is removed only where they have the log that it is of (D14).
    """
    parsed = parse_suffixed_name(name)
    path = f"{folder.directory}/{name}"
    note = parse_properties(disk.read(f"{path}/{MOVE_NOTE_NAME}"))
    partition = parse_folder_name(note.get("partition", parsed.name if parsed is not None else ""))
    old_id = note.get("from")
    holders = [other for other in folders if partition is not None and partition in other]
    source = next((other for other in folders if other.directory_id == old_id), None)
    if partition is None or (not holders and old_id is None):
        log.error("%s is a copy of a log that is not there; it is kept", path)
    elif old_id is None or (source in holders and _is_covered(disk, path, source, partition)):
        _remove_copy(disk, path)
        log.warning("removed %s, an unfinished copy: ask for the move again", path)
    elif holders:
        log.error("%s is a copy of another log than the one of %s; it is kept", path, partition)
    elif source is None:
        log.error(
            "%s is a complete copy, but the log directory %s that may have its log is off line: it "
            "is kept, and used once that folder is back without the log. If it is lost for good, "
            "stop the broker and rename the copy to %s",
            path,
            old_id,
            partition,
        )
    else:
        # A loss of power must not bring the old folder back beside the new one.
        source.sync_names()
        folder.expect(partition, log_start_in(note))
        disk.rename(path, folder.path_of(partition))
        folder.sync_names()
        folder.find(partition)
        log.warning("finished the move of %s to %s", partition, folder.directory)


def drop_replaced(disk: Disk, folders: Sequence[LogDirectory], *, has_all: bool) -> None:
    """Delete logs that another log's note names as replaced by it. Blocking."""
    for partition in _held_twice(folders):
        for folder in folders:
            old_id = moved_from(disk, folder, partition)
            if old_id is not None:
                _drop_old(disk, folders, partition, old_id)
                if has_all:
                    disk.remove(f"{folder.path_of(partition)}/{MOVE_NOTE_NAME}")


def moved_from(disk: Disk, folder: LogDirectory, partition: TopicPartition) -> str | None:
    """Return the directory id of the log that this one replaced, if a note names it."""
    if partition not in folder:
        return None
    note = parse_properties(disk.read(f"{folder.path_of(partition)}/{MOVE_NOTE_NAME}"))
    return note.get("from")


def _drop_old(
    disk: Disk, folders: Sequence[LogDirectory], partition: TopicPartition, old_id: str
) -> None:
    for folder in folders:
        if folder.directory_id == old_id and partition in folder:
            doomed = folder.delete(partition)
            folder.sync_names()
            disk.remove_tree(doomed)


def _is_covered(disk: Disk, path: str, source: LogDirectory, partition: TopicPartition) -> bool:
    """Whether the source has the copy's log, and no log that began again without its records."""
    metadata = disk.read(f"{path}/{PARTITION_METADATA_NAME}")
    if source.topic_id(partition) not in (None, parse_partition_metadata(metadata)):
        return False
    copied_from, copied_bytes = _extent(disk, path)
    held_from, held_bytes = _extent(disk, source.path_of(partition))
    # Retention may have deleted from the log what the copy still has.
    return held_from > copied_from or held_bytes >= copied_bytes


def _extent(disk: Disk, path: str) -> tuple[int, int]:
    """Return the first base offset and the bytes of the `.log` files in a folder."""
    bases, size = [], 0
    for name in disk.list(path):
        base = base_offset_of(name, LOG_SUFFIX)
        if base is not None:
            file = disk.open(f"{path}/{name}")
            size += file.size()
            file.close()
            bases.append(base)
    return min(bases, default=0), size


def _remove_copy(disk: Disk, path: str) -> None:
    """Remove a copy, first the note that says it is complete."""
    note = f"{path}/{MOVE_NOTE_NAME}"
    if disk.exists(note):
        disk.remove(note)
        disk.sync_dir(path)
    disk.remove_tree(path)


def _held_twice(folders: Sequence[LogDirectory]) -> list[TopicPartition]:
    seen: set[TopicPartition] = set()
    twice = []
    for folder in folders:
        for partition in folder:
            if partition in seen:
                twice.append(partition)
            seen.add(partition)
    return twice

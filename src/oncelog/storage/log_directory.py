"""One log directory: its identity, its lock, its checkpoints, and the logs in it.

`LogManager` holds all log directories of a broker; this class must not know the others, nor which
topics should exist. Files are Kafka's (D5), and one of ours: `oncelog.format`.

INV-9: `.kafka_cleanshutdown` is removed, durably, before any log is opened, and written only after
all were closed. So a crash at any moment in between is followed by a recovery.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.runtime.disk import Disk, DiskLock, StorageFailure
from oncelog.storage.checkpoints import (
    format_partition_metadata,
    format_properties,
    parse_partition_metadata,
)
from oncelog.storage.config import LogConfig
from oncelog.storage.files import (
    CLEAN_OFFSETS_NAME,
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARKS_NAME,
    LOCK_NAME,
    LOG_STARTS_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINTS_NAME,
    STRAY_NOTE_NAME,
)
from oncelog.storage.folder_names import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    parse_folder_name,
    suffixed_name,
)
from oncelog.storage.formats import UnknownFormat
from oncelog.storage.identity import (
    FORMAT_VERSION,
    Identity,
    make_durably,
    read_identity,
    write_format,
    write_identity,
)
from oncelog.storage.life_file import read_life
from oncelog.storage.lives import FolderLife, format_clean_shutdown, last_sound_epoch
from oncelog.storage.log import PartitionLog
from oncelog.storage.offset_checkpoints import OffsetCheckpoints

__all__ = ["LogDirectory"]

log = logging.getLogger(__name__)

_STARTS_ARE_LOST = "logs start at their first segment again"


class LogDirectory:
    """One log directory. The event loop calls all methods that are not marked Blocking.

    Call `take`, then `mark`, then `claim`, then `open_logs`: before `claim` no file in it changes.
    """

    def __init__(self, disk: Disk, directory: str, lock: DiskLock) -> None:
        self._disk = disk
        self._lock = lock
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._topic_ids: dict[TopicPartition, TopicId | None] = {}
        self._is_open = False
        self.offsets = OffsetCheckpoints(disk, directory)
        self._checkpoints = threading.RLock()
        """Else a thread could write over a checkpoint what it had collected before another did."""
        self._written_starts: dict[TopicPartition, int] | None = None
        self._coming: dict[TopicPartition, int] = {}
        """The log start offsets of partitions that are being moved here and are not open yet."""
        self._gone: set[TopicPartition] = set()
        """Partitions without a folder that checkpoints may still name."""
        self._renamed: set[TopicPartition] = set()
        """Partitions whose folders were renamed, which a loss of power may still undo."""
        self.directory = directory
        self.identity: Identity | None = None
        """None while the folder is new."""
        self.off_line: StorageFailure | None = None
        """The failure that took the log directory off line, if any."""
        self.life = FolderLife(directory, True, None, None, None)
        """What it said of the broker's last life when it was taken."""
        self.broker_epoch: int | None = None
        """The number of the broker's present life; None before it is registered."""
        self.was_clean = False
        """Whether the last process closed this folder cleanly."""
        self.unread: dict[TopicPartition, UnknownFormat] = {}
        """Partitions whose logs have another format: they are off line, and stay as they are."""
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        """What the checkpoints say of those, by file."""
        self.deleted: list[str] = []
        """Partition folders marked as deleted that an earlier process did not remove."""

    @classmethod
    def take(cls, disk: Disk, directory: str, node_id: int | None) -> LogDirectory:
        """Lock the directory, creating it if necessary, and read its identity. Blocking.

        `node_id` None accepts any broker's. Raises `FolderInUse`, `FolderMismatch`,
        `StorageFailure`.
        """
        make_durably(disk, directory)
        folder = cls(disk, directory, disk.lock(f"{directory}/{LOCK_NAME}"))
        try:
            folder.identity = read_identity(disk, directory, node_id)
            folder.life = read_life(disk, directory, is_new=folder.identity is None)
            folder._find_partitions()
        except BaseException:
            folder.release()
            raise
        return folder

    def mark(self) -> None:
        """Mark a new folder as ours; the store may be made in it before `claim`. Blocking."""
        if self.identity is None:
            # Its creator may have crashed before its name was synced.
            self._disk.sync_dir(os.path.dirname(self.directory) or ".")
            write_format(self._disk, self.directory)

    def claim(self, identity: Identity) -> None:
        """Make a new folder the broker's own, or one of an older layout current. Blocking."""
        if self.identity != identity or identity.format_version < FORMAT_VERSION:
            write_identity(self._disk, self.directory, identity)
        self.identity = identity

    def replace(self, missing: frozenset[str]) -> None:
        """Note in whose place a claimed folder was made. Blocking."""
        assert self.identity is not None
        self.claim(self.identity._replace(replaces=self.identity.replaces | missing))

    def open_logs(self, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        """Open every log in the directory. Blocking.

        `config_for` returns a topic's configs by name. A log of another format is `unread`. Raises
        `FolderMismatch`, `StorageFailure`.
        """
        disk, directory = self._disk, self.directory
        # Before anything changes, so that an unreadable checkpoint is refused.
        high_watermarks = self.offsets.read_high_watermarks()
        clean_path = f"{directory}/{CLEAN_SHUTDOWN_NAME}"
        self.was_clean = disk.exists(clean_path)
        if self.was_clean:
            disk.remove(clean_path)
        # Also what a killed process renamed and did not sync: see `settle`.
        disk.sync_dir(directory)
        self._clear_leftovers()
        points = self.offsets.read(RECOVERY_POINTS_NAME, "every log is scanned from its start")
        starts = self.offsets.read(LOG_STARTS_NAME, _STARTS_ARE_LOST)
        cleaned = self.offsets.read_quietly(CLEAN_OFFSETS_NAME)
        noted = points.keys() | starts.keys() | high_watermarks.keys() | cleaned.keys()
        self._gone.update(noted - self._topic_ids.keys())
        for partition in self._topic_ids:
            try:
                self._logs[partition] = PartitionLog.open(
                    disk,
                    self.path_of(partition),
                    partition,
                    config_for(partition.topic),
                    now_ms,
                    self.was_clean,
                    recovery_point=points.get(partition, 0),
                    log_start_offset=starts.get(partition, 0),
                    high_watermark=high_watermarks.get(partition, 0),
                )
            except UnknownFormat as found:
                self.unread[partition] = found
                log.error("%s is off line: %s", partition, found)
            self._coming.pop(partition, None)
        self._kept = {
            RECOVERY_POINTS_NAME: self._of_unread(points),
            LOG_STARTS_NAME: self._of_unread(starts),
            HIGH_WATERMARKS_NAME: self._of_unread(high_watermarks),
        }
        self._is_open = True
        if any(
            held.recovery.lost_tail or held.log_start_offset < starts.get(partition, 0)
            for partition, held in self._logs.items()
        ):
            # By an old checkpoint the next start would treat new records as synced, or as deleted.
            self.checkpoint()

    @property
    def directory_id(self) -> str:
        """The folder's own id; empty while it is new."""
        return self.identity.directory_id if self.identity is not None else ""

    # ---- logs ----

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if the folder has one that is open, and is not off line."""
        return self._logs.get(topic_partition) if self.off_line is None else None

    @property
    def logs(self) -> list[PartitionLog]:
        """The logs that are open."""
        return list(self._logs.values())

    def is_whole(self, topic_partition: TopicPartition) -> bool:
        """Whether the log was closed cleanly, and opening it lost no record."""
        held = self.get(topic_partition)
        return self.was_clean and held is not None and not held.recovery.unclean

    def topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """Return the id of the topic that a log was made for; None when a power loss removed it."""
        return self._topic_ids.get(topic_partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Every partition that has a folder here, whether its log is open or not."""
        return iter(tuple(self._topic_ids))

    def __len__(self) -> int:
        return len(self._topic_ids)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._topic_ids

    def path_of(self, topic_partition: TopicPartition) -> str:
        """Return the path of a partition's files, whether or not they exist."""
        return f"{self.directory}/{topic_partition}"

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create a new, empty log. Raises `StorageFailure`, and then creates nothing."""
        path = self.path_of(topic_partition)
        self._forget(topic_partition)
        made = None
        try:
            made = PartitionLog.open(self._disk, path, topic_partition, config, now_ms)
            self.note_topic_id(topic_partition, topic_id)
        except StorageFailure:
            if made is not None:
                made.abandon()
            with contextlib.suppress(StorageFailure):
                self._disk.remove_tree(path)
            raise
        self._logs[topic_partition] = made
        return made

    def note_topic_id(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """Write `partition.metadata`: the id of the topic that a partition's folder belongs to."""
        path = f"{self.path_of(topic_partition)}/{PARTITION_METADATA_NAME}"
        self._disk.write_atomic(path, format_partition_metadata(topic_id), sync=False)
        self._topic_ids[topic_partition] = topic_id

    def expect(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        """Note where a log starts that is about to be moved here, before its folder is. Blocking.

        Otherwise a crash after the move would show deleted records again. A clean offset that is
        noted here is of another log of that name, or out of date.
        """
        with self._checkpoints:
            if self._is_open:
                self._forget(topic_partition)
            self.offsets.remove(CLEAN_OFFSETS_NAME, {topic_partition})
            self._coming[topic_partition] = log_start_offset
            self._gone.add(topic_partition)
            starts = self.offsets.read(LOG_STARTS_NAME, _STARTS_ARE_LOST)
            starts[topic_partition] = log_start_offset
            self.offsets.write(LOG_STARTS_NAME, starts)
            self._written_starts = None

    def adopt(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
        log_start_offset: int,
    ) -> None:
        """Open a log that was cleanly closed and then moved here. Blocking."""
        self._coming.pop(topic_partition, None)
        self._gone.discard(topic_partition)
        self._logs[topic_partition] = PartitionLog.open(
            self._disk,
            self.path_of(topic_partition),
            topic_partition,
            config,
            now_ms,
            clean=True,
            log_start_offset=log_start_offset,
        )
        self._topic_ids[topic_partition] = topic_id

    def delete(self, topic_partition: TopicPartition) -> str:
        """Rename a partition's folder as deleted; return its new path. Blocking.

        The name is the recorded decision (D14): the caller removes it later, or the next start
        does.
        """
        return self._rename(topic_partition, DELETE_SUFFIX)

    def undo(self, topic_partition: TopicPartition) -> None:
        """Remove the log that `create` made and that was not used yet. Blocking."""
        held = self._logs.get(topic_partition)
        if held is not None and not held.log_end_offset:
            self._disk.remove_tree(self._rename(topic_partition, DELETE_SUFFIX))

    def set_aside(self, topic_partition: TopicPartition, reason: str) -> str:
        """Rename a partition's folder as a stray, unserved (D14). Blocking.

        Returns its new path. A file in it names its partition and the reason.
        """
        path = self.path_of(topic_partition)
        note = {"partition": str(topic_partition), "reason": reason}
        starts = self.offsets.read_quietly(LOG_STARTS_NAME)
        if topic_partition in starts:
            note["log-start-offset"] = str(starts[topic_partition])
        self._disk.write_atomic(f"{path}/{STRAY_NOTE_NAME}", format_properties(note), sync=True)
        stray = self._rename(topic_partition, STRAY_SUFFIX)
        self.sync_names()
        log.error("%s is kept aside as %s: %s", path, stray, reason)
        return stray

    def _rename(self, topic_partition: TopicPartition, suffix: str) -> str:
        """Rename a partition's folder to a name that is free; returns the new path."""
        held = self._logs.pop(topic_partition, None)
        self.unread.pop(topic_partition, None)
        if held is not None:
            held.abandon()
        unique = self._topic_ids.get(topic_partition) or TopicId(int=0)
        while True:
            target = f"{self.directory}/{suffixed_name(topic_partition, unique, suffix)}"
            if not self._disk.exists(target):
                break
            unique = TopicId(int=(unique.int + 1) % 2**128)
        self._disk.rename(self.path_of(topic_partition), target)
        # Not before: a deletion that fails must not be confirmed.
        self._topic_ids.pop(topic_partition, None)
        self._gone.add(topic_partition)
        self._renamed.add(topic_partition)
        return target

    @property
    def loses_names(self) -> bool:
        """Whether it failed with renames that a loss of power may still undo."""
        return self.off_line is not None and bool(self._renamed)

    def settle(self, topic_partition: TopicPartition) -> None:
        """Make a renaming durable before the name is used in another directory. Blocking.

        Else a loss of power could bring the old folder back beside the new one: a start refuses.
        """
        if topic_partition in self._renamed:
            self.sync_names()

    def take_off_line(self, failure: StorageFailure) -> None:
        """Stop all reads and writes here, until a restart."""
        self.off_line = self.off_line or failure
        for held in self.logs:  # A copy: the executor may make another one meanwhile.
            held.fail(self.off_line)

    @property
    def failure(self) -> StorageFailure | None:
        """The first failure of the log directory or of any of its logs."""
        if self.off_line is not None:
            return self.off_line
        return next((held.failure for held in self.logs if held.failure), None)

    # ---- upkeep ----

    def sync_names(self) -> None:
        """Make renames here survive a loss of power. Blocking."""
        self._disk.sync_dir(self.directory)
        self._renamed.clear()

    def flush(self) -> None:
        """Sync everything appended so far, and write the recovery points. Blocking."""
        for held in tuple(self._logs.values()):
            if held.recovery_point < held.log_end_offset:
                held.flush()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points, which shorten the next start, and log starts. Blocking."""
        with self._checkpoints:
            held = dict(self._logs)
            points = {partition: each.recovery_point for partition, each in held.items()}
            points |= self._kept_in(RECOVERY_POINTS_NAME)
            self.offsets.write(RECOVERY_POINTS_NAME, points)
            self.write_log_starts()

    def write_log_starts(self) -> None:
        """Write the start offset of each log that does not start at 0. Blocking.

        Kafka leaves out those that start with their first segment. But the segments before it may
        come back: their names are removed without a sync.
        """
        with self._checkpoints:
            held = dict(self._logs)
            starts = {p: each.log_start_offset for p, each in held.items() if each.log_start_offset}
            starts |= self._coming | self._kept_in(LOG_STARTS_NAME)
            if starts != self._written_starts:
                self.offsets.write(LOG_STARTS_NAME, starts)
                self._written_starts = starts

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoint of high watermarks. Blocking."""
        with self._checkpoints:
            kept = self._kept_in(HIGH_WATERMARKS_NAME)
            self.offsets.write(HIGH_WATERMARKS_NAME, {**high_watermarks, **kept})

    def note_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoints of a log that is about to be cut at `offset`. Blocking."""
        with self._checkpoints:
            for name in (HIGH_WATERMARKS_NAME, CLEAN_OFFSETS_NAME):
                noted = self.offsets.read_quietly(name)
                if noted.get(topic_partition, 0) > offset:
                    self.offsets.write(name, {**noted, topic_partition: offset})
            self.checkpoint()

    def _of_unread(self, noted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            partition: offset for partition, offset in noted.items() if partition in self.unread
        }

    def _kept_in(self, name: str) -> dict[TopicPartition, int]:
        return self._of_unread(self._kept.get(name, {}))

    def _forget(self, topic_partition: TopicPartition) -> None:
        """Before a name is used again: remove partitions that are gone from the checkpoints.

        By such an entry the next start would take records of the new log for deleted, for synced,
        or for cleaned. Blocking.
        """
        with self._checkpoints:
            if topic_partition not in self._gone:
                return
            self._coming.pop(topic_partition, None)
            self.checkpoint()
            for name in (HIGH_WATERMARKS_NAME, CLEAN_OFFSETS_NAME):
                self.offsets.remove(name, self._gone)
            self._gone.clear()

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and release the directory. Blocking.

        The clean shutdown file is written, unless a log had failed, `clean` is false, its logs
        were never opened, or one that is unread was not closed before.
        """
        try:
            for held in self._logs.values():
                held.close()
            # Another broker that reads an unread log must recover it if it was not closed.
            is_closed = self.was_clean or not self.unread
            if clean and is_closed and self._is_open and self.failure is None:
                self.checkpoint()
                epoch = self.broker_epoch
                content = format_clean_shutdown(
                    last_sound_epoch(self.life) if epoch is None else epoch
                )
                path = f"{self.directory}/{CLEAN_SHUTDOWN_NAME}"
                self._disk.write_atomic(path, content, sync=True)
        finally:
            self.release()

    def abandon(self) -> None:
        """Release the directory as a crash would, without the clean shutdown file. Blocking."""
        try:
            for held in self._logs.values():
                held.abandon()
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock only."""
        self._lock.release()

    # ---- parts of the start ----

    def _find_partitions(self) -> None:
        for name in self._disk.list(self.directory):
            partition = parse_folder_name(name)
            if partition is not None and self._disk.is_dir(f"{self.directory}/{name}"):
                self.find(partition)

    def find(self, topic_partition: TopicPartition) -> None:
        """Register a partition's existing folder."""
        metadata = self._disk.read(f"{self.path_of(topic_partition)}/{PARTITION_METADATA_NAME}")
        self._topic_ids[topic_partition] = parse_partition_metadata(metadata)
        self._gone.discard(topic_partition)

    def _clear_leftovers(self) -> None:
        """Find interrupted deletions, and remove files that did not get their name."""
        for name in self._disk.list(self.directory):
            path = f"{self.directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self.deleted.append(path)
            elif name.endswith(".tmp"):
                self._disk.remove(path)

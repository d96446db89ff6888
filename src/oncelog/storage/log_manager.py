"""All logs of a broker, in one or more log directories (`log.dirs`).

A new partition goes to the directory with the fewest. It must not know which topics should exist:
the broker compares the folders with the metadata image before any log is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.config import LogConfig
from oncelog.storage.identity import FolderMismatch, Identity
from oncelog.storage.life_file import forget_life, note_life
from oncelog.storage.lives import decide_unclean, is_of_dead_life, unclean_folder
from oncelog.storage.log import PartitionLog
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.moves import drop_replaced, finish_move, moved_from, unfinished_moves

__all__ = ["LogManager"]

log = logging.getLogger(__name__)


class LogManager:
    """The log directories of one broker, locked.

    Call `take`, then `claim`, then `open_logs`. The event loop calls all methods that are not
    marked Blocking.
    """

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[LogDirectory],
        cluster_id: str | None = None,
        lost: Mapping[str, StorageFailure] | None = None,
    ) -> None:
        self._disk = disk
        self.folders = tuple(folders)
        self.cluster_id = cluster_id
        """The cluster of the log directories; None while all are new."""
        self.lost = dict(lost or {})
        """Failures by path, of folders that could not be locked and read."""
        self.missing: frozenset[str] = frozenset()
        """Ids of log directories that the broker had and that are not configured now."""
        self._broker_epoch: int | None = None

    @classmethod
    def take(cls, disk: Disk, directories: Sequence[str], *, node_id: int) -> LogManager:
        """Lock the log directories, create new ones, and read their identities. Blocking.

        No log is opened yet. A directory that cannot be read is off line while there are others.
        Raises `FolderInUse`, `FolderMismatch`, `StorageFailure`; then no existing file has changed.
        """
        folders: list[LogDirectory] = []
        lost: dict[str, StorageFailure] = {}
        try:
            for directory in directories:
                try:
                    folders.append(LogDirectory.take(disk, directory, node_id))
                except StorageFailure as failure:
                    lost[directory] = failure
                    if len(lost) == len(directories):
                        raise
                    log.error("the log directory %s is off line: %s", directory, failure)
            _check_each_once(disk, folders)
            cluster_id = _common_cluster_id(folders)
            for folder in folders:
                folder.mark()
        except BaseException:
            for folder in folders:
                folder.release()
            raise
        return cls(disk, folders, cluster_id, lost)

    def claim(self, cluster_id: str, node_id: int, fresh_id: Callable[[], str]) -> None:
        """Make new log directories the broker's own, and older layouts current. Blocking.

        `fresh_id` returns ids for new directories, of 22 characters each, as Kafka spells UUIDs.
        Raises `StorageFailure`.
        """
        self.cluster_id = cluster_id
        for folder in self.folders:
            folder.claim(folder.identity or Identity(cluster_id, node_id, fresh_id()))

    def expect(self, noted: frozenset[str]) -> None:
        """Find which of the directories that the store has noted are missing. Blocking.

        Where as many came as are missing, or all are others, disks were exchanged: the new ones
        note whose place they take, for later starts. Raises `StorageFailure`.
        """
        self.missing = noted - self.directory_ids
        new = [folder for folder in self.folders if folder.directory_id not in noted]
        is_exchange = len(new) >= len(self.missing) or len(new) == len(self.folders)
        if self.missing and is_exchange and not self.off_line_directories:
            for folder in new:
                folder.replace(self.missing)

    def finish_moves(self) -> None:
        """Finish or undo moves that a crash interrupted, before any log is opened. Blocking.

        A directory that fails goes off line while there are others. Raises `StorageFailure`.
        """
        # First, while all are on line: a log that was replaced must not be served.
        drop_replaced(self._disk, self.online, has_all=self.has_all)
        for folder in self.online:
            names: list[str] = []
            with self._losing():
                names = unfinished_moves(self._disk, folder)
            for name in names:
                if folder.off_line is None:
                    with self._losing():
                        finish_move(self._disk, folder, name, self.online)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Take the directory of a failure off line; raise it if that was the last one."""
        try:
            yield
        except StorageFailure as failure:
            folder = self.take_off_line(failure)
            if not self.online:
                raise
            if folder is not None:
                log.error("the log directory %s is off line: %s", folder.directory, failure)

    def open_logs(self, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        """Open every log, recovering those that were not closed cleanly. Blocking.

        `config_for` returns a topic's configs by name. A directory that fails goes off line while
        there are others. Raises `FolderMismatch`, `StorageFailure`.
        """
        for folder in self.online:
            with self._losing():
                folder.open_logs(config_for, now_ms)

    # ---- lives ----

    @property
    def noted_epoch(self) -> int:
        """The largest broker epoch that a folder names; 0 where none does."""
        lives = [folder.life for folder in self.folders]
        noted = [life.note.broker_epoch for life in lives if life.note is not None]
        return max(0, *noted, *(life.closed_epoch or 0 for life in lives))

    def may_take_over(self, broker_epoch: int) -> bool:
        """Whether the process that was this broker in that life is dead: these folders were its."""
        lives = [folder.life for folder in self.folders]
        return not self.lost and is_of_dead_life(broker_epoch, lives)

    def unclean_because(self, last_epoch: int) -> str | None:
        """Return why the broker may have lost records since its last life; None if it has not.

        `last_epoch` is that of the last life that the store knows, 0 for none. Called once the logs
        are open, and again where this process begins another life.
        """
        if self.off_line_directories:
            return f"the log directory {self.off_line_directories[0]} is off line"
        if last_epoch == self._broker_epoch:
            return None  # This process has lived it.
        lives = [folder.life for folder in self.folders]
        return decide_unclean(last_epoch, lives, self.missing)

    def is_of_life(self, topic_partition: TopicPartition, last_epoch: int) -> bool:
        """Whether the folder with this partition has all its records of that last life."""
        folder = self.folder_of(topic_partition)
        if folder is None or last_epoch == self._broker_epoch:
            return folder is not None
        return unclean_folder(last_epoch, folder.life) is None

    def begin_life(self, broker_epoch: int) -> None:
        """Take the number of a life that was registered; `note_life` notes it in the folders."""
        self._broker_epoch = broker_epoch
        for folder in self.folders:
            folder.broker_epoch = broker_epoch

    def note_life(self, *, is_synced: bool) -> None:
        """Note the present life in all folders, or in none where one has failed. Blocking.

        `is_synced` says that every record is synced before it is acknowledged, in all topics.
        Raises `StorageFailure`.
        """
        epoch = self._broker_epoch if self.has_all else None
        for folder in self.folders:
            if epoch is None:
                forget_life(self._disk, folder.directory)
            else:
                note_life(self._disk, folder.directory, epoch, is_synced=is_synced)

    # ---- folders ----

    @property
    def online(self) -> list[LogDirectory]:
        """The folders that have not failed."""
        return [folder for folder in self.folders if folder.off_line is None]

    @property
    def has_all(self) -> bool:
        """Whether every folder could be read; then a partition in none of them has no log."""
        is_given = not self.lost and not self.missing
        return is_given and all(folder.off_line is None for folder in self.folders)

    @property
    def has_replacements(self) -> bool:
        """Whether what is missing was on disks that were exchanged."""
        replaced = {each for f in self.folders if f.identity for each in f.identity.replaces}
        return not self.off_line_directories and self.missing <= replaced

    @property
    def unread_count(self) -> int:
        """The count of logs that have another format."""
        return sum(len(folder.unread) for folder in self.folders)

    def is_unread(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log has another format, so that it is off line."""
        folder = self.folder_of(topic_partition)
        return folder is not None and topic_partition in folder.unread

    @property
    def off_line_directories(self) -> list[str]:
        """The paths of the log directories that have failed."""
        return [*self.lost, *(f.directory for f in self.folders if f.off_line is not None)]

    @property
    def directory_ids(self) -> frozenset[str]:
        """The ids of the folders that could be read."""
        return frozenset(folder.directory_id for folder in self.folders)

    def take_off_line(self, failure: StorageFailure) -> LogDirectory | None:
        """Take the folder of a failure off line and return it; None if it already was.

        A failure whose path is in no folder may concern every folder.
        """
        for folder in self.folders:
            if failure.path == folder.directory or failure.path.startswith(f"{folder.directory}/"):
                is_news = folder.off_line is None
                folder.take_off_line(failure)
                return folder if is_news else None
        for folder in self.folders:
            folder.take_off_line(failure)
        return self.folders[0]

    # ---- logs ----

    def folder_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """The folder that holds the partition."""
        for folder in self.folders:
            if topic_partition in folder:
                return folder
        return None

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if there is one."""
        folder = self.folder_of(topic_partition)
        return None if folder is None else folder.get(topic_partition)

    def is_off_line(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition has a folder, in a log directory that has failed."""
        folder = self.folder_of(topic_partition)
        return folder is not None and folder.off_line is not None

    def is_whole(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log was closed cleanly, and has lost no record since."""
        folder = self.folder_of(topic_partition)
        return folder is not None and folder.is_whole(topic_partition)

    def topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """Return the id of the topic that a log was made for; None when a power loss removed it."""
        folder = self.folder_of(topic_partition)
        return None if folder is None else folder.topic_id(topic_partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Every partition found or made, whether its log is open or not."""
        for folder in self.folders:
            yield from folder

    def __len__(self) -> int:
        return sum(map(len, self.folders))

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create a new, empty log, or return an existing one of the same topic.

        A directory without space for it is skipped. Raises `StorageFailure` when none accepted it,
        or one failed; then nothing was created. Raises `FolderMismatch` when the folder belongs to
        another topic of that name: `set_aside` or `delete` it first.
        """
        folder = self.folder_of(topic_partition)
        if folder is None:
            return self._make(topic_partition, topic_id, config, now_ms)
        existing = folder.get(topic_partition)
        if existing is None:
            raise folder.off_line or StorageFailure("open", folder.path_of(topic_partition), "lost")
        found = folder.topic_id(topic_partition)
        if found is None:
            folder.note_topic_id(topic_partition, topic_id)
        elif found != topic_id:
            raise FolderMismatch(f"{existing.directory} belongs to another topic, {found}")
        return existing

    def _make(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        refusal = StorageFailure("create", str(topic_partition), "no log directory is on line")
        for folder in sorted(self.online, key=len):
            for other in self.online:
                if other is not folder:
                    other.settle(topic_partition)
            try:
                return folder.create(topic_partition, topic_id, config, now_ms)
            except StorageFailure as failure:
                if not failure.refused:
                    raise
                refusal = failure
        raise refusal

    def delete(self, topic_partition: TopicPartition) -> str | None:
        """Delete a partition's log; harmless when there is none. Blocking.

        Returns its folder, renamed as deleted, for the caller to remove. Only for a deletion that
        the metadata records (D14), which keeps that record for a directory that is off line.
        """
        folder = self.folder_of(topic_partition)
        if folder is None or folder.off_line is not None:
            return None
        return folder.delete(topic_partition)

    @property
    def deleted(self) -> list[str]:
        """Partition folders marked as deleted that an earlier process did not remove."""
        return [path for folder in self.folders for path in folder.deleted]

    def undo(self, topic_partition: TopicPartition) -> None:
        """Remove the log that `create` made and that was not used yet. Blocking."""
        folder = self.folder_of(topic_partition)
        if folder is not None:
            folder.undo(topic_partition)

    def set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Set a partition's folder aside, unserved, and log it (D14). Blocking."""
        folder = self.folder_of(topic_partition)
        if folder is not None:
            folder.set_aside(topic_partition, reason)

    # ---- upkeep ----

    def note_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoints of a log that is about to be cut at `offset`. Blocking."""
        folder = self.folder_of(topic_partition)
        if folder is not None:
            folder.note_truncation(topic_partition, offset)

    def sync_names(self) -> None:
        """Make renames in the log directories survive a loss of power. Blocking."""
        for folder in self.online:
            folder.sync_names()

    def flush(self) -> None:
        """Sync everything appended so far, and write the recovery points. Blocking."""
        for folder in self.online:
            folder.flush()

    def checkpoint(self) -> None:
        """Write recovery points, which shorten the next start, and log starts. Blocking."""
        for folder in self.online:
            folder.checkpoint()

    def write_log_starts(self) -> None:
        """Write where logs start, after records were deleted. Blocking."""
        for folder in self.online:
            folder.write_log_starts()

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoints of high watermarks. Blocking."""
        for folder in self.online:
            here = {p: offset for p, offset in high_watermarks.items() if p in folder}
            folder.write_high_watermarks(here)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return those last written; of another folder only where a log was moved from there."""
        found: dict[TopicPartition, int] = {}
        for folder in self.online:
            noted = folder.offsets.read_high_watermarks()
            found |= {p: at for p, at in noted.items() if p in folder or p not in found}
        return found

    def read_times(self, name: str) -> dict[TopicPartition, int]:
        """Return the times in a file of each directory; none where it is missing or damaged."""
        found: dict[TopicPartition, int] = {}
        for folder in self.online:
            found |= folder.offsets.read_quietly(name)
        return found

    def write_times(self, name: str, times: Mapping[TopicPartition, int]) -> None:
        """Write such a file in each directory that has some of the partitions. Blocking."""
        for folder in self.online:
            here = {p: time_ms for p, time_ms in times.items() if p in folder}
            if here:
                folder.offsets.write(name, here)

    def closing(self, shares_count: int) -> list[Callable[[], StorageFailure | None]]:
        """Return functions that close all logs, for up to so many threads.

        They are Blocking, and return their first failure; call `close` afterwards.
        """
        logs = [held for folder in self.online for held in folder.logs]
        shares = (logs[start::shares_count] for start in range(shares_count))
        return [partial(_close_all, share) for share in shares if share]

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and release the directories. Blocking.

        Clean shutdown files are written, unless a log had failed or `clean` is false. Raises the
        first `StorageFailure` once all are closed.
        """
        failures = []
        self._forget_failed_life()
        for folder in self.folders:
            try:
                folder.close(clean=clean)
            except StorageFailure as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def abandon(self, *, by_a_kill: bool = True) -> None:
        """Release the directories as a crash would. Blocking.

        A process that is not killed takes back the notes of a life in which a folder has failed.
        """
        if not by_a_kill:
            self._forget_failed_life()
        for folder in self.folders:
            folder.abandon()

    def _forget_failed_life(self) -> None:
        if any(folder.off_line is not None for folder in self.folders):
            for folder in self.folders:
                forget_life(self._disk, folder.directory)


def _close_all(logs: Sequence[PartitionLog]) -> StorageFailure | None:
    first = None
    for held in logs:
        try:
            held.close()
        except StorageFailure as failure:
            # The failure keeps the folder from being marked as cleanly closed.
            first = first or failure
    return first


def _check_each_once(disk: Disk, folders: Sequence[LogDirectory]) -> None:
    """Two folders must not be copies of each other, nor hold the same partition."""
    by_id: dict[str, str] = {}
    by_partition: dict[TopicPartition, LogDirectory] = {}
    for folder in folders:
        if folder.identity is not None:
            other = by_id.setdefault(folder.identity.directory_id, folder.directory)
            if other != folder.directory:
                raise FolderMismatch(
                    f"the folders {other} and {folder.directory} have the same directory.id: "
                    "one is a copy of the other, take it out of log.dirs"
                )
        for partition in folder:
            first = by_partition.setdefault(partition, folder)
            if first is folder or _replaces(disk, folder, first, partition):
                continue
            raise FolderMismatch(
                f"the partition {partition} is both in {first.directory} and in "
                f"{folder.directory}: move the older one out of its folder"
            )


def _replaces(
    disk: Disk, one: LogDirectory, other: LogDirectory, partition: TopicPartition
) -> bool:
    """Whether exactly one of the two is noted to have replaced the other."""
    here = moved_from(disk, one, partition) == other.directory_id
    there = moved_from(disk, other, partition) == one.directory_id
    return here != there


def _common_cluster_id(folders: Sequence[LogDirectory]) -> str | None:
    known = [(folder.identity, folder.directory) for folder in folders]
    owned = [(found.cluster_id, directory) for found, directory in known if found is not None]
    for cluster_id, directory in owned:
        if cluster_id != owned[0][0]:
            raise FolderMismatch(
                f"the folder {directory} belongs to cluster {cluster_id}, "
                f"the folder {owned[0][1]} to {owned[0][0]}"
            )
    return owned[0][0] if owned else None

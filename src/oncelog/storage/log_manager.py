"""The data folder of a broker: its identity, its lock, and all the logs in it.

It must not know which topics should exist; the broker compares what it finds here with the metadata
image. Files are Kafka's (D5), and one of ours: `oncelog.format`, the version of this layout, so
that a later version can refuse or convert.

INV-9: `.kafka_cleanshutdown` is removed, durably, before any log is opened, and written only after
all were closed. So a crash at any moment in between is followed by a recovery.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.runtime.disk import Disk, DiskLock, StorageFailure
from oncelog.storage.checkpoints import (
    format_offsets,
    format_partition_metadata,
    format_properties,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from oncelog.storage.config import LogConfig
from oncelog.storage.files import PARTITION_METADATA_NAME
from oncelog.storage.log import PartitionLog

__all__ = ["FolderMismatch", "LogManager"]

FORMAT_VERSION = 1
FORMAT_NAME = "oncelog.format"
LOCK_NAME = ".lock"
META_NAME = "meta.properties"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
DELETE_SUFFIX = "-delete"

_PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_FOLDER_NAME_LENGTH_MAX = 255


class FolderMismatch(OncelogError):  # noqa: N818 - names a state of the folder
    """The folder is of another broker, another cluster, another layout, or not ours at all."""


class LogManager:
    """All logs of one data folder.

    Create one with `open`; methods are for the event loop unless they say Blocking.
    """

    def __init__(self, disk: Disk, directory: str, lock: DiskLock, meta: Mapping[str, str]) -> None:
        self._disk = disk
        self._lock = lock
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._topic_ids: dict[TopicPartition, TopicId | None] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self.directory = directory
        self.cluster_id = meta["cluster.id"]
        self.directory_id = meta["directory.id"]
        self.node_id = int(meta["node.id"])
        self.was_clean = False
        """Whether the last process closed this folder in order."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        node_id: int,
        cluster_id: str,
        directory_id: str,
    ) -> "LogManager":
        """Take the folder, make it if it is new, and open every log in it. Blocking.

        `config_for` gives a topic's settings by name. `cluster_id` and `directory_id` (22
        characters each, as Kafka spells UUIDs) count for a new folder only; afterwards
        `meta.properties` holds them. Raises `FolderInUse`, `FolderMismatch`, `StorageFailure`.
        """
        if not disk.is_dir(directory):
            disk.mkdir(directory)
            disk.sync_dir(directory.rpartition("/")[0] or "/" * directory.startswith("/") or ".")
        lock = disk.lock(f"{directory}/{LOCK_NAME}")
        try:
            meta = _take_identity(disk, directory, node_id, cluster_id, directory_id)
            manager = cls(disk, directory, lock, meta)
            manager._open_logs(config_for, now_ms)
        except BaseException:
            lock.release()
            raise
        return manager

    # ---- logs ----

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if the folder has one."""
        return self._logs.get(topic_partition)

    def topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """The topic that the folder was made for; None when a loss of power took the note."""
        return self._topic_ids.get(topic_partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._logs))

    def __len__(self) -> int:
        return len(self._logs)

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Make a new, empty log; an existing one of the same topic is returned as it is.

        Raises `FolderMismatch` when the folder belongs to an earlier topic of that name: `delete`
        it first.
        """
        existing = self._logs.get(topic_partition)
        if existing is not None:
            found = self._topic_ids.get(topic_partition)
            if found is None:
                self._note_topic_id(topic_partition, topic_id)
            elif found != topic_id:
                raise FolderMismatch(f"{existing.directory} belongs to another topic, {found}")
            return existing
        directory = self._folder(topic_partition)
        log = PartitionLog.open(self._disk, directory, topic_partition, config, now_ms)
        if config.flush_messages == 1:
            # Whoever syncs each record before its acknowledgement must find its folder (INV-9).
            self._disk.sync_dir(self.directory)
        self._logs[topic_partition] = log
        self._note_topic_id(topic_partition, topic_id)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Remove a partition's log; harmless when there is none. Blocking.

        The folder is renamed first, so that a crash in between cannot leave half a log under the
        partition's name.
        """
        log = self._logs.pop(topic_partition, None)
        topic_id = self._topic_ids.pop(topic_partition, None)
        if log is None:
            return
        log.abandon()
        suffix = f".{topic_id.hex if topic_id else '0' * 32}{DELETE_SUFFIX}"
        name = str(topic_partition)[: _FOLDER_NAME_LENGTH_MAX - len(suffix)] + suffix
        doomed = f"{self.directory}/{name}"
        self._disk.remove_tree(doomed)
        self._disk.rename(log.directory, doomed)
        self._disk.remove_tree(doomed)

    @property
    def failure(self) -> StorageFailure | None:
        """The first failure of any log.

        The folder is off line then, and the broker should stop serving it.
        """
        return next((log.failure for log in self._logs.values() if log.failure is not None), None)

    # ---- upkeep ----

    def flush(self) -> None:
        """Make everything appended so far survive a loss of power, and note that. Blocking."""
        for log in tuple(self._logs.values()):
            if log.recovery_point < log.log_end_offset:
                log.flush()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points and log starts, which shorten the next start. Blocking."""
        logs = dict(self._logs)
        points = {partition: log.recovery_point for partition, log in logs.items()}
        starts = {
            partition: log.log_start_offset
            for partition, log in logs.items()
            if log.log_start_offset > log.segment_base_offsets[0]
        }
        self._write(RECOVERY_POINTS_NAME, format_offsets(points))
        self._write(LOG_STARTS_NAME, format_offsets(starts))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoint of high watermarks. Blocking."""
        self._write(HIGH_WATERMARKS_NAME, format_offsets(high_watermarks))

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as last written; empty when there are none."""
        return self._read_offsets(HIGH_WATERMARKS_NAME)

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and let go of the folder. Blocking.

        It is marked as closed in order, unless a log had failed or `clean` is false.
        """
        try:
            for log in self._logs.values():
                log.close()
            if clean and self.failure is None:
                self.checkpoint()
                content = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
                self._write(CLEAN_SHUTDOWN_NAME, content)
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Let go of the folder as a crash would: nothing is noted as closed in order. Blocking."""
        try:
            for log in self._logs.values():
                log.abandon()
        finally:
            self._lock.release()

    # ---- opening ----

    def _open_logs(self, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        disk, directory = self._disk, self.directory
        clean_path = f"{directory}/{CLEAN_SHUTDOWN_NAME}"
        self.was_clean = disk.exists(clean_path)
        if self.was_clean:
            disk.remove(clean_path)
            disk.sync_dir(directory)
        points = self._read_offsets(RECOVERY_POINTS_NAME)
        starts = self._read_offsets(LOG_STARTS_NAME)
        for name in disk.list(directory):
            path = f"{directory}/{name}"
            if name.endswith(DELETE_SUFFIX):
                disk.remove_tree(path)
                continue
            if name.endswith(".tmp"):
                disk.remove(path)
                continue
            match = _PARTITION_FOLDER.fullmatch(name)
            if match is None or not disk.is_dir(path):
                continue
            partition = TopicPartition(match["topic"], int(match["partition"]))
            if str(partition) != name:
                continue
            self._logs[partition] = PartitionLog.open(
                disk,
                path,
                partition,
                config_for(partition.topic),
                now_ms,
                self.was_clean,
                recovery_point=points.get(partition, 0),
                log_start_offset=starts.get(partition, 0),
            )
            metadata = disk.read(f"{path}/{PARTITION_METADATA_NAME}")
            self._topic_ids[partition] = parse_partition_metadata(metadata)

    def _note_topic_id(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        path = f"{self._folder(topic_partition)}/{PARTITION_METADATA_NAME}"
        self._disk.write_atomic(path, format_partition_metadata(topic_id), sync=False)
        self._topic_ids[topic_partition] = topic_id

    def _folder(self, topic_partition: TopicPartition) -> str:
        return f"{self.directory}/{topic_partition}"

    def _write(self, name: str, data: bytes) -> None:
        self._disk.write_atomic(f"{self.directory}/{name}", data, sync=True)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        return parse_offsets(self._disk.read(f"{self.directory}/{name}")) or {}


def _take_identity(
    disk: Disk, directory: str, node_id: int, cluster_id: str, directory_id: str
) -> dict[str, str]:
    """Check that the folder is ours, or make it so.

    The format comes first: a folder without one is not ours.
    """
    layout = disk.read(f"{directory}/{FORMAT_NAME}")
    meta_path = f"{directory}/{META_NAME}"
    meta = parse_properties(disk.read(meta_path))
    if layout is None:
        if meta:
            raise FolderMismatch(
                f"the folder {directory} has a {META_NAME} but no {FORMAT_NAME}: "
                "it belongs to another program, for example Apache Kafka"
            )
        disk.write_atomic(f"{directory}/{FORMAT_NAME}", b"%d\n" % FORMAT_VERSION, sync=True)
    elif layout.strip() != b"%d" % FORMAT_VERSION:
        raise FolderMismatch(
            f"the folder {directory} has format {layout.decode('ascii', 'replace').strip()!r}; "
            f"this version reads format {FORMAT_VERSION}"
        )
    if {"cluster.id", "node.id", "directory.id"} <= meta.keys():
        if meta["node.id"] != str(node_id):
            raise FolderMismatch(
                f"the folder {directory} belongs to broker {meta['node.id']}, not {node_id}"
            )
        return meta
    meta = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    disk.write_atomic(meta_path, format_properties(meta), sync=True)
    return meta

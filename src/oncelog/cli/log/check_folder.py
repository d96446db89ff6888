"""Check a log directory: its own files, the metadata beside them, and every partition in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.cli.log.check_indexes import read_file
from oncelog.cli.log.check_partition import PartitionCheck
from oncelog.cli.log.findings import NOTE, Finding, error, note
from oncelog.cli.log.kinds import (
    CLEAN_SHUTDOWN_NAME,
    FORMAT_NAME,
    META_NAME,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS_NAME,
    partition_folders,
)
from oncelog.controller import layout
from oncelog.controller.contents import Contents
from oncelog.controller.image import MetadataImage
from oncelog.controller.upgrade import upgrade_writes
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.storage.checkpoints import parse_offsets, parse_partition_metadata, parse_properties
from oncelog.storage.files import PARTITION_METADATA_NAME

__all__ = ["LOCK_NAME", "METADATA_NAME", "FolderCheck", "is_in_use"]

LOCK_NAME: Final = ".lock"
METADATA_NAME: Final = "metadata.sqlite"
_META_KEYS: Final = frozenset({"version", "node.id", "cluster.id"})


class _Extent(NamedTuple):
    start: int
    end: int


def is_in_use(folder: str) -> bool:
    """Whether a broker holds the folder's lock. The check holds a shared lock only briefly."""
    try:
        with open(os.path.join(folder, LOCK_NAME), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Apache Kafka's kind.
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


class FolderCheck:
    """Checks one log directory once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.in_use = is_in_use(folder)
        self.was_closed = not self.in_use and os.path.exists(self._path(CLEAN_SHUTDOWN_NAME))
        self._extents: dict[TopicPartition, _Extent] = {}
        self._unknown: set[TopicPartition] = set()
        """Partitions whose logs have another format."""

    def run(self) -> Iterator[Finding]:
        """Yield all findings: the folder's own files, each partition, then checks across them."""
        yield from self._check_identity()
        yield from self._check_all()

    def run_own(self) -> Iterator[Finding]:
        """Yield only the findings about the folder's own files."""
        partitions = tuple(os.path.join(path, "") for path in partition_folders(self.folder))
        for finding in self.run():
            if not os.path.join(finding.path, "").startswith(partitions):
                yield finding

    def _check_all(self) -> Iterator[Finding]:
        topics, findings = self._read_metadata()
        yield from findings
        for path in partition_folders(self.folder):
            yield from self._check_partition(path, topics)
        for name in OFFSET_CHECKPOINTS:
            yield from self._check_offsets(name)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _check_identity(self) -> Iterator[Finding]:
        meta, path = read_file(self._path(META_NAME)), self._path(META_NAME)
        if meta is None:
            yield error(path, "", "missing: nothing says whose folder this is")
        else:
            missing = _META_KEYS - parse_properties(meta).keys()
            if missing:
                yield error(path, "", f"does not say {', '.join(sorted(missing))}")
        layout, path = read_file(self._path(FORMAT_NAME)), self._path(FORMAT_NAME)
        if layout is None:
            yield note(path, "", "missing, as in a folder of Apache Kafka")
        elif not layout.strip().isdigit():
            yield error(path, "", f"{len(layout)} bytes that name no format")
        if not self.in_use and not self.was_closed:
            path = self._path(CLEAN_SHUTDOWN_NAME)
            yield note(path, "", "missing: the broker was killed, and its next start recovers")

    # ---- metadata

    def _read_metadata(self) -> tuple[dict[str, TopicId] | None, list[Finding]]:
        """Return topic ids by name from the metadata store; None if it cannot be read."""
        path = self._path(METADATA_NAME)
        if not os.path.exists(path):
            return None, []
        with tempfile.TemporaryDirectory(prefix="oncelog-verify-") as scratch:
            # SQLite creates files beside a database that it reads, so it reads copies.
            for name in (METADATA_NAME, f"{METADATA_NAME}-wal"):
                if os.path.exists(self._path(name)):
                    shutil.copy(self._path(name), os.path.join(scratch, name))
            try:
                topics = _topic_ids(os.path.join(scratch, METADATA_NAME))
            except (sqlite3.Error, ValueError, OncelogError) as problem:
                return None, [error(path, "", f"cannot be read: {problem}")]
        if topics is None:
            text = "has no entries: oncelog.metadata.file names another file, or they are lost"
            return None, [note(path, "", text)]
        return topics, []

    # ---- partitions

    def _check_partition(self, path: str, topics: dict[str, TopicId] | None) -> Iterator[Finding]:
        name = os.path.basename(path)
        partition = _partition(name)
        if partition is None:
            suffix = name.rpartition("-")[2]
            yield note(path, "", f"set aside by a broker as -{suffix}; its logs are not checked")
            return
        check = PartitionCheck(path, was_closed=self.was_closed, in_use=self.in_use)
        yield from check.run()
        if check.is_unknown:
            self._unknown.add(partition)
        else:
            self._extents[partition] = _Extent(check.survey.start_offset, check.survey.end_offset)
        if topics is None:
            return
        noted = parse_partition_metadata(read_file(os.path.join(path, PARTITION_METADATA_NAME)))
        known = topics.get(partition.topic)
        if known is None:
            yield error(path, "", f"the metadata knows no topic {partition.topic}")
        elif noted is not None and noted != known:
            yield error(path, "", f"is of topic id {noted}, the metadata's topic has {known}")

    # ---- checkpoints

    def _check_offsets(self, name: str) -> Iterator[Finding]:
        path = self._path(name)
        data = read_file(path)
        if data is None:
            if name == RECOVERY_POINTS_NAME and self._extents:
                yield note(path, "", "missing: the next start after a kill reads everything")
            return
        offsets = parse_offsets(data)
        if offsets is None:
            yield error(path, "", f"{len(data)} bytes that do not parse")
            return
        for partition, offset in offsets.items():
            if partition in self._unknown:
                continue  # Its end is not known.
            extent = self._extents.get(partition)
            if extent is None:
                yield note(path, str(partition), "there is no such folder")
            elif not 0 <= offset <= extent.end:
                text = f"says {offset}, the log is from {extent.start} to {extent.end}"
                finding = error(path, str(partition), text)
                yield finding._replace(severity=NOTE) if self.in_use else finding


def _partition(name: str) -> TopicPartition | None:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdigit() else None


def _topic_ids(path: str) -> dict[str, TopicId] | None:
    """Return topic ids by name, from a store of any format; None where it has no entries."""
    database = sqlite3.connect(path)
    try:
        (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise ValueError(verdict)
        rows = database.execute("SELECT path, value FROM node WHERE value IS NOT NULL")
        values: dict[str, bytes | None] = dict(rows)
    finally:
        database.close()
    found = {path: value for path, value in values.items() if value is not None}
    if not found:
        return None
    if layout.FORMAT_PATH in found:
        layout.check_format(found[layout.FORMAT_PATH])
    else:
        values |= dict(upgrade_writes(found))
    contents = Contents(MetadataImage(cluster_id=""))
    contents.take([(path, value, 0) for path, value in values.items() if value is not None], 1)
    return {topic.name: topic.topic_id for topic in contents.image.topics.values()}

"""Log directories opened without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from oncelog.runtime import Disk, SystemDisk
from oncelog.storage import LogConfig, LogManager

__all__ = ["CLUSTER", "open_logs", "take_folders"]

NOW_MS = 1_700_000_000_000
CLUSTER = f"{0:022d}"
"""The first id that is given out: to a new cluster."""


def take_folders(*directories: object, disk: Disk | None = None, node_id: int = 1) -> LogManager:
    """Lock the folders; fresh ids are numbers."""
    ids: Iterator[str] = (f"{number:022d}" for number in count())
    names = [str(directory) for directory in directories]
    manager = LogManager.take(disk or SystemDisk(), names, node_id=node_id)
    try:
        manager.claim(manager.cluster_id or next(ids), node_id, lambda: next(ids))
    except BaseException:
        manager.abandon()
        raise
    return manager


def open_logs(
    *directories: object,
    disk: Disk | None = None,
    node_id: int = 1,
    config: LogConfig | None = None,
    now_ms: int = NOW_MS,
) -> LogManager:
    """Lock the folders and open every log in them, with one configuration."""
    manager = take_folders(*directories, disk=disk, node_id=node_id)
    try:
        manager.finish_moves()
        manager.open_logs(lambda _topic: config or LogConfig(), now_ms)
    except BaseException:
        manager.abandon()
        raise
    return manager

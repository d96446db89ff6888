"""The edges of the process: clock, disk, executor and network.

Everything above takes time, files and connections from here, so that the simulation can supply its
own (D3). This room knows how to reach the outside, never what for: no log, topic or transaction is
named in it.
"""

from oncelog.runtime.clock import Clock, SystemClock
from oncelog.runtime.disk import (
    Disk,
    DiskFile,
    DiskLock,
    FolderInUse,
    Lane,
    NotCached,
    StorageFailure,
    SystemDisk,
)
from oncelog.runtime.open_files import OpenFiles, raise_limit

__all__ = [
    "Clock",
    "Disk",
    "DiskFile",
    "DiskLock",
    "FolderInUse",
    "Lane",
    "NotCached",
    "OpenFiles",
    "StorageFailure",
    "SystemClock",
    "SystemDisk",
    "raise_limit",
]

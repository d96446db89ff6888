"""The edges of the process: clock, disk, executor and network.

All other packages use time, files and connections through this one, so that the simulation can
replace it (D3). It knows no log, topic or transaction.
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

"""Begins a log in a folder that was just made, with as few file operations as possible.

A broker creates thousands of partitions in one request, and each file costs the file system about
as much as the folder. So only the `.log` file is made: recovery rebuilds the index files of an
active segment anyway, and nothing has to be looked for in a folder that did not exist.
"""

from oncelog.runtime.disk import Disk
from oncelog.storage.recovery import Recovered, RecoveryReport
from oncelog.storage.replay import DerivedState
from oncelog.storage.segment import Segment
from oncelog.storage.snapshots import Snapshots
from oncelog.storage.state_files import StateFiles

__all__ = ["begin_log"]


def begin_log(disk: Disk, directory: str, now_ms: int, *, partition: str) -> Recovered:
    """Create the files of an empty log in a new folder. Raises `StorageFailure`.

    As long as nothing is appended a clean stop has nothing to write (see `recovery`).
    """
    report = RecoveryReport(partition)
    segment = Segment(disk, directory, 0)
    segment.create()
    segment.begun_ms = now_ms
    return Recovered(
        [segment],
        DerivedState(),
        Snapshots(disk, directory, report.warn, is_new=True),
        StateFiles(disk, directory, is_new=True),
        log_start_offset=0,
        log_end_offset=0,
        report=report,
        changed=False,
    )

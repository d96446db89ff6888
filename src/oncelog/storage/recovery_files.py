"""Finds the segments among the files of a partition's folder, and sorts out all others (D14).

A file is removed only where a recorded decision names it: `.deleted` (retention, a truncation),
`.tmp` (never trusted before its rename), and those of a cleaning (see `swap`). Every other file
that does not fit is renamed, so that no start reads it, and logged. It knows no batches.
"""

from oncelog.core.limits import RECOVERY_READ_SIZE_BYTES
from oncelog.runtime.disk import Disk
from oncelog.storage.files import (
    BATCHES_SUFFIX,
    CUT_SUFFIX,
    DELETED_SUFFIX,
    FAILED_SYNC_NAME,
    LEADER_EPOCHS_NAME,
    LOG_SUFFIX,
    MOVE_NOTE_NAME,
    ORPHAN_SUFFIX,
    PARTITION_METADATA_NAME,
    REGISTER_NAME,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    STRAY_NOTE_NAME,
    base_offset_of,
)
from oncelog.storage.recovery_report import RecoveryReport
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment import Segment
from oncelog.storage.swap import finish_swaps

__all__ = [
    "believed_end",
    "find_segments",
    "has_our_files",
    "remove_segment_files",
    "rename_segment_files",
    "rewrite",
    "set_segment_aside",
]

_NEVER_TRUSTED = (".tmp",)
_DECIDED = (LOG_SUFFIX + DELETED_SUFFIX, LOG_SUFFIX + CUT_SUFFIX)
_KNOWN_NAMES = {
    FAILED_SYNC_NAME,
    LEADER_EPOCHS_NAME,
    MOVE_NOTE_NAME,
    PARTITION_METADATA_NAME,
    REGISTER_NAME,
    STRAY_NOTE_NAME,
}
_KNOWN_SUFFIXES = (CUT_SUFFIX, ORPHAN_SUFFIX, ".damaged", ".swap")
"""`.damaged` is what `oncelog log repair` set aside."""
_NUMBERED_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, BATCHES_SUFFIX)


def remove_segment_files(disk: Disk, prefix: str) -> None:
    """Delete a segment."""
    for path in rename_segment_files(disk, prefix):
        disk.remove(path)


def rename_segment_files(disk: Disk, prefix: str) -> list[str]:
    """Rename a segment's files as deleted; return the new names.

    The `.log` is renamed first; the next start finishes half of a deletion.
    """
    renamed = []
    for suffix in SEGMENT_SUFFIXES:
        if disk.exists(prefix + suffix):
            disk.rename(prefix + suffix, prefix + suffix + DELETED_SUFFIX)
            renamed.append(prefix + suffix + DELETED_SUFFIX)
    return renamed


def set_segment_aside(disk: Disk, segment: Segment, report: RecoveryReport) -> None:
    """Remove a segment from the log, but retain its records under another name.

    One per base offset is retained, except empty ones. Its other files can be rebuilt from it.
    """
    kept_as = segment.path + CUT_SUFFIX if segment.size else ""
    segment.close()
    if kept_as:
        disk.rename(segment.path, kept_as)
    else:
        disk.remove(segment.path)
    for suffix in SEGMENT_SUFFIXES[1:]:
        disk.remove(segment.prefix + suffix)
    report.set_aside(segment.path, segment.base_offset, segment.size, kept_as)


def find_segments(disk: Disk, directory: str, report: RecoveryReport) -> list[Segment]:
    """The segments by base offset, with the sizes of their files; leftovers are cleared away.

    The end offset of all but the last is where the next one begins.
    """
    finish_swaps(disk, directory)
    names = disk.list(directory)
    found = (base_offset_of(name, LOG_SUFFIX) for name in names)
    bases = sorted(offset for offset in found if offset is not None)
    decided = {
        name[: -len(suffix)] for name in names for suffix in _DECIDED if name.endswith(suffix)
    }
    for name in names:
        _judge(disk, directory, name, bases, decided, report)
    for name in names:
        # Removed last: while a `.log.deleted` is there, index files beside it are deleted too.
        if name.endswith((DELETED_SUFFIX, *_NEVER_TRUSTED)):
            disk.remove(f"{directory}/{name}")
    segments = [Segment(disk, directory, base) for base in bases]
    for segment, following in zip(segments, [*bases, None][1:], strict=True):
        segment.size = segment.file.size()
        if following is not None:
            segment.end_offset = following
            segment.release()
    return segments


def _judge(
    disk: Disk,
    directory: str,
    name: str,
    bases: list[int],
    decided: set[str],
    report: RecoveryReport,
) -> None:
    path = f"{directory}/{name}"
    for suffix in SEGMENT_SUFFIXES[1:]:
        base = base_offset_of(name, suffix)
        if base is None or base in bases:
            continue
        if name[: -len(suffix)] in decided:
            disk.remove(path)
        else:
            disk.rename(path, path + ORPHAN_SUFFIX)
            report.warn(f"{path} has no {LOG_SUFFIX} file; it is kept as {path}{ORPHAN_SUFFIX}")
        return
    is_known = (
        name in _KNOWN_NAMES
        or name.endswith((DELETED_SUFFIX, *_NEVER_TRUSTED, *_KNOWN_SUFFIXES))
        or any(base_offset_of(name, suffix) is not None for suffix in _NUMBERED_SUFFIXES)
    )
    if not is_known:
        report.warn(f"{path} is no file of a log; it is left as it is")


def believed_end(segment: Segment, *, compact: bool) -> int | None:
    """Return the end of a sealed segment that the register does not know, if its indexes fit.

    As in Kafka: indexes that can be read and fit are trusted, and a missing `.txnindex` is
    empty.
    """
    if segment.size and not segment.index_sizes()[1]:
        return None
    try:
        end_offset = segment.find_end()
    except CorruptBatch:
        return None
    if end_offset > segment.end_offset:
        return None
    return segment.end_offset if compact else end_offset


def has_our_files(disk: Disk, directory: str) -> bool:
    """Whether Oncelog wrote to this folder before, and not only Apache Kafka."""
    return any(
        name == REGISTER_NAME or name.endswith(BATCHES_SUFFIX) for name in disk.list(directory)
    )


def rewrite(segment: Segment, *, with_size: bool) -> None:
    """Rewrite a file with its present bytes.

    After a failed fsync the system may show bytes, and an end of the file, that it will never write
    by itself. `with_size`: only where a further byte that a crash leaves is cut off as damage.
    """
    for position in range(0, segment.size, RECOVERY_READ_SIZE_BYTES):
        data = segment.file.pread(RECOVERY_READ_SIZE_BYTES, position)
        segment.file.pwrite(data, position)
    if with_size:
        segment.file.truncate(segment.size + 1)
        segment.file.truncate(segment.size)

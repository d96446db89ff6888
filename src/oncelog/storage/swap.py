"""Replaces segments by the cleaned one made from them, safe from crashes (INV-9).

The names are Kafka's. A crash at any step, with unsynced names lost, leaves the old segments or the
new one:

1. the new files are written under `.cleaned` and synced, then their names;
2. `commit`: the indexes are renamed `.swap` and synced, then the `.log` is renamed and synced. From
   here on the new segment counts;
3. `retire`: the old segments but the first are renamed `.deleted`, the `.log` first, and synced;
4. `publish`: the indexes drop `.swap`, over those of the first old segment, and are synced, then
   the `.log` does. The new segment always has all three index files, so that none is taken for the
   old segment's;
5. the `.deleted` files are removed.

So a `.log.cleaned` says that nothing was replaced yet, and a `.log.swap` that the remaining steps
are to be finished, for the segments that begin within it. An old segment that begins after its last
batch may remain: all its records may be removed by compaction, at any later time.
"""

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from oncelog.protocol.batch import HEADER_SIZE
from oncelog.runtime.disk import Disk
from oncelog.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    base_offset_of,
    file_prefix,
)
from oncelog.storage.header_walk import parse_header

__all__ = ["Guard", "commit", "finish_swaps", "publish", "retire"]

log = logging.getLogger(__name__)

_INDEX_SUFFIXES = SEGMENT_SUFFIXES[1:]

Guard = Callable[[], AbstractContextManager[object]]
"""Entered around each batch of renames: it locks the log, or raises if the log is gone."""


def _nothing() -> None:
    pass


def commit(disk: Disk, directory: str, prefix: str, guard: Guard) -> None:
    """Make the cleaned segment `prefix` count, which is synced with its names. Blocking."""
    _rename_indexes(disk, prefix, CLEANED_SUFFIX, SWAP_SUFFIX, guard)
    disk.sync_dir(directory)
    with guard():
        disk.rename(prefix + LOG_SUFFIX + CLEANED_SUFFIX, prefix + LOG_SUFFIX + SWAP_SUFFIX)
    disk.sync_dir(directory)


def retire(disk: Disk, directory: str, prefixes: list[str], guard: Guard) -> None:
    """Rename the replaced segments as deleted, except the one that `publish` replaces.

    Blocking.
    """
    for prefix in prefixes:
        with guard():
            for suffix in SEGMENT_SUFFIXES:
                if disk.exists(prefix + suffix):
                    disk.rename(prefix + suffix, prefix + suffix + DELETED_SUFFIX)
    if prefixes:
        disk.sync_dir(directory)


def publish(
    disk: Disk, directory: str, prefix: str, guard: Guard, named: Callable[[], None] = _nothing
) -> None:
    """Give the new segment its final names, replacing the first old segment's. Blocking.

    Calls `named` as soon as it has them.
    """
    _rename_indexes(disk, prefix, SWAP_SUFFIX, "", guard)
    disk.sync_dir(directory)
    with guard():
        disk.rename(prefix + LOG_SUFFIX + SWAP_SUFFIX, prefix + LOG_SUFFIX)
        named()
    disk.sync_dir(directory)


def _rename_indexes(disk: Disk, prefix: str, source: str, target: str, guard: Guard) -> None:
    with guard():
        for suffix in _INDEX_SUFFIXES:
            if disk.exists(prefix + suffix + source):
                disk.rename(prefix + suffix + source, prefix + suffix + target)


def finish_swaps(disk: Disk, directory: str) -> None:
    """Finish each swap that was committed, undo each that was not. Blocking.

    Must run before the folder is read, after a clean stop too.
    """
    names = set(disk.list(directory))
    cleaned = _bases(names, CLEANED_SUFFIX)
    swapped = _bases(names, SWAP_SUFFIX)
    for base in sorted(cleaned | swapped):
        prefix = file_prefix(directory, base)
        if _is_there(names, base, LOG_SUFFIX + CLEANED_SUFFIX):
            _undo(disk, directory, prefix)
        elif _is_there(names, base, LOG_SUFFIX + SWAP_SUFFIX):
            _finish(disk, directory, base, names)
        elif base in swapped:
            # Apache Kafka renames the .log first, and may have crashed before it renamed the
            # indexes.
            _rename_indexes(disk, prefix, SWAP_SUFFIX, "", contextlib.nullcontext)
            disk.sync_dir(directory)
        _remove_indexes(disk, prefix, CLEANED_SUFFIX)


def _undo(disk: Disk, directory: str, prefix: str) -> None:
    # The .log.cleaned goes last: without it the .swap files would count.
    _remove_indexes(disk, prefix, SWAP_SUFFIX)
    disk.sync_dir(directory)
    disk.remove(prefix + LOG_SUFFIX + CLEANED_SUFFIX)


def _finish(disk: Disk, directory: str, base: int, names: set[str]) -> None:
    end_offset = _end_offset(disk, file_prefix(directory, base) + LOG_SUFFIX + SWAP_SUFFIX)
    bases = (base_offset_of(name, LOG_SUFFIX) for name in names)
    replaced = sorted(other for other in bases if other is not None and base < other < end_offset)
    prefixes = [file_prefix(directory, other) for other in replaced]
    retire(disk, directory, prefixes, contextlib.nullcontext)
    publish(disk, directory, file_prefix(directory, base), contextlib.nullcontext)
    log.warning(
        "%s: finished an interrupted cleaning: segment %d, up to offset %d, replaces %d segments",
        directory,
        base,
        end_offset,
        len(replaced) + 1,
    )
    for prefix in prefixes:
        for suffix in SEGMENT_SUFFIXES:
            disk.remove(prefix + suffix + DELETED_SUFFIX)


def _end_offset(disk: Disk, path: str) -> int:
    """The offset after the last batch; 0 for a file without any."""
    file = disk.open(path)
    try:
        position, end_offset, size = 0, 0, file.size()
        while position + HEADER_SIZE <= size:
            header = parse_header(file.pread(HEADER_SIZE, position), 0)
            if header.length < HEADER_SIZE or header.next_offset < end_offset:
                break
            end_offset = header.next_offset
            position += header.length
    finally:
        file.close()
    return end_offset


def _remove_indexes(disk: Disk, prefix: str, state: str) -> None:
    for suffix in _INDEX_SUFFIXES:
        disk.remove(prefix + suffix + state)


def _bases(names: set[str], state: str) -> set[int]:
    found = (
        base_offset_of(name.removesuffix(state), suffix)
        for name in names
        if name.endswith(state)
        for suffix in SEGMENT_SUFFIXES
    )
    return {base for base in found if base is not None}


def _is_there(names: set[str], base: int, suffix: str) -> bool:
    return file_prefix("", base)[1:] + suffix in names

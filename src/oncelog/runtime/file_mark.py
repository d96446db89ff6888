"""Tells whether a file has changed since it was read."""

import os

__all__ = ["FileMark", "mark_of"]

FileMark = tuple[int, int, int]
"""A file's time, size and inode."""


def mark_of(path: str | None) -> FileMark | None:
    """Return what differs once the file has changed; None without one that can be looked at."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

"""Defines a check's finding: the place, the fault, and its severity."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ERROR", "NOTE", "Finding", "error", "note"]

ERROR = "error"
NOTE = "note"


class Finding(NamedTuple):
    """One thing that a check found. `where` is an offset, a byte or an entry, or ""."""

    severity: str
    path: str
    where: str
    text: str


def error(path: str, where: str, text: str) -> Finding:
    """Something is wrong."""
    return Finding(ERROR, path, where, text)


def note(path: str, where: str, text: str) -> Finding:
    """Worth knowing, but no damage."""
    return Finding(NOTE, path, where, text)

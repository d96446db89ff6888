"""What the system counts of this process, as far as `/proc` tells it (Linux)."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ProcessFigures", "count_open_files", "open_files_limit", "read_process"]

_PROC: Final = Path("/proc")
_FIRST_FIELD: Final = 3
"""The number, in proc(5), of the first field of `stat` behind the command's name."""


class ProcessFigures(NamedTuple):
    """All since the process began, or of this moment."""

    cpu_s: float
    """Processor time, of the user and of the system."""
    start_s: float
    """When the process began, since 1970."""
    virtual_bytes: int
    resident_bytes: int


def read_process(proc: Path = _PROC) -> ProcessFigures | None:
    """Read them now; None where the system does not tell them so."""
    try:
        fields = (proc / "self" / "stat").read_text().rpartition(")")[2].split()
        booted_s = _booted_s((proc / "stat").read_text())
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")

    def field(number: int) -> int:
        return int(fields[number - _FIRST_FIELD])

    return ProcessFigures(
        cpu_s=(field(14) + field(15)) / ticks,
        start_s=booted_s + field(22) / ticks,
        virtual_bytes=field(23),
        resident_bytes=field(24) * resource.getpagesize(),
    )


def count_open_files(proc: Path = _PROC) -> int | None:
    """Count open descriptors, each of which is looked at; None as with `read_process`."""
    try:
        return len(os.listdir(proc / "self" / "fd")) - 1  # That of the listing itself.
    except OSError:
        return None


def open_files_limit(proc: Path = _PROC) -> int | None:
    """Return how many descriptors may be open now; None as with `read_process`."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if (proc / "self").exists() else None


def _booted_s(stat: str) -> int:
    (line,) = (line for line in stat.splitlines() if line.startswith("btime "))
    return int(line.split()[1])

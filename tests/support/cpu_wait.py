"""How long processes were ready to run and the machine ran others, as Linux counts it.

A test that judges time on a machine that does other work besides takes this into account.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


class CpuWait:
    """Counts from now on for some processes, those that begin later included."""

    def __init__(self, pids: Iterable[int], proc: Path = PROC) -> None:
        self._proc = proc
        self._begun_s = {pid: self._waited_s(pid) for pid in pids}

    def so_far_s(self, pids: Iterable[int]) -> float:
        """How long each of these has waited since, in seconds, added up; 0 where nothing tells.

        What a thread waited that has ended meanwhile is not known any more.
        """
        return sum(max(0.0, self._waited_s(pid) - self._begun_s.get(pid, 0.0)) for pid in pids)

    def _waited_s(self, pid: int) -> float:
        """Of all its threads the one that waited longest."""
        threads = self._proc.glob(f"{pid}/task/*/schedstat")
        return max(map(_of_thread, threads), default=0.0)


def _of_thread(file: Path) -> float:
    try:
        return int(file.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # It has ended meanwhile.

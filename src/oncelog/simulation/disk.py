"""The disk of a simulated machine, which outlives the processes that use it.

`SimulatedDisk` loses unsynced bytes when power is lost, and fails and damages files when a fault is
armed. `of` returns the view of one process. It must not know logs, records or brokers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oncelog.core.limits import SIMULATION_DISK_BYTES_MAX
from oncelog.simulation import disk_faults
from oncelog.simulation.disk_device import Death, Device, DiskOwner, DiskTrace, Moment
from oncelog.simulation.disk_faults import FaultKind, any_path
from oncelog.simulation.disk_loss import draw_rate, lose_power
from oncelog.simulation.disk_nodes import File, Folder, Tree
from oncelog.simulation.disk_process import ProcessDisk

__all__ = ["FaultKind", "FileState", "Moment", "ProcessDisk", "SimulatedDisk"]

Matches = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file. `is_synced` is about its bytes, not about its name."""

    path: str
    size_bytes: int
    is_synced: bool


class SimulatedDisk:
    """One machine's file system; see the module's docstring."""

    __slots__ = ("_device", "_rng", "_views", "faults")

    def __init__(
        self,
        rng: random.Random,
        trace: DiskTrace | None = None,
        *,
        capacity_bytes: int = SIMULATION_DISK_BYTES_MAX,
    ) -> None:
        self._device = Device(Tree(), trace, capacity_bytes)
        self._rng = rng
        self._views: list[ProcessDisk] = []
        self.faults = self._device.faults
        """The faults that can be armed."""

    # --- processes

    def of(self, process: DiskOwner) -> ProcessDisk:
        """Return the process's view of the disk, the same object each time."""
        for view in self._views:
            if view.process is process:
                return view
        # The number makes the names of temp files of successive processes differ, as a thread's
        # number does on a real system.
        number = self._views[-1].number + 1 if self._views else 0
        view = ProcessDisk(self._device, process, number, self._rng)
        self._views = [*(view for view in self._views if view.process.alive), view]
        return view

    def arm_kill(
        self,
        process: DiskOwner,
        *,
        after_operations: int,
        moment: Moment = "after",
        rng: random.Random | None = None,
        cause: str = "",
        aim: str = "",
    ) -> None:
        """Make the process die at its n-th change from now (1 is the next one).

        With `aim` only changes of paths that match that pattern count.

        `rng` draws how many bytes of a torn write are done; without it half of them are. An
        operation that is no write cannot be torn; the process dies before it. `cause` is passed to
        `Process.kill`; by default it names the operation.
        """
        self.of(process).kill_at = Death(max(after_operations, 1), moment, rng, cause, aim)

    def disarm_kill(self, process: DiskOwner) -> None:
        """Forget `arm_kill`."""
        self.of(process).kill_at = None

    # --- faults

    def lose_power(
        self,
        rng: random.Random,
        *,
        rate: float | None = None,
        spared: Matches | None = None,
    ) -> list[str]:
        """Keep synced bytes and a random part of the rest; return what was lost, sorted.

        Living processes die. `rate` is the share of unsynced bytes that survives, from 0.0 (none)
        to 1.0 (all); without it, it is drawn. Files whose path `spared` accepts lose no bytes.
        """
        for view in self._views:
            if view.process.alive:
                view.process.kill("the machine lost power")
        self._views = self._views[-1:]
        self._device.start_again()
        return lose_power(self._device.tree, rng, draw_rate(rng) if rate is None else rate, spared)

    def snapshot(self) -> Tree:
        """Return a copy of all that there is, for `replace`."""
        return self._device.tree.copy()

    def replace(self, tree: Tree | None) -> None:
        """Have another disk with these files, durable, or with none. No process may use this one.

        The files are copies: they have other inodes than those that they were made from.
        """
        self._device.start_again()
        self._device.tree = Tree() if tree is None else tree
        self._device.tree.forget_changes()
        for _, node in self._device.tree.walk():
            if isinstance(node, File):
                node.sync()
                node.number = 0

    def flip_bit(self, rng: random.Random, matches: Matches = any_path) -> str | None:
        """Flip a synced bit of one file; return where, None if there is no synced bit."""
        return self._damaged(disk_faults.flip_bit(self._device.tree, rng, matches))

    def cut_file(self, rng: random.Random, matches: Matches = any_path) -> str | None:
        """Truncate one file at a random length; return where.

        Call it between a death and the restart.
        """
        return self._damaged(disk_faults.cut_file(self._device.tree, rng, matches))

    def empty_file(self, rng: random.Random, matches: Matches = any_path) -> str | None:
        """Truncate one file to 0 bytes; return its path.

        Call it between a death and the restart.
        """
        return self._damaged(disk_faults.empty_file(self._device.tree, rng, matches))

    def remove_file(self, rng: random.Random, matches: Matches = any_path) -> str | None:
        """Remove one file; return its path. Call it between a death and the restart."""
        return self._damaged(disk_faults.remove_file(self._device.tree, rng, matches))

    def _damaged(self, what: str | None) -> str | None:
        if what is not None and self._device.trace is not None:
            self._device.trace.note("damage", what)
        return what

    # --- looking at it

    def files(self) -> list[FileState]:
        """Return the state of all files, by path."""
        return sorted(
            (
                FileState(path, len(node.data), not node.changes and not node.settled)
                for path, node in self._device.tree.walk()
                if isinstance(node, File)
            ),
            key=lambda state: state.path,
        )

    def peek(self, path: str) -> bytes | None:
        """Return a file's bytes for a test or checker.

        This is no operation of a process, and no fault strikes it.
        """
        node = self._device.tree.find(path)
        return bytes(node.data) if isinstance(node, File) else None

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, for a test or checker."""
        node = self._device.tree.find(folder)
        return sorted(node.names) if isinstance(node, Folder) else []

    def used_bytes(self) -> int:
        """Return the bytes in all files that have a name."""
        return self._device.used_bytes()

    def export(self, folder: Path) -> None:
        """Write all files to a folder of the real machine, for tools."""
        folder.mkdir(parents=True, exist_ok=True)
        for path, node in self._device.tree.walk():
            target = folder / path.lstrip("/")
            if isinstance(node, File):
                target.write_bytes(node.data)
            else:
                target.mkdir(exist_ok=True)

    def fork(self, rng: random.Random) -> SimulatedDisk:
        """Return an unused disk of the same content with the same changes unsynced.

        With it a test tries several losses of power at one moment.
        """
        other = SimulatedDisk(rng)
        other._device = Device(self._device.tree.copy(), None, self._device.capacity_bytes)
        other._device.boots_count = self._device.boots_count
        other.faults = other._device.faults
        return other

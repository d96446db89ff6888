"""Every operation of a process on a simulated disk passes here, where kills and failures strike.

All processes of a machine share one `Device`; each has its own `DeviceAccess` to it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from oncelog.runtime.clock import Clock
from oncelog.simulation.disk_faults import DiskFaults, FaultKind
from oncelog.simulation.disk_nodes import File, Tree, os_error
from oncelog.simulation.scheduler import ProcessDied

__all__ = ["Death", "Device", "DeviceAccess", "DiskOwner", "DiskTrace", "Lock", "Moment"]

Tear = Callable[[int], None]

Moment = Literal["before", "after", "torn"]
"""How much of an operation is done when its process dies: nothing, all, or a part of a write."""


class DiskOwner(Protocol):
    """The part of `oncelog.simulation.process.Process` that a disk uses."""

    @property
    def name(self) -> str:
        """The process's name, for messages."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    @property
    def clock(self) -> Clock:
        """The time that files record when they are written."""
        ...

    def kill(self, cause: str) -> None:
        """End it."""
        ...


class DiskTrace(Protocol):
    """The part of `oncelog.simulation.trace.Trace` that a disk uses."""

    def note(self, *parts: object) -> None:
        """Add an event."""
        ...


class Lock:
    """Implements `DiskLock`; the lock ends with its process."""

    __slots__ = ("_is_released", "_process")

    def __init__(self, process: DiskOwner) -> None:
        self._process = process
        self._is_released = False

    @property
    def is_held(self) -> bool:
        """Whether the lock is held."""
        return self._process.alive and not self._is_released

    def release(self) -> None:
        """Release the lock."""
        self._is_released = True


class Device:
    """The files of a machine, their faults, the free space, and the locks."""

    __slots__ = (
        "_free_bytes",
        "_locks",
        "boots_count",
        "capacity_bytes",
        "faults",
        "trace",
        "tree",
    )

    def __init__(self, tree: Tree, trace: DiskTrace | None, capacity_bytes: int) -> None:
        self.tree = tree
        self.faults = DiskFaults()
        self.trace = trace
        self.capacity_bytes = capacity_bytes
        self.boots_count = 1
        self._free_bytes = 0
        self._locks: dict[File, Lock] = {}

    def take_space(self, size: int, path: str) -> None:
        """Take `size` bytes for a file that grows. Raises `OSError` when the disk is full."""
        if size > self._free_bytes:
            # Used bytes are counted only now and then; this count includes what was removed since.
            self._free_bytes = self.capacity_bytes - self.used_bytes()
            if size > self._free_bytes:
                raise os_error(errno.ENOSPC, path)
        self._free_bytes -= size

    def used_bytes(self) -> int:
        """Bytes in all files that have a name."""
        return sum(len(node.data) for _, node in self.tree.walk() if isinstance(node, File))

    def lock(self, file: File, process: DiskOwner) -> Lock | None:
        """Return the lock of a file, or None if another process holds it."""
        held = self._locks.get(file)
        if held is not None and held.is_held:
            return None
        self._locks[file] = lock = Lock(process)
        return lock

    def start_again(self) -> None:
        """Reset after a loss of power: no lock is held, and the free space is counted again."""
        self.boots_count += 1
        self._locks.clear()
        self._free_bytes = 0


class Death:
    """An armed kill."""

    __slots__ = ("aim", "cause", "is_due", "left", "moment", "rng")

    def __init__(
        self, left: int, moment: Moment, rng: random.Random | None, cause: str, aim: str = ""
    ) -> None:
        self.left = left
        self.moment = moment
        self.rng = rng
        self.cause = cause
        self.aim = aim
        """Only changes of paths that match this pattern count; "" matches any path."""
        self.is_due = False


class DeviceAccess:
    """One process's access to a device: counts operations, kills the process, applies faults."""

    __slots__ = ("changes_count", "device", "died", "kill_at", "operations_count", "process")

    def __init__(self, device: Device, process: DiskOwner) -> None:
        self.device = device
        self.process = process
        self.operations_count = 0
        """The count of its operations on files and names."""
        self.changes_count = 0
        """The count of those that change something, which an armed kill counts."""
        self.kill_at: Death | None = None
        self.died: Moment | None = None
        """How much of the operation was done when it was killed; set before `Process.kill` is
        called.
        """

    def enter(self) -> None:
        """Count an operation. Raises `ProcessDied` in a dead process."""
        self.operations_count += 1
        if not self.process.alive:
            raise ProcessDied(f"{self.process.name} is dead")

    def before(
        self,
        kind: FaultKind,
        operation: str,
        path: str,
        size: int = 0,
        growth: int = 0,
        tear: Tear | None = None,
    ) -> None:
        """Count a change; die before it, or fail, if a kill or a fault is armed.

        Raises `OSError`.
        """
        self.changes_count += 1
        device = self.device
        if self.kill_at is not None:
            self._near_death(self.kill_at, kind, operation, path, size, tear)
        if device.faults.armed:
            device.faults.strike(kind, path, size, growth, tear)
        if growth > 0:
            device.take_space(growth, path)
        if device.trace is not None:
            device.trace.note(operation, path, size)

    def after(self, operation: str, path: str) -> None:
        """Die after a change, if a kill is armed."""
        if self.kill_at is not None and self.kill_at.is_due:
            self._die(self.kill_at, "after", f"just after {operation} {path}")

    def _near_death(
        self,
        death: Death,
        kind: FaultKind,
        operation: str,
        path: str,
        size: int,
        tear: Tear | None,
    ) -> None:
        if death.is_due:  # The change has failed, so the process does not die after it.
            self._die(death, "before", f"just before {operation} {path}")
        if death.aim and not fnmatchcase(path, death.aim):
            return
        death.left -= 1
        if death.left:
            return
        if death.moment == "after":
            death.is_due = True
            return
        if death.moment == "torn" and kind is FaultKind.WRITE and tear is not None and size > 1:
            tear(size // 2 if death.rng is None else death.rng.randrange(1, size))
            self._die(death, "torn", f"in the middle of {operation} {path}")
        self._die(death, "before", f"just before {operation} {path}")

    def _die(self, death: Death, moment: Moment, where: str) -> None:
        self.kill_at = None
        self.died = moment
        self.process.kill(death.cause or f"killed {where}")
        raise ProcessDied(f"{self.process.name} died {where}")

    def note(self, operation: str, path: str, size: int) -> None:
        """Add the operation to the trace."""
        if self.device.trace is not None:
            self.device.trace.note(operation, path, size)

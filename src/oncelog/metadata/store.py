"""`MetadataStore`: a small tree of versioned values, with a feed of their changes (D9).

Paths look like ``/topics/<id>``; a value is bytes; every value has a version that grows with each
write to it, every write has a revision that grows with each write to the store. All writers of one
cluster share one store.

A writer that acts as the controller passes its `controller_epoch`; the store refuses it once a
newer controller has claimed the role. It checks in the same atomic step as the write, so a replaced
controller that does not know it changes nothing.

The interface knows no topics and no brokers; `oncelog.controller.layout` defines the paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oncelog.core.errors import OncelogError

__all__ = [
    "CONTROLLER_EPOCH_PATH",
    "Change",
    "Changes",
    "Conflict",
    "ControllerFenced",
    "MetadataStore",
    "StoreFailure",
    "Stored",
    "Write",
]

CONTROLLER_EPOCH_PATH = "/controller/epoch"
"""Holds the newest controller's epoch as decimal text."""


class Conflict(OncelogError):  # noqa: N818 - names what happened
    """The value is not at the version the writer saw, or exists where it should not, or is gone."""


class ControllerFenced(OncelogError):  # noqa: N818 - names what happened
    """A newer controller has claimed the role since."""


class StoreFailure(OncelogError):  # noqa: N818 - names what happened
    """The store cannot be reached or cannot be read."""


class Stored(NamedTuple):
    """A value and its version (1 at creation)."""

    value: bytes
    version: int


class Write(NamedTuple):
    """One of several writes that take effect together; `value` None deletes.

    `version` is the version that the path must have; 0: the path must not exist.
    """

    path: str
    value: bytes | None
    version: int


class Change(NamedTuple):
    """The newest state of one path; `value` None means that it was deleted."""

    path: str
    value: bytes | None


class Changes(NamedTuple):
    """The changes since a revision. Several writes to one path appear as its newest state."""

    revision: int
    entries: tuple[Change, ...]


class MetadataStore(Protocol):
    """The interface of a store. Every method may raise `StoreFailure`.

    A cancelled call may or may not have taken effect.
    """

    async def get(self, path: str) -> Stored | None:
        """Return the value at `path`, None when there is none."""
        ...

    async def create(self, path: str, value: bytes, *, controller_epoch: int | None = None) -> int:
        """Write a new path; returns its version. Raises `Conflict`, `ControllerFenced`."""
        ...

    async def compare_and_set(
        self, path: str, value: bytes, version: int, *, controller_epoch: int | None = None
    ) -> int:
        """Replace the value if it is at `version`; returns the new version. Raises as `create`."""
        ...

    async def delete(
        self, path: str, version: int | None = None, *, controller_epoch: int | None = None
    ) -> None:
        """Remove the value, at `version` if given. Raises as `create`."""
        ...

    async def write_all(
        self, writes: Sequence[Write], *, controller_epoch: int | None = None
    ) -> None:
        """Do all writes in one atomic step, or none. Raises as `create`."""
        ...

    async def list(self, prefix: str) -> dict[str, Stored]:
        """Everything whose path starts with `prefix`, sorted by path."""
        ...

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """Return the changes after `after_revision` (0: all), in the order of writing.

        Waits up to `wait_ms` for a change; without one the result is empty. One caller at a time.
        """
        ...

    async def close(self) -> None:
        """Release the store. Later calls fail."""
        ...

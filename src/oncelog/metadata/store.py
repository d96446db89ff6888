"""`MetadataStore`: a small tree of versioned values, with a feed of their changes (D9).

Paths look like ``/brokers/<id>``; a value is bytes; every value has a version that grows with each
write to it, every write has a revision that grows with each write to the store. All writers of one
cluster share one store.

The interface knows no topics and no brokers; `oncelog.controller.layout` defines the paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oncelog.core.errors import OncelogError

__all__ = [
    "Change",
    "Changes",
    "Check",
    "Conflict",
    "Fenced",
    "MetadataStore",
    "StoreFailure",
    "Stored",
    "Write",
]


class Conflict(OncelogError):  # noqa: N818 - names what happened
    """A value is not at the version the writer saw, or exists where it should not, or is gone."""


class Fenced(OncelogError):  # noqa: N818 - names what happened
    """The writer's `fence` has moved: another has taken its office since."""


class StoreFailure(OncelogError):  # noqa: N818 - names what happened
    """The store cannot be reached or cannot be read."""


class Stored(NamedTuple):
    """A value and its version (1 at creation)."""

    value: bytes
    version: int


class Check(NamedTuple):
    """The version that a path must have for writes to take effect; 0: the path must not exist."""

    path: str
    version: int


class Write(NamedTuple):
    """One of several writes that take effect together; `value` None deletes.

    `version` is the version that the path must have; 0: the path must not exist.
    """

    path: str
    value: bytes | None
    version: int


class Change(NamedTuple):
    """The newest state of one path; `value` None (and version 0) means that it was deleted."""

    path: str
    value: bytes | None
    version: int


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

    async def list(self, prefix: str) -> dict[str, Stored]:
        """Everything whose path starts with `prefix`, sorted by path."""
        ...

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """Do all writes in one atomic step, or none. No path may appear twice.

        Raises `Conflict` when a path of `writes` or `checks` is at another version, and `Fenced`
        when that of `fence` is: a replaced controller that does not know it changes nothing.
        """
        ...

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """Return the changes after `after_revision` (0: all), in the order of writing.

        What one step wrote is sorted by path. Waits up to `wait_ms` for a change; without one the
        result is empty.
        """
        ...

    async def close(self) -> None:
        """Release the store. Later calls fail."""
        ...

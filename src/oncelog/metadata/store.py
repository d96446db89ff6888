"""`MetadataStore`: a small tree of versioned values, with a feed of their changes (D9).

Paths look like ``/brokers/<id>``; a value is bytes; every value has a version that grows with each
write to it, every write has a revision that grows with each write to the store. All writers of one
cluster share one store.

A session is what the store knows of a writer's life. A value may be bound to one: the store deletes
it when that session ends, and the feed tells of it as of any other deletion. A session ends when
its owner closes it or is dead or out of the store's reach for longer than its timeout; it never
comes back.

The interface knows no topics and no brokers; `oncelog.controller.layout` defines the paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NewType, Protocol

from oncelog.core.errors import OncelogError

__all__ = [
    "Change",
    "Changes",
    "Check",
    "Conflict",
    "Fenced",
    "MetadataStore",
    "Session",
    "SessionExpired",
    "SessionId",
    "StoreFailure",
    "Stored",
    "Write",
    "WriteLimit",
    "WriteTooLarge",
]


SessionId = NewType("SessionId", str)
"""Names a session, and no later one."""


class Conflict(OncelogError):  # noqa: N818 - names what happened
    """A value is not at the version the writer saw, or exists where it should not, or is gone."""


class Fenced(OncelogError):  # noqa: N818 - names what happened
    """The writer's `fence` has moved: another has taken its office since."""


class SessionExpired(OncelogError):  # noqa: N818 - names what happened
    """The session that a written value was to be bound to has ended."""


class WriteTooLarge(OncelogError):  # noqa: N818 - names what happened
    """The writes of one call exceed `MetadataStore.write_limit`."""


class StoreFailure(OncelogError):  # noqa: N818 - names what happened
    """The store cannot be reached or cannot be read."""


class Stored(NamedTuple):
    """A value and its version: 1 at creation (more where other paths begin with this one and "/").

    It is higher after each write.
    """

    value: bytes
    version: int


class Check(NamedTuple):
    """The version that a path must have for writes to take effect; 0: the path must not exist."""

    path: str
    version: int


class Write(NamedTuple):
    """One of several writes that take effect together; `value` None deletes, and is never empty.

    `version` is the version that the path must have; 0: the path must not exist. The value is bound
    to `session` from then on, also where it was bound to another; None: what it is bound to, if it
    is, stays.
    """

    path: str
    value: bytes | None
    version: int
    session: SessionId | None = None


class Change(NamedTuple):
    """The newest state of one path; `value` None (and version 0) means that it was deleted."""

    path: str
    value: bytes | None
    version: int


class WriteLimit(NamedTuple):
    """What one `MetadataStore.write_all` may contain at most."""

    writes_count: int
    bytes_count: int
    """Of paths and values."""

    def fits(self, writes: Sequence[Write]) -> bool:
        """Whether one call may contain these writes; a few checks beside them fit too."""
        size = sum(len(write.path) + len(write.value or b"") for write in writes)
        return len(writes) <= self.writes_count and size <= self.bytes_count


class Changes(NamedTuple):
    """The changes since a revision. Several writes to one path appear as its newest state."""

    revision: int
    entries: tuple[Change, ...]
    is_whole: bool = False
    """Whether the entries are all values that there are: what a path had that is not named is gone.

    For a reader that is so far behind that the store does not know any more what was deleted since.
    """


class Session(Protocol):
    """The interface of a session."""

    @property
    def session_id(self) -> SessionId:
        """Its name, for `Write`."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as this process knows. False stays false."""
        ...

    async def wait_ended(self) -> None:
        """Return once this process knows that it has ended: not while the store is only away."""
        ...

    async def close(self) -> None:
        """End it now, if it has not ended: its values are deleted.

        Never raises `StoreFailure`: without the store it ends by its timeout.
        """
        ...


class MetadataStore(Protocol):
    """The interface of a store. Every method may raise `StoreFailure`.

    A cancelled call may or may not have taken effect.
    """

    @property
    def write_limit(self) -> WriteLimit | None:
        """What one `write_all` may contain; None: anything."""
        ...

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
        when that of `fence` is: a replaced controller that does not know it changes nothing. Raises
        `SessionExpired` when a session of `writes` has ended; they are sessions that this object
        opened.
        """
        ...

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """Return the changes after `after_revision` (0: all), in the order of writing.

        What one step wrote is sorted by path. Waits up to `wait_ms` for a change; without one the
        result is empty. See `Changes.is_whole`.
        """
        ...

    async def open_session(self, timeout_ms: int) -> Session:
        """Begin a session. It ends when this process does not reach the store for `timeout_ms`."""
        ...

    async def close(self) -> None:
        """Release the store. Later calls fail. Its sessions end as by the death of this process."""
        ...

"""What is used of kazoo, with the types that kazoo does not have."""

# Its documentation says what its methods do.
# ruff: noqa: D102

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_RECONNECT_DELAY_MS_MAX,
    ZOOKEEPER_RECONNECT_DELAY_MS_MIN,
)

__all__ = [
    "ANY_FAILURE",
    "CONNECTED",
    "CONSEQUENCES",
    "LOST",
    "LOST_CONNECTION",
    "NOT_CLOSED",
    "NOT_THERE_OR_THERE",
    "OUTRUN",
    "SESSION_ENDED",
    "Client",
    "KazooPromise",
    "Multi",
    "Stat",
    "new_client",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Errors = tuple[type[Exception], ...]

ANY_FAILURE: Final[Errors] = (KazooException,)
NOT_CLOSED: Final[Errors] = (KazooException, OSError)
LOST_CONNECTION: Final[Errors] = (ConnectionLoss, ConnectionClosedError)
SESSION_ENDED: Final[Errors] = (SessionExpiredError,)
NOT_THERE_OR_THERE: Final[Errors] = (NoNodeError, NodeExistsError)
OUTRUN: Final[Errors] = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)
"""Another writer was faster."""
CONSEQUENCES: Final[Errors] = (RolledBackError, RuntimeInconsistency)
"""What ZooKeeper says of the operations of a transaction before and after the one that failed."""

CONNECTED: Final = cast(str, KazooState.CONNECTED)
LOST: Final = cast(str, KazooState.LOST)
"""The session has ended."""

# The store says once that ZooKeeper is away; kazoo would say it with each try.
_QUIET: Final = logging.getLogger(f"{__name__}.kazoo")
_QUIET.setLevel(logging.CRITICAL)


class KazooPromise(Protocol[T_co]):
    """The promise of an answer."""

    @property
    def exception(self) -> BaseException | None:
        """Why there is no answer."""
        ...

    @property
    def value(self) -> T_co:
        """The answer, where there is no exception."""
        ...

    def rawlink(self, callback: Callable[[KazooPromise[T_co]], None]) -> None:
        """Call `callback` in a thread of kazoo's once it is kept or broken."""
        ...


class Stat(Protocol):
    """What ZooKeeper says of a node beside its data."""

    @property
    def version(self) -> int: ...

    @property
    def czxid(self) -> int: ...

    @property
    def mzxid(self) -> int: ...

    @property
    def pzxid(self) -> int: ...

    @property
    def ephemeralOwner(self) -> int: ...  # noqa: N802 - ZooKeeper's name

    @property
    def numChildren(self) -> int: ...  # noqa: N802


class Multi(Protocol):
    """Operations that take effect together."""

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None: ...

    def set_data(self, path: str, value: bytes, version: int) -> None: ...

    def delete(self, path: str, version: int) -> None: ...

    def check(self, path: str, version: int) -> None: ...

    def commit_async(self) -> KazooPromise[list[object]]:
        """Give one result for each operation, or an exception in its place."""
        ...


class Client(Protocol):
    """`KazooClient`, as far as it is used."""

    @property
    def connected(self) -> bool: ...

    @property
    def client_id(self) -> tuple[int, bytes]: ...

    def add_listener(self, listener: Callable[[str], None]) -> None: ...

    def start_async(self) -> object: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def get_async(
        self, path: str, watch: Callable[[object], None] | None
    ) -> KazooPromise[tuple[bytes, Stat]]: ...

    def get_children_async(
        self, path: str, *, include_data: bool
    ) -> KazooPromise[tuple[list[str], Stat]]: ...

    def create_async(self, path: str, value: bytes) -> KazooPromise[str]: ...

    def sync_async(self, path: str) -> KazooPromise[str]: ...

    def transaction(self) -> Multi: ...


def new_client(hosts: str, timeout_ms: int) -> Client:
    """Return a client that is not started. It connects again for as long as it lives."""
    handler = SequentialThreadingHandler()
    again = KazooRetry(
        max_tries=-1,
        delay=ZOOKEEPER_RECONNECT_DELAY_MS_MIN / 1000,
        max_delay=ZOOKEEPER_RECONNECT_DELAY_MS_MAX / 1000,
        sleep_func=handler.sleep_func,
    )
    client = KazooClient(
        hosts, timeout_ms / 1000, handler=handler, connection_retry=again, logger=_QUIET
    )
    return cast(Client, client)

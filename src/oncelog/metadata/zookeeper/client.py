"""What is used of kazoo, with the types that kazoo does not have."""

# Its documentation says what its methods do.
# ruff: noqa: D102

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
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
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from oncelog.core.errors import OncelogError
from oncelog.core.secret import Secret
from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_ADDRESSES_COUNT_MIN,
    ZOOKEEPER_RECONNECT_DELAY_MS_MAX,
    ZOOKEEPER_RECONNECT_DELAY_MS_MIN,
)
from oncelog.metadata.zookeeper.access import Access, tls_context

__all__ = [
    "ANY_FAILURE",
    "CONNECTED",
    "CONSEQUENCES",
    "LOST",
    "LOST_CONNECTION",
    "NOT_ALLOWED",
    "NOT_CLOSED",
    "NOT_THERE_OR_THERE",
    "OPEN",
    "OUTRUN",
    "SESSION_ENDED",
    "Acl",
    "Client",
    "Handler",
    "KazooPromise",
    "Multi",
    "Stat",
    "acl_for",
    "is_open",
    "new_client",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Errors = tuple[type[Exception], ...]

ANY_FAILURE: Final[Errors] = (KazooException,)
NOT_ALLOWED: Final[Errors] = (NoAuthError,)
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

_WORLD: Final = "world"

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


class AclIdentity(Protocol):
    """Whom an entry of an ACL is about; ``world`` is everyone."""

    @property
    def scheme(self) -> str: ...


class AclEntry(Protocol):
    """What someone may do to a node."""

    @property
    def perms(self) -> int: ...

    @property
    def id(self) -> AclIdentity: ...


Acl = Sequence[AclEntry]
OPEN: Final[Acl] = OPEN_ACL_UNSAFE


def acl_for(digest: Secret, *, is_secret: bool) -> Acl:
    """Return the ACL of a node that brokers alone change; all may read one that has no secrets.

    It names the digest: the scheme ``auth`` would add the certificate of the broker that made it.
    """
    user, _, password = digest.value.partition(":")
    brokers = make_digest_acl(user, password, all=True)
    return [brokers, *([] if is_secret else READ_ACL_UNSAFE)]


def is_open(acl: Acl, *, is_secret: bool) -> bool:
    """Whether everyone may do more to a node than `acl_for` has it."""
    may = 0 if is_secret else READ_ACL_UNSAFE[0].perms
    return any(entry.id.scheme == _WORLD and entry.perms & ~may for entry in acl)


class Multi(Protocol):
    """Operations that take effect together."""

    def create(self, path: str, value: bytes, acl: Acl, *, ephemeral: bool) -> None: ...

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

    def create_async(self, path: str, value: bytes, acl: Acl) -> KazooPromise[str]: ...

    def get_acls_async(self, path: str) -> KazooPromise[tuple[Acl, Stat]]: ...

    def set_acls_async(self, path: str, acls: Acl) -> KazooPromise[Stat]: ...

    def sync_async(self, path: str) -> KazooPromise[str]: ...

    def transaction(self) -> Multi: ...


class _TlsSocket(ssl.SSLSocket):
    """A TLS connection that keeps why the server ended it."""

    refusal = ""

    def recv(self, count: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(count, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            # With TLS 1.3 a server looks at our certificate after our end of the handshake.
            self.refusal = _said_of(error)
            raise


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with TLS connections of our own: it would trust the system's authorities."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self.attempts_count = 1
        """How many addresses have to be tried within a session."""
        self._tls = access.tls
        self._secured: _TlsSocket | None = None
        self._refusal = ""

    @property
    def refusal(self) -> str:
        """Why TLS was impossible when a server was reached last; empty: it was not."""
        return self._refusal or (self._secured.refusal if self._secured else "")

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **settings: Any
    ) -> socket.socket:
        timeout /= self.attempts_count
        if self._tls is None:
            settings |= {"hostname": hostname, "timeout": timeout}
            return cast(socket.socket, super().create_connection(address, **settings))
        plain = socket.create_connection(address, timeout)
        try:
            context = tls_context(self._tls)
            context.sslsocket_class = _TlsSocket
            secured = context.wrap_socket(plain, server_hostname=hostname)
        except (OncelogError, ssl.SSLError, ConnectionResetError) as error:
            self._refusal = _said_of(error)
            plain.close()
            raise OSError(self._refusal) from error
        self._refusal = ""
        self._secured = cast(_TlsSocket, secured)
        return secured

    def select(self, read: Sequence[Any], *others: Any) -> Any:
        """As the system's `select`; a TLS connection may hold what it has read already."""
        held = [one for one in read if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (held, [], []) if held else super().select(read, *others)


def _said_of(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not accepted ({error.verify_message}): name its authority in "
                "zookeeper.ssl.truststore.location, and the host of the certificate in "
                "zookeeper.connect"
            )
        case (
            ssl.SSLEOFError() | ConnectionResetError() | ssl.SSLError(reason="WRONG_VERSION_NUMBER")
        ):
            return "it ends the handshake: zookeeper.connect has to name a port with TLS"
        case ssl.SSLError():
            return (
                f"TLS fails ({str(error.reason or error).lower().replace('_', ' ')}): does it know "
                "the authority of the certificate in zookeeper.ssl.keystore.location?"
            )
        case _:
            return str(error)


def new_client(hosts: str, timeout_ms: int, handler: Handler, access: Access) -> Client:
    """Return a client that is not started. It connects again for as long as it lives."""
    again = KazooRetry(
        max_tries=-1,
        delay=ZOOKEEPER_RECONNECT_DELAY_MS_MIN / 1000,
        max_delay=ZOOKEEPER_RECONNECT_DELAY_MS_MAX / 1000,
        sleep_func=handler.sleep_func,
    )
    # Of a session kazoo gives each address its part to answer, and the whole of it to accept a
    # connection: one that is silent must not cost the session.
    addresses = hosts.split(",")
    addresses *= -(-ZOOKEEPER_ADDRESSES_COUNT_MIN // len(addresses))
    handler.attempts_count = len(addresses)
    client = KazooClient(
        ",".join(addresses),
        timeout_ms / 1000,
        handler=handler,
        connection_retry=again,
        logger=_QUIET,
        auth_data=[] if access.digest is None else [("digest", access.digest.value)],
    )
    return cast(Client, client)

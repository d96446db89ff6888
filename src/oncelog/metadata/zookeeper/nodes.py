"""ZooKeeper's nodes as values of the store, and the store's paths as ZooKeeper's. Pure.

A node without data holds no value: it is there for the nodes below it. A value's version is that
of its node and one more, because ZooKeeper counts from 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from oncelog.core.errors import OncelogError
from oncelog.metadata.store import Stored

__all__ = [
    "OURS",
    "Servers",
    "Znode",
    "ancestors_of",
    "from_node_path",
    "has_secrets",
    "parent_of",
    "parse_servers",
    "session_name",
    "stored_in",
    "to_node_path",
]


OURS: Final = "/oncelog"
"""The node above all values that Kafka's ZooKeeper does not have."""


class Znode(NamedTuple):
    """What ZooKeeper says of one node."""

    data: bytes
    version: int
    """Of its data; 0 at its creation."""
    zxid: int
    """The transaction that wrote its data."""
    children_zxid: int
    """The transaction that last created or deleted a node directly below it."""
    owner: str
    """The session that it is bound to; empty: none."""
    children_count: int
    created_zxid: int = 0
    """The transaction that made it."""


def stored_in(node: Znode | None) -> Stored | None:
    """Return the value that a node holds."""
    if node is None or not node.data:
        return None
    return Stored(node.data, node.version + 1)


def session_name(number: int) -> str:
    """Return how a session is named by its number, as ZooKeeper's own tools write it."""
    return f"0x{number & 0xFFFF_FFFF_FFFF_FFFF:x}" if number else ""


def parent_of(path: str) -> str:
    """Return the path above; that of the root is the root, which is empty."""
    return path.rpartition("/")[0]


def ancestors_of(path: str) -> list[str]:
    """Return the paths above, the highest first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: index + 1]) for index in range(len(parts))]


def has_secrets(path: str) -> bool:
    """Whether brokers alone may read a node, where nodes have ACLs.

    All that Kafka does not have is among them: users' credentials, and the ring, which names users.
    """
    return path == OURS or path.startswith(f"{OURS}/")


# ZooKeeper refuses these as names of nodes. What the store's paths hold besides is percent-encoded
# where it comes from users, so that no other name begins with a percent sign and a dot, or is one.
_NAMES = {"": "%", ".": "%.", "..": "%.."}
_NAMES_BACK = {name: part for part, name in _NAMES.items()}


def to_node_path(path: str) -> str:
    """Return the path of the node that holds the value at `path`, below the chroot."""
    return "/" + "/".join(_NAMES.get(part, part) for part in path.split("/")[1:])


def from_node_path(path: str) -> str:
    """Return the path of the value that a node holds."""
    return "/" + "/".join(_NAMES_BACK.get(part, part) for part in path.split("/")[1:])


class Servers(NamedTuple):
    """Where ZooKeeper is, and below which node the store is in it."""

    hosts: str
    """``host:port`` of each server, separated by commas."""
    chroot: str
    """Empty, or a path without a slash at its end."""


def parse_servers(text: str) -> Servers:
    """Take ``host:port,host:port/chroot`` apart. Raises `OncelogError` for anything else."""
    hosts, slash, chroot = text.strip().partition("/")
    names = [name.strip() for name in hosts.split(",")]
    for name in names:
        try:
            parts = urlsplit(f"//{name}")
            is_good = bool(parts.hostname) and parts.port != 0 and parts.username is None
        except ValueError:
            is_good = False
        if not is_good:
            raise OncelogError(
                f"{text!r} is not HOST:PORT,HOST:PORT/CHROOT: {name!r} is no address"
            )
    below = (slash + chroot).rstrip("/")
    if any(part in ("", ".", "..") for part in below.split("/")[1:]) or "\0" in below:
        raise OncelogError(f"{text!r} is not HOST:PORT,HOST:PORT/CHROOT: {below!r} is no chroot")
    return Servers(",".join(names), below)

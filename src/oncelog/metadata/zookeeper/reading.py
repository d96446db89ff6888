"""Reads what changed in ZooKeeper, all of it as it was at one moment.

ZooKeeper has no reads of several nodes at once. A moment is one in which neither the ring nor
anything directly above a bound value changed between the first and the last answer of one batch:
every step of writes sets the ring, and the end of a session changes the nodes above what it had.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from oncelog.core.zookeeper_limits import ZOOKEEPER_READ_ROUNDS_MAX
from oncelog.metadata.store import StoreFailure
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.mirror import Mirror, ZooKeeperReading
from oncelog.metadata.zookeeper.nodes import Znode, from_node_path, parent_of
from oncelog.metadata.zookeeper.ring import (
    RING_PATH,
    RingStep,
    decode_ring,
    named_since,
    newest_named,
)

__all__ = ["close_to_others", "read_changes", "ring_in"]

_ZOOKEEPERS_OWN = "/zookeeper"
"""In ZooKeeper's root, where there is no chroot."""


async def read_changes(
    connection: ZooKeeperConnection, mirror: Mirror, roots: Container[str] | None = None
) -> ZooKeeperReading:
    """Return what the mirror does not know; later changes wake.

    With `roots` other nodes directly below the chroot are others', and are not read.

    Raises `StoreFailure`, also when ZooKeeper has less than the mirror: it was restored from a
    copy, or has lost what it had.
    """
    collected = _Collected(mirror)
    for _ in range(ZOOKEEPER_READ_ROUNDS_MAX):
        batch = await _read_batch(connection, collected)
        if batch.ring_zxid < mirror.ring_zxid:
            raise StoreFailure(
                f"ZooKeeper has an older state (0x{batch.ring_zxid:x}) than this broker has seen "
                f"(0x{mirror.ring_zxid:x}): it was restored from a copy, or has lost its data"
            )
        if not collected.is_followed(batch):
            # Everything, and then what changed meanwhile.
            collected.take_all(await _walk(connection, roots), batch)
        elif collected.take(batch):
            return collected.reading(batch)
    raise StoreFailure("ZooKeeper's nodes change faster than they can be read")


def ring_in(node: Znode | None) -> list[RingStep]:
    """Return the steps in the ring's node. Raises `StoreFailure`."""
    if node is None:
        raise StoreFailure(f"ZooKeeper has lost its data: {RING_PATH} is gone")
    try:
        return decode_ring(node.data, node.zxid)
    except (ValueError, TypeError) as error:
        raise StoreFailure(f"ZooKeeper's {RING_PATH} is damaged ({error})") from error


class _Batch(NamedTuple):
    """The answers to one batch of requests, in their order."""

    steps: list[RingStep]
    nodes: dict[str, Znode | None]
    above: dict[str, int]
    read_from_zxid: int
    is_of_one_moment: bool
    ring_created_zxid: int

    @property
    def ring_zxid(self) -> int:
        return self.steps[-1].zxid


async def _read_batch(connection: ZooKeeperConnection, collected: _Collected) -> _Batch:
    paths = collected.wanted
    above = sorted({parent_of(path) for path in collected.bound})
    asked = [RING_PATH, *above, *paths, *above, RING_PATH]
    answers = await connection.get_all(asked, {RING_PATH, *collected.bound})
    edge = 1 + len(above)
    first = [0 if one is None else one.children_zxid for one in answers[1:edge]]
    last = [0 if one is None else one.children_zxid for one in answers[-edge:-1]]
    ring_node = answers[-1]
    ring, steps = ring_in(answers[0]), ring_in(ring_node)
    return _Batch(
        steps,
        dict(zip(paths, answers[edge:-edge], strict=True)),
        dict(zip(above, last, strict=True)),
        ring[-1].zxid,
        first == last and ring[-1].zxid == steps[-1].zxid,
        ring_node.created_zxid if ring_node else 0,
    )


class _Collected:
    """What the batches so far have read, and what has to be read (again)."""

    def __init__(self, mirror: Mirror) -> None:
        self.bound = set(mirror.bound)
        self.wanted = sorted(self.bound)
        self._mirror = mirror
        self._is_whole = False
        self._from_zxid = mirror.ring_zxid
        """What no later step names is as it was read."""
        self._nodes: dict[str, Znode | None] = {}
        self._read_zxids: dict[str, int] = {}
        """The step that was the newest when a path was read, or an earlier one."""

    def is_followed(self, batch: _Batch) -> bool:
        """Whether the ring still has all steps since."""
        is_begun = self._from_zxid > 0
        return is_begun and named_since(batch.steps, self._from_zxid) is not None

    def take_all(self, nodes: dict[str, Znode | None], batch: _Batch) -> None:
        """Begin with all nodes, as read after a batch."""
        self._is_whole = True
        self._from_zxid = batch.ring_zxid
        self._nodes = nodes
        self._read_zxids = {}
        # One that was gone already may have been bound, and its session have ended.
        self.bound = {path for path, node in nodes.items() if node is None or node.owner}
        self.wanted = sorted(self.bound)

    def take(self, batch: _Batch) -> bool:
        """Take a batch; True when nothing is left to be read."""
        self._nodes.update(batch.nodes)
        self._read_zxids.update(dict.fromkeys(batch.nodes, batch.read_from_zxid))
        named = named_since(batch.steps, self._from_zxid) or {}
        left = {path for path, one in named.items() if one.zxid > self._read_zxids.get(path, -1)}
        self.bound.update(path for path, one in named.items() if one.is_bound)
        self.wanted = sorted(self.bound | left)
        return batch.is_of_one_moment and not left

    def reading(self, batch: _Batch) -> ZooKeeperReading:
        """Return all that was read, which is as it was in the last batch."""
        named = named_since(batch.steps, self._mirror.ring_zxid)
        if named is None:  # Those that the ring names may not be all, but they are so.
            named = newest_named(batch.steps)
        return ZooKeeperReading(
            batch.ring_zxid,
            named,
            self._nodes,
            batch.above,
            self._is_whole,
            batch.ring_created_zxid,
        )


async def close_to_others(
    connection: ZooKeeperConnection, roots: Container[str] | None = None
) -> int:
    """Have brokers alone change all nodes; returns how many others could change or read before.

    A node comes before those below it, so that no other makes one meanwhile.
    """
    count = 0
    level = [""]
    while level:
        count += await connection.close_to_others(level)
        listed = await connection.children_of(level)
        below = zip(level, listed, strict=True)
        level = [one for path, (names, _) in below for one in _below(path, names, roots)]
    return count


async def _walk(
    connection: ZooKeeperConnection, roots: Container[str] | None
) -> dict[str, Znode | None]:
    """Read all nodes, level by level; None: one that was gone when it was to be read."""
    found: dict[str, Znode | None] = {}
    level = [""]
    while level:
        found.update(zip(level, await connection.get_all(level), strict=True))
        inner = {path: node for path in level if (node := found[path]) and node.children_count}
        level = []
        listed = await connection.children_of([*inner])
        for (path, node), (names, children_zxid) in zip(inner.items(), listed, strict=True):
            found[path] = node._replace(children_zxid=children_zxid)
            level += [one for one in _below(path, names, roots) if one != RING_PATH]
    if root := found[""]:
        found[""] = root._replace(data=b"")
    return found


def _below(path: str, names: Sequence[str], roots: Container[str] | None) -> list[str]:
    """Return the paths of a node's children, without those that are others'."""
    if path == "" and roots is not None:
        names = [name for name in names if name in roots]
    below = [path + from_node_path(f"/{name}") for name in names]
    return [one for one in below if one != _ZOOKEEPERS_OWN]

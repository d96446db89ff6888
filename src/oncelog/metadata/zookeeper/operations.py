"""Turns a step of writes into the operations of one ZooKeeper transaction. Pure.

All operations depend on what was read before, so that the transaction fails, and changes nothing,
where another writer was faster. ZooKeeper's nodes differ from the store's values in three ways:

- A node may hold others, and is made before them. One that holds no value has no data; it is
  removed with the last node below it, unless it is one of the two highest levels: monitors list
  those.
- A session cannot be changed at a node, so that one which is bound to another is deleted and
  created. Its version goes on: what an earlier writer saw must not fit again.
- That a path does not exist cannot be checked, so it is created and deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncelog.core.errors import require
from oncelog.core.zookeeper_limits import ZOOKEEPER_REBINDINGS_COUNT_MAX
from oncelog.metadata.store import Check, StoreFailure, Write
from oncelog.metadata.zookeeper.nodes import Znode, ancestors_of, parent_of

__all__ = ["CheckVersion", "Create", "Delete", "Operation", "SetData", "operations_for"]

_LEVELS_KEPT = 2


class Create(NamedTuple):
    """Make a node; `is_bound`: it goes with the session that makes it."""

    path: str
    data: bytes
    is_bound: bool = False


class SetData(NamedTuple):
    """Give a node at `version` other data."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Remove a node at `version` that holds no others."""

    path: str
    version: int


class CheckVersion(NamedTuple):
    """Fail where a node is not at `version`."""

    path: str
    version: int


Operation = Create | SetData | Delete | CheckVersion


def operations_for(
    writes: Sequence[Write], checks: Sequence[Check], nodes: Mapping[str, Znode | None]
) -> list[Operation]:
    """Return the operations of a step whose checks hold by what was read.

    `nodes` has what is at every path that is named, and above those that are created, deleted or
    checked not to exist.
    """
    written = {write.path for write in writes}
    tree = _Tree(nodes, written)
    for check in checks:
        if check.path not in written:
            tree.check(check.path)
    for write in sorted(writes):
        if write.value is not None:
            tree.put(write.path, write.value, write.session)
    for write in sorted(writes, reverse=True):
        if write.value is None:
            tree.delete(write.path)
    return tree.operations


class _Tree:
    """The nodes as they are after the operations so far."""

    def __init__(self, nodes: Mapping[str, Znode | None], written: set[str]) -> None:
        self.operations: list[Operation] = []
        self._nodes = dict(nodes)
        self._written = written

    def check(self, path: str) -> None:
        """Check that a path is as it was read."""
        node = self._nodes[path]
        if node is not None:
            self.operations.append(CheckVersion(path, node.version))
            return
        missing = [one for one in (*ancestors_of(path), path) if self._nodes[one] is None]
        self.operations += [Create(one, b"") for one in missing]
        self.operations += [Delete(one, 0) for one in reversed(missing)]

    def put(self, path: str, value: bytes, session: str | None) -> None:
        """Write a value; without `session` it stays bound to what it is bound to."""
        require(value != b"", f"the value of {path} is empty")
        node = self._nodes[path]
        if node is None:
            self._create(path, value, session)
        elif not node.data and not node.children_count:
            # As a new one, whose version is 1.
            self._make_anew(path, value, session or "", node, versions_count=0)
        elif session is None or session == node.owner:
            self.operations.append(SetData(path, value, node.version))
        else:
            self._make_anew(path, value, session, node, versions_count=node.version + 1)

    def delete(self, path: str) -> None:
        """Remove a value, and the nodes above it that hold neither a value nor others then."""
        node = self._nodes[path]
        if node is None:  # It was checked that it has a value.
            raise StoreFailure(f"{path} is to be deleted and was not read")
        if node.children_count:
            self.operations.append(SetData(path, b"", node.version))
            self._nodes[path] = node._replace(data=b"")
            return
        self._remove(path, node)
        for above in reversed(ancestors_of(path)):
            node = self._nodes.get(above)
            is_needed = node is None or node.data or node.children_count or above in self._written
            if is_needed or above.count("/") <= _LEVELS_KEPT or node is None:
                return
            self._remove(above, node)

    def _create(self, path: str, value: bytes, session: str | None) -> None:
        for above in ancestors_of(path):
            if self._nodes[above] is None:
                self._add(Create(above, b""))
        self._add(Create(path, value, session is not None), session or "")

    def _make_anew(
        self, path: str, value: bytes, session: str, node: Znode, versions_count: int
    ) -> None:
        if versions_count > ZOOKEEPER_REBINDINGS_COUNT_MAX:
            raise StoreFailure(f"{path} was written too often to be bound to another session")
        self._remove(path, node)
        self._add(Create(path, value, bool(session)), session)
        self.operations += [SetData(path, value, version) for version in range(versions_count)]

    def _add(self, create: Create, session: str = "") -> None:
        self.operations.append(create)
        self._nodes[create.path] = Znode(create.data, 0, 0, 0, session, 0)
        self._count_child(create.path, 1)

    def _remove(self, path: str, node: Znode) -> None:
        self.operations.append(Delete(path, node.version))
        self._nodes[path] = None
        self._count_child(path, -1)

    def _count_child(self, path: str, difference: int) -> None:
        above = parent_of(path)
        node = self._nodes.get(above)
        if node is not None:
            count = node.children_count + difference
            self._nodes[above] = node._replace(children_count=count)

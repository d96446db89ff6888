"""Steps of writes as ZooKeeper's operations, carried out by a small model of ZooKeeper."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.core.errors import InvariantViolation
from oncelog.metadata.store import Check, SessionId, Stored, StoreFailure, Write
from oncelog.metadata.zookeeper.nodes import Znode, ancestors_of, parent_of, stored_in
from oncelog.metadata.zookeeper.operations import (
    CheckVersion,
    Create,
    Delete,
    Operation,
    SetData,
    operations_for,
)
from oncelog.metadata.zookeeper.ring import RING_PATH
from oncelog.metadata.zookeeper.store import _read_nodes

OURS = SessionId("0x1")


class Tree:
    """ZooKeeper's rules for the operations that are used; those of one call by one session."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}

    def write(
        self, *writes: Write, checks: Sequence[Check] = (), session: str = OURS
    ) -> list[Operation]:
        paths = {write.path for write in writes} | {check.path for check in checks}
        paths |= {above for path in paths for above in ancestors_of(path)}
        operations = operations_for(writes, checks, {path: self.nodes.get(path) for path in paths})
        for operation in operations:
            self._carry_out(operation, session)
        return operations

    def values(self) -> dict[str, Stored]:
        found = {path: stored_in(node) for path, node in sorted(self.nodes.items())}
        return {path: stored for path, stored in found.items() if stored is not None}

    def _carry_out(self, operation: Operation, session: str) -> None:
        path = operation.path
        above = parent_of(path)
        if isinstance(operation, Create):
            assert path not in self.nodes, f"{path} exists"
            assert not above or above in self.nodes, f"nothing above {path}"
            assert not above or not self.nodes[above].owner, f"{above} is bound"
            owner = session if operation.is_bound else ""
            self.nodes[path] = Znode(operation.data, 0, 0, 0, owner, 0)
            self._count(above, 1)
            return
        node = self.nodes[path]
        assert node.version == operation.version, f"{path} is at {node.version}"
        if isinstance(operation, SetData):
            self.nodes[path] = node._replace(data=operation.data, version=node.version + 1)
        elif isinstance(operation, Delete):
            assert node.children_count == 0, f"{path} is not empty"
            del self.nodes[path]
            self._count(above, -1)

    def _count(self, path: str, difference: int) -> None:
        if path:
            count = self.nodes[path].children_count + difference
            self.nodes[path] = self.nodes[path]._replace(children_count=count)


def test_what_is_above_a_value_is_made_with_it() -> None:
    tree = Tree()
    tree.write(Write("/t/a/p/0", b"1", 0), Write("/t/a", b"2", 0))
    assert tree.values() == {"/t/a": (b"2", 1), "/t/a/p/0": (b"1", 1)}


def test_a_value_is_written_to_a_node_that_has_others_already() -> None:
    """As a topic's, whose states are written before it."""
    tree = Tree()
    tree.write(Write("/t/a/p/0", b"1", 0))
    tree.write(Write("/t/a", b"2", 0))
    assert tree.values() == {"/t/a": (b"2", 2), "/t/a/p/0": (b"1", 1)}


def test_what_is_deleted_takes_the_empty_nodes_above_with_it() -> None:
    tree = Tree()
    tree.write(Write("/b/t/a", b"2", 0), Write("/b/t/a/p/0/s", b"1", 0))
    tree.write(Write("/b/t/a", None, 1), Write("/b/t/a/p/0/s", None, 1))
    # Monitors list the two highest levels.
    assert list(tree.nodes) == ["/b", "/b/t"]


def test_a_deleted_value_leaves_what_is_below_it_as_it_is() -> None:
    tree = Tree()
    tree.write(Write("/b/t/a", b"2", 0), Write("/b/t/a/p/0", b"1", 0))
    tree.write(Write("/b/t/a", None, 1))
    assert tree.values() == {"/b/t/a/p/0": (b"1", 1)}
    tree.write(Write("/b/t/a/p/0", None, 1))
    assert list(tree.nodes) == ["/b", "/b/t"]


def test_what_a_step_makes_below_a_value_keeps_the_node_that_it_deletes() -> None:
    tree = Tree()
    tree.write(Write("/b/t/a", b"2", 0))
    tree.write(Write("/b/t/a", None, 1), Write("/b/t/a/p", b"1", 0))
    assert tree.values() == {"/b/t/a/p": (b"1", 1)}


def test_a_value_bound_to_another_session_is_bound_anew_at_a_higher_version() -> None:
    tree = Tree()
    tree.write(Write("/c", b"1", 0, SessionId("0x2")), session="0x2")
    tree.write(Write("/c", b"2", 1, SessionId("0x2")), session="0x2")
    tree.write(Write("/c", b"3", 2, OURS))
    assert tree.values() == {"/c": (b"3", 3)}
    assert tree.nodes["/c"].owner == OURS


def test_a_write_without_a_session_leaves_a_value_bound() -> None:
    tree = Tree()
    tree.write(Write("/c", b"1", 0, OURS))
    tree.write(Write("/c", b"2", 1), session="0x2")
    assert (tree.nodes["/c"].owner, tree.values()) == (OURS, {"/c": (b"2", 2)})
    tree.write(Write("/c", None, 2), session="0x2")
    assert tree.nodes == {}


def test_a_value_that_was_bound_too_often_is_not_bound_again() -> None:
    tree = Tree()
    tree.write(Write("/c", b"1", 0, SessionId("0x2")), session="0x2")
    tree.nodes["/c"] = tree.nodes["/c"]._replace(version=1_000)
    with pytest.raises(StoreFailure, match="too often"):
        tree.write(Write("/c", b"2", 1_001, OURS))


def test_that_a_path_does_not_exist_is_checked_and_leaves_nothing() -> None:
    tree = Tree()
    tree.write(Write("/a", b"1", 0))
    checks = [Check("/x/y", 0), Check("/a", 1), Check("/a/z", 0)]
    operations = tree.write(Write("/b", b"1", 0), checks=checks)
    assert operations[:2] == [Create("/x", b""), Create("/x/y", b"")]
    assert CheckVersion("/a", 0) in operations
    assert list(tree.nodes) == ["/a", "/b"]


def test_a_path_that_only_holds_others_is_checked_not_to_get_a_value() -> None:
    tree = Tree()
    tree.write(Write("/t/a/p", b"1", 0))
    assert CheckVersion("/t/a", 0) in tree.write(Write("/b", b"1", 0), checks=[Check("/t/a", 0)])


def test_an_empty_value_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="empty"):
        Tree().write(Write("/a", b"", 0))


@pytest.mark.parametrize("seed", range(20))
def test_random_steps_leave_the_values_that_they_write(seed: int) -> None:
    rng = random.Random(seed)
    paths = ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/x/y", "/e", "/a/b/c/d/f"]
    tree = Tree()
    expected: dict[str, bytes] = {}
    for _ in range(100):
        writes = []
        for path in rng.sample(paths, rng.randint(1, 4)):
            version = tree.values().get(path, Stored(b"", 0)).version
            value = rng.choice([None, b"1", b"2"]) if version else b"3"
            writes.append(Write(path, value, version))
        checks = [
            Check(path, tree.values().get(path, Stored(b"", 0)).version)
            for path in rng.sample([*paths, "/a/n", "/a/b/n/m", "/n"], 2)
        ]
        tree.write(*writes, checks=checks)
        for path, value, *_ in writes:
            if value is None:
                expected.pop(path)
            else:
                expected[path] = value
        assert {path: value for path, (value, _) in tree.values().items()} == expected


class Reads:
    """A connection to nodes that exist, and what was read of them at a time."""

    def __init__(self, *there: str) -> None:
        self.nodes = {path: Znode(b"{}", 3, 1, 1, "", 0) for path in there}
        self.reads: list[list[str]] = []

    async def get_all(self, paths: list[str]) -> list[Znode | None]:
        self.reads.append(paths)
        return [self.nodes.get(path) for path in paths]


async def test_what_is_above_a_path_is_read_where_that_is_made_or_deleted_only() -> None:
    reads: Any = Reads(RING_PATH, "/a", "/a/b", "/d/e", "/d/e/f")
    changed = Write("/a/b", b"{}", 3)
    await _read_nodes(reads, [changed], [Check("/d/e", 3)])
    assert reads.reads == [[RING_PATH, "/a/b", "/d/e"], []]
    reads.reads.clear()
    await _read_nodes(reads, [changed, Write("/a/c", b"{}", 0), Write("/d/e/f", None, 3)], [])
    assert reads.reads == [[RING_PATH, "/a/b", "/a/c", "/d/e/f"], ["/a", "/d", "/d/e"]]

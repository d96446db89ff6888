"""What is read while others write is the state of one moment, and the feed leads from one to it.

The nodes are a model of ZooKeeper's: between any two answers of a batch somebody may write a step,
or a session may end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Container, Sequence
from typing import cast

import pytest

from oncelog.metadata.store import StoreFailure
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.mirror import Mirror
from oncelog.metadata.zookeeper.nodes import Znode, parent_of
from oncelog.metadata.zookeeper.reading import read_changes
from oncelog.metadata.zookeeper.ring import RING_PATH, RingStep, decode_ring, encode_ring

PATHS = ["/a/1", "/a/2", "/b/1", "/b/2", "/c"]
SESSIONS = ["0x1", "0x2"]


class Nodes:
    """ZooKeeper as a connection reads it. A step is written before an answer with `hurry`."""

    def __init__(self, seed: int, *, steps_kept: int = 1_000) -> None:
        self.rng = random.Random(seed)
        self.hurry = 0.0
        self.zxid = 1
        self.asked: set[str] = set()
        """Those that were read."""
        self.watched: set[str] = set()
        """Those whose next change would wake."""
        self.values: dict[str, Znode] = {}
        self.children_zxids = dict.fromkeys(["", "/a", "/b"], 1)
        self.history: list[tuple[int, dict[str, bytes]]] = [(1, {})]
        self._steps_kept = steps_kept
        self._ring = Znode(encode_ring([], (), ()), 0, 1, 0, "", 0)

    async def get_all(
        self, paths: Sequence[str], watched: Container[str] = ()
    ) -> list[Znode | None]:
        found = []
        for path in paths:
            if self.rng.random() < self.hurry:
                self.step()
            found.append(self._at(path))
            self.asked.add(path)
            if path in watched and found[-1] is not None:
                self.watched.add(path)
        return found

    async def children_of(self, paths: Sequence[str]) -> list[tuple[list[str], int]]:
        found = []
        for path in paths:
            if self.rng.random() < self.hurry:
                self.step()
            below = [one for one in (*self.children_zxids, *self.values) if one]
            names = [one.rpartition("/")[2] for one in below if parent_of(one) == path]
            found.append((names, self.children_zxids[path]))
        return found

    def step(self) -> None:
        """Write something, or end a session."""
        self.zxid += self.rng.randint(1, 3)
        if self.rng.random() < 0.3:
            self._end(self.rng.choice(SESSIONS))
        else:
            self._write(self.rng.sample(PATHS, self.rng.randint(1, 3)))
        self.history.append((self.zxid, {path: one.data for path, one in self.values.items()}))

    def put(self, path: str, owner: str = "") -> None:
        """Write one new value."""
        self.zxid += 1
        self._create(path, owner)
        self._name([path], [path] if owner else [])
        self.history.append((self.zxid, {each: one.data for each, one in self.values.items()}))

    def at(self, zxid: int) -> dict[str, bytes]:
        """The values as they were after a transaction."""
        return next(values for when, values in reversed(self.history) if when <= zxid)

    def _at(self, path: str) -> Znode | None:
        if path == RING_PATH:
            return self._ring
        if path in self.children_zxids:
            return Znode(b"", 0, 1, self.children_zxids[path], "", 1)
        return self.values.get(path)

    def _write(self, paths: list[str]) -> None:
        bound = []
        for path in paths:
            node = self.values.get(path)
            if node is not None and self.rng.random() < 0.4:
                self._delete(path)
            elif node is not None:
                self.values[path] = node._replace(
                    data=b"%d" % self.zxid, version=node.version + 1, zxid=self.zxid
                )
            else:
                owner = self.rng.choice(["", *SESSIONS])
                bound += [path] if owner else []
                self._create(path, owner)
        self._name(paths, bound)

    def _create(self, path: str, owner: str) -> None:
        self.values[path] = Znode(b"%d" % self.zxid, 0, self.zxid, 0, owner, 0)
        self.children_zxids[parent_of(path)] = self.zxid

    def _name(self, paths: list[str], bound: list[str]) -> None:
        steps = decode_ring(self._ring.data, self._ring.zxid)[-self._steps_kept :]
        self._ring = self._ring._replace(data=encode_ring(steps, paths, bound), zxid=self.zxid)

    def _end(self, session: str) -> None:
        for path in [path for path, node in self.values.items() if node.owner == session]:
            self._delete(path)

    def _delete(self, path: str) -> None:
        del self.values[path]
        self.children_zxids[parent_of(path)] = self.zxid


async def read(nodes: Nodes, mirror: Mirror) -> None:
    mirror.take(await read_changes(cast(ZooKeeperConnection, nodes), mirror))


def stored(mirror: Mirror) -> dict[str, bytes]:
    return {path: one.value for path, one in mirror.list("").items()}


def follow(mirror: Mirror, revision: int, seen: dict[str, bytes]) -> int:
    """Bring what a follower of the feed has seen up to the mirror; returns its revision."""
    changes = mirror.changes(revision)
    assert changes.revision >= revision
    for path, value, _ in changes.entries:
        seen.pop(path, None)
        if value is not None:
            seen[path] = value
    return changes.revision


@pytest.mark.parametrize("seed", range(200))
async def test_every_reading_is_of_one_moment_and_the_feed_leads_to_it(seed: int) -> None:
    nodes, mirror = Nodes(seed), Mirror()
    seen, revision = dict[str, bytes](), 0
    for _ in range(12):
        for _ in range(nodes.rng.randint(0, 4)):
            nodes.step()
        nodes.hurry = nodes.rng.choice([0.0, 0.02, 0.1])
        await read(nodes, mirror)
        assert stored(mirror) == nodes.at(mirror.revision)
        revision = follow(mirror, revision, seen)
        assert seen == stored(mirror)
        bound = {path for path, node in nodes.values.items() if node.owner}
        if nodes.hurry == 0:
            assert nodes.watched >= bound
            # Two brokers that read the same have the same revision.
            other = Mirror()
            await read(nodes, other)
            assert other.revision == mirror.revision


@pytest.mark.parametrize("seed", range(50))
async def test_a_reader_behind_the_ring_has_what_there_is(seed: int) -> None:
    nodes, mirror = Nodes(seed, steps_kept=2), Mirror()
    seen, revision = dict[str, bytes](), 0
    for _ in range(12):
        for _ in range(nodes.rng.randint(0, 8)):
            nodes.step()
        nodes.hurry = nodes.rng.choice([0.0, 0.05])
        await read(nodes, mirror)
        assert stored(mirror) == nodes.at(mirror.revision)
        revision = follow(mirror, revision, seen)
        assert seen == stored(mirror)


async def test_what_has_not_changed_and_is_not_bound_is_neither_read_nor_watched() -> None:
    nodes, mirror = Nodes(1), Mirror()
    nodes.put("/a/1")
    nodes.put("/b/1", owner="0x1")
    await read(nodes, mirror)
    assert nodes.watched == {RING_PATH, "/b/1"}
    nodes.put("/a/2")
    for changed in (["/a/2"], []):
        nodes.asked.clear()
        await read(nodes, mirror)
        assert nodes.asked == {RING_PATH, "/b", "/b/1", *changed}
    assert nodes.watched == {RING_PATH, "/b/1"}
    assert mirror.list("").keys() == {"/a/1", "/a/2", "/b/1"}


@pytest.mark.parametrize(
    ("roots", "read_paths"), [(None, {"", "/a", "/b"}), ({"b", "zookeeper"}, {"", "/b"})]
)
async def test_what_others_and_zookeeper_itself_have_in_the_root_is_not_read(
    roots: set[str] | None, read_paths: set[str]
) -> None:
    nodes = Nodes(1)
    nodes.children_zxids["/zookeeper"] = 1
    await read_changes(cast(ZooKeeperConnection, nodes), Mirror(), roots)
    assert nodes.asked == {RING_PATH, *read_paths}


async def test_nodes_that_never_stand_still_are_not_read() -> None:
    nodes = Nodes(1)
    nodes.hurry = 1.0
    with pytest.raises(StoreFailure, match="change faster than they can be read"):
        await asyncio.wait_for(read(nodes, Mirror()), 60)


async def test_an_older_state_is_refused() -> None:
    nodes, mirror = Nodes(1), Mirror()
    for _ in range(20):
        nodes.step()
    await read(nodes, mirror)
    assert mirror.ring_zxid > 1
    with pytest.raises(StoreFailure, match="older state"):
        await read(Nodes(1), mirror)
    assert stored(mirror) == nodes.at(mirror.revision)


def test_a_ring_of_one_step_is_that_of_its_node() -> None:
    assert decode_ring(encode_ring([], ["/a"], ()), 5) == [RingStep(5, ("/a",))]

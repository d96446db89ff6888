"""What a store knows of ZooKeeper, reading by reading."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.metadata.store import Change, Changes
from oncelog.metadata.zookeeper.mirror import Mirror, ZooKeeperReading
from oncelog.metadata.zookeeper.nodes import Znode
from oncelog.metadata.zookeeper.ring import Named


def node(data: bytes, zxid: int, *, version: int = 0, owner: str = "", below: int = 0) -> Znode:
    return Znode(data, version, zxid, below, owner, 0)


def read(
    mirror: Mirror,
    ring_zxid: int,
    nodes: Mapping[str, Znode | None],
    *,
    named: Mapping[str, int] = {},
    above: Mapping[str, int] = {},
    is_whole: bool = False,
    ring: int = 1,
) -> None:
    steps = {path: Named(zxid, is_bound=False) for path, zxid in named.items()}
    mirror.take(ZooKeeperReading(ring_zxid, steps, nodes, above, is_whole, ring))


def begun(**nodes: Znode) -> Mirror:
    mirror = Mirror()
    read(mirror, 5, {f"/{name}": one for name, one in nodes.items()}, is_whole=True)
    return mirror


def test_the_first_reading_is_all_there_is_in_the_order_of_writing() -> None:
    mirror = begun(b=node(b"1", 3), a=node(b"1", 4), c=node(b"1", 3))
    assert mirror.changes(0) == Changes(
        5, (Change("/b", b"1", 1), Change("/c", b"1", 1), Change("/a", b"1", 1))
    )
    assert mirror.changes(5) == Changes(5, ())


def test_a_node_without_data_is_no_value() -> None:
    assert begun(a=node(b"", 3)).changes(0).entries == ()


def test_a_value_that_is_older_than_what_is_known_is_dropped() -> None:
    mirror = begun(a=node(b"new", 4, version=1))
    read(mirror, 6, {"/a": node(b"old", 3)}, named={"/a": 6})
    assert mirror.list("/") == {"/a": (b"new", 2)}
    assert mirror.changes(5) == Changes(6, ())


def test_a_step_deletes_what_it_names_and_what_is_not_there() -> None:
    mirror = begun(a=node(b"1", 3), b=node(b"1", 4))
    read(mirror, 7, {"/a": None, "/b": node(b"2", 7, version=1)}, named={"/a": 6, "/b": 7})
    assert mirror.changes(5) == Changes(7, (Change("/a", None, 0), Change("/b", b"2", 2)))
    assert mirror.list("/") == {"/b": (b"2", 2)}


def test_a_value_that_gave_its_node_to_others_is_deleted() -> None:
    mirror = begun(a=node(b"1", 3))
    read(mirror, 6, {"/a": node(b"", 6, version=1)}, named={"/a": 6})
    assert mirror.changes(5).entries == (Change("/a", None, 0),)


def test_the_end_of_a_session_deletes_what_was_bound_to_it() -> None:
    mirror = begun(b=node(b"1", 4, owner="0x1"), a=node(b"1", 3))
    assert mirror.bound == ["/b"]
    read(mirror, 5, {"/b": None}, above={"": 9})
    assert mirror.changes(5) == Changes(9, (Change("/b", None, 0),))
    assert mirror.bound == []
    # No step was written: the next one has a higher zxid.
    read(mirror, 12, {"/b": node(b"2", 12, owner="0x2")}, named={"/b": 12}, above={"": 12})
    assert mirror.changes(9) == Changes(12, (Change("/b", b"2", 1),))


def test_what_a_whole_reading_lacks_is_deleted() -> None:
    mirror = begun(gone=node(b"1", 3), kept=node(b"1", 3))
    read(mirror, 30, {"/kept": node(b"1", 3)}, is_whole=True)
    assert mirror.changes(5) == Changes(30, (Change("/gone", None, 0),))
    read(mirror, 40, {"/kept": node(b"1", 3)}, is_whole=True)
    assert mirror.changes(30) == Changes(40, ())


def test_what_a_store_that_was_begun_anew_lacks_is_forgotten() -> None:
    mirror = begun(gone=node(b"1", 3), named=node(b"1", 3), bound=node(b"1", 3, owner="0x1"))
    read(mirror, 30, {}, named={"/named": 29}, above={"": 28}, is_whole=True, ring=20)
    assert mirror.changes(5) == Changes(30, (Change("/bound", None, 0), Change("/named", None, 0)))
    assert mirror.list("/") == {}
    assert mirror.changes(0).entries == mirror.changes(5).entries


def test_a_first_reading_tells_of_deletions_that_the_ring_names() -> None:
    mirror = Mirror()
    read(mirror, 9, {"/a": node(b"1", 3)}, named={"/a": 3, "/b": 8}, is_whole=True)
    assert mirror.changes(0).entries == (Change("/a", b"1", 1), Change("/b", None, 0))
    read(mirror, 12, {"/a": node(b"1", 3)}, is_whole=True)
    assert mirror.changes(9).entries == ()


def test_what_a_reader_has_not_seen_has_a_revision_that_it_has_not_either() -> None:
    """A store that was restored from a copy and written since has lower zxids in places."""
    mirror = begun(a=node(b"1", 3))
    read(mirror, 20, {"/a": node(b"1", 3), "/b": node(b"1", 4)}, is_whole=True)
    assert mirror.changes(5).entries == (Change("/b", b"1", 1),)


def test_revisions_never_fall() -> None:
    mirror = begun(a=node(b"1", 3))
    assert mirror.changes(99) == Changes(99, ())

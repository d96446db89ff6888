"""What one store has read of ZooKeeper: every value, and in which transaction it changed. Pure.

Its revisions are ZooKeeper's zxids, so that those of two brokers can be compared. What is older
than what is known is dropped. A value is deleted where a step of the ring named its path, where it
was bound to a session that has ended, and where a reading of everything lacks it: its step has left
the ring, or was too long to be named. But absence is no deletion where ZooKeeper lost its data, and
a broker has made another store there (D14): that ring is another node, and what is not there is
forgotten, and not reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.metadata.store import Change, Changes, Stored
from oncelog.metadata.zookeeper.nodes import Znode, parent_of, stored_in
from oncelog.metadata.zookeeper.ring import Named

__all__ = ["Mirror", "ZooKeeperReading"]


class ZooKeeperReading(NamedTuple):
    """What was read of ZooKeeper, all of it as it was at one moment."""

    ring_zxid: int
    """Of the newest step that is in it."""
    named: Mapping[str, Named]
    """What steps have written that the mirror does not know."""
    nodes: Mapping[str, Znode | None]
    children_zxids: Mapping[str, int]
    """Of the nodes directly above values bound to sessions; 0: there is none."""
    is_whole: bool
    """Whether `nodes` has every node that there is."""
    ring_created_zxid: int
    """Of the ring's node: another one is that of another store."""


class _Known(NamedTuple):
    stored: Stored | None
    revision: int
    is_bound: bool


class Mirror:
    """The values that were read, and the revision of each path's newest change."""

    __slots__ = ("_known", "_ring_created_zxid", "revision", "ring_zxid")

    def __init__(self) -> None:
        self.revision = 0
        self.ring_zxid = 0
        """Of the newest step that is in it; 0: nothing was read yet."""
        self._ring_created_zxid = 0
        # In the order of revisions.
        self._known: dict[str, _Known] = {}

    @property
    def bound(self) -> list[str]:
        """The paths of values that are bound to sessions."""
        return [path for path, known in self._known.items() if known.is_bound]

    def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        found: dict[str, Stored] = {}
        for path in sorted(self._known):
            stored = self._known[path].stored
            if stored is not None and path.startswith(prefix):
                found[path] = stored
        return found

    def changes(self, after_revision: int) -> Changes:
        """See `MetadataStore.changes`."""
        found = []
        for path in reversed(self._known):
            stored, revision, _ = self._known[path]
            if revision <= after_revision:
                break
            found.append(Change(path, *(stored or (None, 0))))
        return Changes(max(self.revision, after_revision), tuple(reversed(found)))

    def take(self, reading: ZooKeeperReading) -> None:
        """Bring it up to what was read."""
        changed: dict[str, _Known] = {}
        for path, node in reading.nodes.items():
            known = self._taken(path, node, reading)
            if known is not None:
                changed[path] = known
        if reading.is_whole:
            changed.update(self._missing(reading))
        for path in changed:
            self._known.pop(path, None)
        for path in sorted(changed, key=lambda path: (changed[path].revision, path)):
            self._known[path] = changed[path]
        revisions = [known.revision for known in changed.values()]
        above = [node.children_zxid for node in reading.nodes.values() if node is not None]
        ended = reading.children_zxids.values()
        self.revision = max([self.revision, reading.ring_zxid, *revisions, *above, *ended])
        self.ring_zxid = reading.ring_zxid
        self._ring_created_zxid = reading.ring_created_zxid

    def _taken(self, path: str, node: Znode | None, reading: ZooKeeperReading) -> _Known | None:
        """Return what is new of a path; None: nothing."""
        known = self._known.get(path)
        stored = stored_in(node)
        if node is not None and stored is not None:
            if known is not None and node.zxid <= known.revision:
                return None
            return _Known(stored, self._later(node.zxid), bool(node.owner))
        if path in reading.named or (known is not None and known.is_bound):
            return self._deleted(path, reading)
        return None

    def _deleted(self, path: str, reading: ZooKeeperReading) -> _Known:
        named = reading.named.get(path)
        if named is not None:
            return _Known(None, self._later(named.zxid), is_bound=False)
        # Its session has ended, and with it all that was directly below changed.
        ended_zxid = reading.children_zxids.get(parent_of(path), 0)
        return _Known(None, self._later(ended_zxid), is_bound=False)

    def _missing(self, reading: ZooKeeperReading) -> dict[str, _Known]:
        """Return what is deleted; forget what is not there for another reason."""
        is_same = reading.ring_created_zxid == self._ring_created_zxid
        deleted: dict[str, _Known] = {}
        for path in {*self._known, *reading.named}:
            known = self._known.get(path)
            is_gone = known is not None and known.stored is None and path not in reading.named
            if is_gone or stored_in(reading.nodes.get(path)) is not None:
                continue
            if is_same or path in reading.named or (known is not None and known.is_bound):
                deleted[path] = self._deleted(path, reading)
            else:
                del self._known[path]
        return deleted

    def _later(self, zxid: int) -> int:
        """Return a revision that no reader has seen: one of a restored store may be lower."""
        return max(zxid, self.revision + 1)

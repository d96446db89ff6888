"""The state of a metadata store, and the rule by which a write is refused. Pure.

The shells around it give it callers: `oncelog.metadata.memory` threads and event loops, the
simulation processes and delays. SQLite keeps its state in its file, and uses the rule only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.core.errors import require
from oncelog.metadata.store import Change, Changes, Check, Conflict, Fenced, Stored, Write

__all__ = ["StoreState", "check_versions"]


def check_versions(
    version_of: Callable[[str], int],
    writes: Sequence[Write],
    checks: Sequence[Check],
    fence: Check | None,
) -> None:
    """Raise `Fenced` or `Conflict` unless all paths are at the versions that the writer saw.

    `version_of` returns the version of a path, 0 where there is no value.
    """
    if fence is not None and version_of(fence.path) != fence.version:
        raise Fenced(_said(fence.path, fence.version, version_of(fence.path)))
    paths = {write.path for write in writes}
    require(len(paths) == len(writes), "a metadata write names a path twice")
    for path, version in (*checks, *((write.path, write.version) for write in writes)):
        found = version_of(path)
        if found != version:
            raise Conflict(_said(path, version, found))
    for path, value, version in writes:
        require(value is not None or version > 0, f"{path} is to be deleted, and must not exist")


def _said(path: str, wanted: int, found: int) -> str:
    if found == 0:
        return f"{path} does not exist"
    return f"{path} exists" if wanted == 0 else f"{path} is at version {found}, not {wanted}"


class _Node(NamedTuple):
    stored: Stored | None
    revision: int


class StoreState:
    """All values, and the revision of each path's newest write.

    It keeps deleted paths forever, for the feed of changes: what uses it is short-lived.
    """

    __slots__ = ("_nodes", "_revision")

    def __init__(self) -> None:
        # In the order of writing.
        self._nodes: dict[str, _Node] = {}
        self._revision = 0

    def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        node = self._nodes.get(path)
        return None if node is None else node.stored

    def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        found: dict[str, Stored] = {}
        for path in sorted(self._nodes):
            stored = self._nodes[path].stored
            if stored is not None and path.startswith(prefix):
                found[path] = stored
        return found

    def write_all(
        self, writes: Sequence[Write], checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`. All writes of one call share one revision."""
        check_versions(self._version_of, writes, checks, fence)
        if writes:
            self._revision += 1
        for path, value, version in sorted(writes):
            self._nodes.pop(path, None)
            stored = None if value is None else Stored(value, version + 1)
            self._nodes[path] = _Node(stored, self._revision)

    def changes(self, after_revision: int) -> Changes:
        """See `MetadataStore.changes`. Takes as long as what changed."""
        found = []
        for path in reversed(self._nodes):
            stored, revision = self._nodes[path]
            if revision <= after_revision:
                break
            found.append(Change(path, *(stored or (None, 0))))
        return Changes(self._revision, tuple(reversed(found)))

    def _version_of(self, path: str) -> int:
        stored = self.get(path)
        return 0 if stored is None else stored.version

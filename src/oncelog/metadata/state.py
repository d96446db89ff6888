"""The state of a metadata store, and the rule by which a write is refused. Pure.

The shells around it give it callers: `oncelog.metadata.memory` threads and event loops, the
simulation processes and delays. SQLite keeps its state in its file, and uses the rule only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import require
from oncelog.metadata.store import (
    Change,
    Changes,
    Check,
    Conflict,
    Fenced,
    SessionExpired,
    SessionId,
    Stored,
    Write,
)

__all__ = ["StoreState", "check_sessions", "check_versions"]


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
    for path, value, version, session in writes:
        require(value is not None or version > 0, f"{path} is to be deleted, and must not exist")
        require(value is not None or session is None, f"{path} is to be deleted, and to be bound")


def check_sessions(is_alive: Callable[[SessionId], bool], writes: Sequence[Write]) -> None:
    """Raise `SessionExpired` unless every session that a value is to be bound to is alive.

    Before `check_versions`: a writer whose session has ended may find anything changed.
    """
    for write in writes:
        if write.session is not None and not is_alive(write.session):
            raise SessionExpired(f"{write.path}: session {write.session} has ended")


def _said(path: str, wanted: int, found: int) -> str:
    if found == 0:
        return f"{path} does not exist"
    return f"{path} exists" if wanted == 0 else f"{path} is at version {found}, not {wanted}"


class _Node(NamedTuple):
    stored: Stored | None
    revision: int
    session: SessionId | None


@dataclass(slots=True)
class _Contact:
    timeout_ms: float
    last_ms: float


class StoreState:
    """All values, the revision of each path's newest write, and the sessions that have not ended.

    It keeps deleted paths forever, for the feed of changes: what uses it is short-lived.
    """

    __slots__ = ("_nodes", "_opened_count", "_revision", "_sessions")

    def __init__(self) -> None:
        # In the order of writing.
        self._nodes: dict[str, _Node] = {}
        self._revision = 0
        self._sessions: dict[SessionId, _Contact] = {}
        self._opened_count = 0

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
        check_sessions(self.is_alive, writes)
        check_versions(self._version_of, writes, checks, fence)
        if writes:
            self._revision += 1
        for path, value, version, session in sorted(writes, key=lambda write: write.path):
            before = self._nodes.pop(path, None)
            if value is None:
                self._nodes[path] = _Node(None, self._revision, None)
                continue
            if session is None and before is not None:
                session = before.session
            self._nodes[path] = _Node(Stored(value, version + 1), self._revision, session)

    def changes(self, after_revision: int) -> Changes:
        """See `MetadataStore.changes`. Takes as long as what changed."""
        found = []
        for path in reversed(self._nodes):
            stored, revision, _ = self._nodes[path]
            if revision <= after_revision:
                break
            found.append(Change(path, *(stored or (None, 0))))
        return Changes(max(self._revision, after_revision), tuple(reversed(found)))

    def copy(self) -> StoreState:
        """Return the state as it is now, for readers that are shown no more."""
        copied = StoreState()
        copied._nodes = dict(self._nodes)
        copied._revision = self._revision
        return copied

    # --- sessions

    def open_session(self, timeout_ms: float, now_ms: float) -> SessionId:
        """Begin a session whose owner may be silent for `timeout_ms`."""
        self._opened_count += 1
        session_id = SessionId(str(self._opened_count))
        self._sessions[session_id] = _Contact(timeout_ms, now_ms)
        return session_id

    def is_alive(self, session_id: SessionId) -> bool:
        """Whether a session has not ended."""
        return session_id in self._sessions

    def renew(self, session_id: SessionId, now_ms: float) -> None:
        """Note that the store was reached by the owner of a session, if that has not ended."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.last_ms = now_ms

    def is_late(self, session_id: SessionId, now_ms: float) -> bool:
        """Whether the owner of a live session has been silent for longer than its timeout."""
        session = self._sessions.get(session_id)
        return session is not None and now_ms - session.last_ms > session.timeout_ms

    def end_session(self, session_id: SessionId) -> bool:
        """End a session: delete what is bound to it, in one step. False: it has ended before."""
        if self._sessions.pop(session_id, None) is None:
            return False
        bound = [path for path, node in self._nodes.items() if node.session == session_id]
        if bound:
            self._revision += 1
        for path in sorted(bound):
            del self._nodes[path]
            self._nodes[path] = _Node(None, self._revision, None)
        return True

    def _version_of(self, path: str) -> int:
        stored = self.get(path)
        return 0 if stored is None else stored.version

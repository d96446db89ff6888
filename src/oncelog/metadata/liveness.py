"""Whether a session of `SqliteStore` has ended, judged by another process. Pure."""

from __future__ import annotations

from oncelog.metadata.session_file import Sighting
from oncelog.metadata.sqlite_tables import SessionRow

__all__ = ["has_ended", "is_late"]

_NS_PER_MS = 1_000_000


def is_late(session: SessionRow, beat_ns: int, now_ns: int) -> bool:
    """Whether a session's newest beat is older than its timeout."""
    return now_ns - beat_ns > session.timeout_ms * _NS_PER_MS


def has_ended(
    session: SessionRow, seen: Sighting, boot_id: str, now_ns: int, silent_since_ns: int
) -> bool:
    """Whether the owner of a session is dead, or has been silent for longer than its timeout.

    `now_ns` was read before `seen`: who looks may be stopped between the two. `silent_since_ns` is
    since when no beat was seen, and the owner could know that it has company.
    """
    if session.boot_id != boot_id or not seen.is_locked:
        return True
    if seen.session_id not in (None, session.session_id):
        return True  # The slot was free, and has been taken by another since.
    return is_late(session, silent_since_ns if seen.beat_ns is None else seen.beat_ns, now_ns)

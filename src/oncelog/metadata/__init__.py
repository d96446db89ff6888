"""The metadata store: a cluster's topics, ids and epochs, behind one small interface (D9)."""

from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import (
    Change,
    Changes,
    Check,
    Conflict,
    Fenced,
    MetadataStore,
    Session,
    SessionExpired,
    SessionId,
    Stored,
    StoreFailure,
    Write,
)

__all__ = [
    "Change",
    "Changes",
    "Check",
    "Conflict",
    "Fenced",
    "MemoryStore",
    "MetadataStore",
    "Session",
    "SessionExpired",
    "SessionId",
    "StoreFailure",
    "Stored",
    "Write",
]

"""The metadata store: a cluster's topics, ids and epochs, behind one small interface (D9)."""

from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import (
    Change,
    Changes,
    Check,
    Conflict,
    Fenced,
    MetadataStore,
    Stored,
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
    "Stored",
    "Write",
]

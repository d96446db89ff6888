"""The metadata store.

Where topics, ids and epochs of a cluster are kept, behind one small interface (D9).
"""

from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import (
    Change,
    Changes,
    Conflict,
    ControllerFenced,
    MetadataStore,
    Stored,
    Write,
)

__all__ = [
    "Change",
    "Changes",
    "Conflict",
    "ControllerFenced",
    "MemoryStore",
    "MetadataStore",
    "Stored",
    "Write",
]

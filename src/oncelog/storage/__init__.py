"""One partition's log, and the log directories that hold all of a broker's logs.

The file formats are Kafka's own, byte for byte (D5): Apache's tools read them. This package knows
files, batch headers and Kafka's rules for producers and transactions; it must not know connections,
replicas or coordinators.
"""

from oncelog.runtime.disk import FolderInUse, StorageFailure
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.config import LogConfig
from oncelog.storage.identity import FolderMismatch
from oncelog.storage.leader_epochs import EpochEnd
from oncelog.storage.log import AppendResult, OffsetOutOfRange, PartitionLog
from oncelog.storage.log_manager import LogManager
from oncelog.storage.lookup import TimestampOffset
from oncelog.storage.producer_state import CachedBatch, Origin, ProducerEntry
from oncelog.storage.results import CorruptBatch
from oncelog.storage.verifications import NO_SEQUENCE, Verification

__all__ = [
    "NO_SEQUENCE",
    "AbortedTxn",
    "AppendResult",
    "CachedBatch",
    "CorruptBatch",
    "EpochEnd",
    "FolderInUse",
    "FolderMismatch",
    "LogConfig",
    "LogManager",
    "OffsetOutOfRange",
    "Origin",
    "PartitionLog",
    "ProducerEntry",
    "StorageFailure",
    "TimestampOffset",
    "Verification",
]

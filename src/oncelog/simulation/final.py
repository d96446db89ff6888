"""Defines the final state of a run: the logs, the offsets and the transactions.

`oncelog.simulation.reading` reads it over the wire after all clients have settled. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Value

__all__ = [
    "FinalPartition",
    "FinalState",
    "KeyedRecord",
    "LoggedBatch",
    "LoggedRecord",
    "TransactionEntry",
]


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """One record of a log; `value` is None for one that no client of the run wrote."""

    offset: int
    value: Value | None


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch of the log. `marker`: "" for data, else "commit" or "abort"."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    transactional: bool
    marker: str
    records: tuple[LoggedRecord, ...]


@dataclass(frozen=True, slots=True)
class FinalPartition:
    """One partition: everything below the high watermark, and what read_committed shows.

    `batches` are as they were written: batches that compaction removed are included, and
    `compacted` has their records' offsets.
    """

    topic_partition: TopicPartition
    topic_id: str
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    batches: tuple[LoggedBatch, ...]
    committed: tuple[LoggedRecord, ...]
    compacted: frozenset[int] = frozenset()
    """Offsets of records that compaction removed."""
    removable: frozenset[int] = frozenset()
    """Those that it may have removed on other replicas: each compacts for itself."""


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A record of a log that was compacted, as it was written.

    `outcome` is "committed", "aborted", or "" while its transaction has no end marker.
    """

    offset: int
    key: bytes | None
    is_tombstone: bool
    outcome: str
    is_removed: bool


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """One record of `__transaction_state`; `state` "" is a tombstone."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FinalState:
    """The final state of the whole cluster."""

    partitions: Mapping[TopicPartition, FinalPartition]
    transactions: tuple[TransactionEntry, ...] = ()
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """group -> committed offsets, fetched with require_stable."""
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions that could not be read to their end, with the reason."""
    compacted: Mapping[TopicPartition, tuple[KeyedRecord, ...]] = field(default_factory=dict)
    """All records of the partitions that were compacted, internal ones too."""

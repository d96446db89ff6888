"""The settings of one partition's log, with Kafka's names and defaults (D10)."""

from dataclasses import dataclass

from oncelog.core.limits import INT32_MAX

__all__ = ["LogConfig"]

_INT64_MAX = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic settings as the log needs them.

    A topic's key `segment.bytes` is `segment_bytes` here.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    """The most by which a segment rolls before `segment_ms`, so that logs do not roll together."""
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    flush_messages: int = _INT64_MAX
    """Records after which an append waits for an fsync.

    1 makes each acknowledged record survive a loss of power.
    """
    flush_ms: int = _INT64_MAX
    retention_ms: int = 7 * _DAY_MS
    """Age of a segment's newest record at which the segment is deleted; -1: no limit."""
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60 * 1000
    """Time between a deletion and the removal of its files."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    """Share of uncleaned bytes at which a cleaning begins."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    """Age of an uncleaned record at which a cleaning begins, whatever the ratio."""
    delete_retention_ms: int = _DAY_MS
    """How long a tombstone is retained after the first cleaning that read it."""
    message_timestamp_type: str = "CreateTime"
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    message_timestamp_before_max_ms: int = _INT64_MAX
    compression_type: str = "producer"
    compression_level: int | None = None
    """The level of that codec where the broker compresses; None for codecs without levels."""
    producer_id_expiration_ms: int = _DAY_MS

    @property
    def is_compacted(self) -> bool:
        """Whether `cleanup.policy` contains compact: the newest record of each key is retained."""
        return "compact" in self.cleanup_policy

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= INT32_MAX:
            raise ValueError(f"segment.bytes={self.segment_bytes} is not in 1..{INT32_MAX}")

"""From a topic's settings to those of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oncelog.core.config import BrokerConfig
from oncelog.storage.config import LogConfig

__all__ = ["log_config"]


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic's logs: its own overrides, else what this broker was started with."""
    value = partial(config.topic_value, overrides)
    levels = {
        "gzip": value("compression.gzip.level"),
        "lz4": value("compression.lz4.level"),
        "zstd": value("compression.zstd.level"),
    }
    policy = frozenset(value("cleanup.policy"))
    segment_ms = value("segment.ms")
    if "compact" in policy:
        # The active segment is never compacted, so it must not hold records for longer.
        segment_ms = min(segment_ms, value("max.compaction.lag.ms"))
    return LogConfig(
        segment_bytes=value("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=value("segment.jitter.ms"),
        segment_index_bytes=value("segment.index.bytes"),
        index_interval_bytes=value("index.interval.bytes"),
        max_message_bytes=value("max.message.bytes"),
        flush_messages=value("flush.messages"),
        flush_ms=value("flush.ms"),
        retention_ms=value("retention.ms"),
        retention_bytes=value("retention.bytes"),
        file_delete_delay_ms=value("file.delete.delay.ms"),
        cleanup_policy=policy,
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=value("max.compaction.lag.ms"),
        delete_retention_ms=value("delete.retention.ms"),
        message_timestamp_type=value("message.timestamp.type"),
        message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        compression_type=value("compression.type"),
        compression_level=levels.get(value("compression.type")),
        producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
    )

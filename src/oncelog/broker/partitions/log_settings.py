"""Derives the configs of a topic's logs from the topic's configs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oncelog.core.config import BrokerConfig
from oncelog.storage.config import LogConfig

__all__ = ["log_config"]


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the configs of a topic's logs: its own overrides, else this broker's."""
    number = partial(config.topic_int, overrides)
    text = partial(config.topic_str, overrides)
    listed = partial(config.topic_list, overrides)
    ratio = partial(config.topic_float, overrides)
    levels = {
        "gzip": number("compression.gzip.level"),
        "lz4": number("compression.lz4.level"),
        "zstd": number("compression.zstd.level"),
    }
    policy = frozenset(listed("cleanup.policy"))
    segment_ms = number("segment.ms")
    if "compact" in policy:
        # The active segment is never compacted, so it must roll within that time.
        segment_ms = min(segment_ms, number("max.compaction.lag.ms"))
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        max_message_bytes=number("max.message.bytes"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        cleanup_policy=policy,
        min_cleanable_dirty_ratio=ratio("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        message_timestamp_type=text("message.timestamp.type"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        compression_type=text("compression.type"),
        compression_level=levels.get(text("compression.type")),
        producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
    )

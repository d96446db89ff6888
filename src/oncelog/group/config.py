"""Defines the configs of the group coordinator, under Kafka's names (D10), as plain values."""

from dataclasses import dataclass, field

from oncelog.core.limits import COORDINATOR_APPEND_BYTES_MAX
from oncelog.group.consumer.settings import ConsumerGroupConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The configs of the group coordinator.

    Each field names its Kafka key; the defaults are Kafka's.
    """

    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`"""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`"""
    max_size: int = 2**31 - 1
    """`group.max.size`: members of one group."""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long a new group waits for more members."""
    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait in JoinGroup before it is removed (no key)."""
    offset_metadata_max_size: int = 4_096
    """`offset.metadata.max.bytes`"""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """`offsets.retention.minutes`"""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`"""
    append_bytes_max: int = COORDINATOR_APPEND_BYTES_MAX
    """The size of one append of tombstones; not above `max.message.bytes`."""
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    """`group.consumer.*`"""

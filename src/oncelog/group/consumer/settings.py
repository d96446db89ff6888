"""Defines the configs of consumer groups, under Kafka's names (D10), as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: the online migrations that are allowed."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a member of the new protocol turns a classic group into a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes classic when its last member of the new one leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The configs of consumer groups: each field is the Kafka key `group.consumer.` + name.

    The defaults are Kafka's. A group's own config (resource type GROUP) may override the three
    intervals.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def with_intervals(self, own_ms: Mapping[str, int]) -> "ConsumerGroupConfig":
        """Return the configs of a group that has these intervals of its own, by Kafka's keys."""
        return replace(
            self,
            session_timeout_ms=own_ms["consumer.session.timeout.ms"],
            heartbeat_interval_ms=own_ms["consumer.heartbeat.interval.ms"],
            assignment_interval_ms=own_ms["consumer.assignment.interval.ms"],
        )

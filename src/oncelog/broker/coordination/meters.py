"""Counts of the coordinators and of verifications, as plain integers that the metrics read.

They belong to the broker: a shard that moves away, or loads again, takes no count along.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.group.meter import GroupMeter

__all__ = ["CoordinatorMeters", "VerificationMeter"]

TIME_BUCKETS_COUNT = 64
"""A bucket per power of two of milliseconds."""


class VerificationMeter:
    """The times that verifications took (KIP-890, `AddPartitionsToTxnManager`)."""

    __slots__ = ("buckets", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        self.buckets = [0] * TIME_BUCKETS_COUNT
        """The count of verifications by duration: the bit length of its milliseconds."""

    def took(self, elapsed_ms: int) -> None:
        """Count one request to the coordinator, from the question to its answer."""
        self.time_ms += elapsed_ms
        self.buckets[elapsed_ms.bit_length()] += 1


@dataclass(slots=True)
class CoordinatorMeters:
    """What one broker counts for its coordinators, since its start."""

    groups: GroupMeter = field(default_factory=GroupMeter)
    verifications: VerificationMeter = field(default_factory=VerificationMeter)

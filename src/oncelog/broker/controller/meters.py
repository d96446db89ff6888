"""Counts of the controller's elections, as plain integers that the metrics read on request."""

from __future__ import annotations

__all__ = ["ElectionMeter"]

TIME_BUCKETS_COUNT = 64
"""A bucket per power of two of milliseconds."""


class ElectionMeter:
    """The elections that this broker decided on as the controller, since its start."""

    __slots__ = ("buckets", "time_ms", "unclean_count")

    def __init__(self) -> None:
        self.time_ms = 0
        self.buckets = [0] * TIME_BUCKETS_COUNT
        """The count of events with elections, by the bit length of the milliseconds they took."""
        self.unclean_count = 0

    def elected(self, unclean_count: int, elapsed_ms: int) -> None:
        """Count one event by which partitions got other leaders, and how long it took."""
        self.unclean_count += unclean_count
        self.time_ms += elapsed_ms
        self.buckets[elapsed_ms.bit_length()] += 1

"""Counts per topic and of ISRs, as plain integers that the metrics read on request.

A deleted topic takes its counts along; the totals include them. It does not know who reads them.
"""

from __future__ import annotations

__all__ = ["IsrMeter", "TopicMeter", "TopicMeters"]


class TopicMeter:
    """One topic's counts on this broker, over all its partitions."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "failed_verifications",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.failed_produces = 0
        self.failed_verifications = 0
        self.fetches = 0
        self.failed_fetches = 0

    def add(self, other: TopicMeter) -> None:
        """Add the counts of another one."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.produces += other.produces
        self.failed_produces += other.failed_produces
        self.failed_verifications += other.failed_verifications
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches


class IsrMeter:
    """Changes of the ISRs of partitions that this broker led, by what the controller answered."""

    __slots__ = ("expands", "failures", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failures = 0
        """Changes that were refused, or not answered: these are asked for again."""


class TopicMeters:
    """The meters of the topics that have partitions here."""

    def __init__(self) -> None:
        self.by_topic: dict[str | None, TopicMeter] = {}
        """Read only. None, an unknown topic, has no meter."""
        self._gone = TopicMeter()

    def of(self, topic: str) -> TopicMeter:
        """Return the meter of a topic, created on first use."""
        return self.by_topic.setdefault(topic, TopicMeter())

    def drop(self, topic: str) -> None:
        """Remove the meter of a deleted topic."""
        meter = self.by_topic.pop(topic, None)
        if meter is not None:
            self._gone.add(meter)

    def total(self) -> TopicMeter:
        """The total of all topics, including deleted ones."""
        total = TopicMeter()
        for meter in (self._gone, *self.by_topic.values()):
            total.add(meter)
        return total

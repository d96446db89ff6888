"""Decides from which replica a consumer with a rack reads each partition (KIP-392).

The leader names a replica in the consumer's rack, in place of records. The consumer reads from it
until it errs or is away, and asks the leader again after a while: another may be nearer by then.
"""

from collections.abc import Container

from oncelog.core.ids import TopicPartition

__all__ = ["NearestReplicas"]


class NearestReplicas:
    """The replicas that leaders have named, each for `max_age_ms`."""

    def __init__(self, max_age_ms: float) -> None:
        self._max_age_ms = max_age_ms
        self._named: dict[TopicPartition, tuple[int, float]] = {}

    def named(self, topic_partition: TopicPartition, broker_id: int, now_ms: float) -> None:
        """Read from this broker from now on."""
        self._named[topic_partition] = broker_id, now_ms + self._max_age_ms

    def source(
        self, topic_partition: TopicPartition, leader: int, live: Container[int], now_ms: float
    ) -> int:
        """Return the broker to read from; the leader where none was named that is there."""
        broker_id, until_ms = self._named.get(topic_partition, (leader, now_ms))
        if now_ms < until_ms and broker_id in live:
            return broker_id
        self._named.pop(topic_partition, None)
        return leader

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Read from the leader again. Returns whether it was read from another replica."""
        return self._named.pop(topic_partition, None) is not None

"""Decides how long a topic or partition that no broker knows is asked for.

Pure: the time is an argument. Brokers learn of a new topic one after the other, so an answer that
does not know it is no error at first.
"""

from oncelog.client.errors import FatalError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["UnknownTopics", "does_not_exist"]


class UnknownTopics:
    """The partitions that were asked for and are not known, each since its first such answer.

    An entry that was not asked for again within `patience_ms` begins again.
    """

    def __init__(self, patience_ms: float) -> None:
        self.patience_ms = patience_ms
        self._since: dict[TopicPartition, tuple[float, float]] = {}

    def is_overdue(self, topic_partition: TopicPartition, now_ms: float) -> bool:
        """Note an answer without the partition; True ends the wait for it, and forgets it."""
        first_ms, last_ms = self._since.pop(topic_partition, (now_ms, now_ms))
        if now_ms - last_ms > self.patience_ms:
            first_ms = now_ms
        if now_ms - first_ms >= self.patience_ms:
            return True
        self._since[topic_partition] = first_ms, now_ms
        return False

    def found(self, topic_partition: TopicPartition) -> None:
        """Forget a partition that is known by now."""
        if self._since:
            self._since.pop(topic_partition, None)


def does_not_exist(topic_partition: TopicPartition, count: int | None) -> FatalError:
    """The error for a partition of a topic that has `count` (None: of a topic that is unknown)."""
    topic, partition = topic_partition
    text = f"topic {topic} does not exist"
    if count is not None:
        has = "only partition 0" if count == 1 else f"the partitions 0 to {count - 1}"
        text = f"topic {topic} has {has}, not {partition}"
    return FatalError(ErrorCode.unknown_topic_or_partition, text)

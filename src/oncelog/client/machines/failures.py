"""Decides what a consumer says of partitions that cannot be read, and when it stops retrying.

Pure: the time is an argument. A retry is silent at first, because leaders move.
"""

from dataclasses import dataclass
from typing import Final

from oncelog.client.errors import ClientError, ConnectionLostError, RetriableError
from oncelog.core.ids import TopicPartition

__all__ = ["ReadFailures"]

TOLD_AFTER_MS: Final = 5_000
"""A partition that has failed for so long is named in a warning, once."""


@dataclass(slots=True)
class _Failing:
    since_ms: float
    error: ClientError
    is_told: bool = False


class ReadFailures:
    """The partitions whose reads fail, each since its last success."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._failing: dict[TopicPartition, _Failing] = {}

    def succeeded(self, topic_partition: TopicPartition) -> None:
        """Forget what was noted of a partition."""
        self._failing.pop(topic_partition, None)

    def failed(self, topic_partition: TopicPartition, error: ClientError, now_ms: float) -> bool:
        """Note a failure; return whether the user should be told of it."""
        held = self._failing.setdefault(topic_partition, _Failing(now_ms, error))
        held.error = error
        is_retried = isinstance(error, RetriableError) and not held.is_told
        is_due = is_retried and now_ms - held.since_ms >= TOLD_AFTER_MS
        held.is_told |= is_due
        return is_due

    def overdue(self, now_ms: float) -> RetriableError | None:
        """Return the error of a partition whose retries ran out of time; its time begins again.

        Brokers that do not answer are waited for without an end, as by Kafka's consumer.
        """
        for topic_partition, held in self._failing.items():
            error, is_over = held.error, now_ms - held.since_ms >= self._timeout_ms
            is_silence = isinstance(error, ConnectionLostError)
            if is_over and isinstance(error, RetriableError) and not is_silence:
                del self._failing[topic_partition]
                return error
        return None

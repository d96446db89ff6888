"""Finds coordinators that were replaced, do not know it, and answer by their state alone.

Once a coordinator of a later leader epoch serves, what an earlier one decides without an append may
be over: such a reply has to be refused, for the later leader confirms nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator.shard import Decision, EffectT, EventT, Reply, ReplyT
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["CoordinatorEpochs", "ReplacedCoordinators"]

CoordinatorEpochs: TypeAlias = dict[tuple[TopicPartition, str], int]
"""Partition and topic id -> the last leader epoch in which a coordinator served, on any broker."""


class ReplacedCoordinators:
    """Looks at the coordinators of one broker; all of a world have the same `epochs`.

    `tell` gets the partition, the epoch of the coordinator, a later one, and what it was asked.
    """

    def __init__(
        self, epochs: CoordinatorEpochs, tell: Callable[[TopicPartition, int, int, str], None]
    ) -> None:
        self._epochs = epochs
        self._tell = tell

    def serves(self, partition: Partition, epoch: int) -> None:
        """A coordinator has loaded its partition."""
        key = partition.topic_partition, str(partition.state.topic_id)
        self._epochs[key] = max(epoch, self._epochs.get(key, -1))

    def heard(
        self,
        partition: Partition,
        epoch: int,
        event: EventT,
        decision: Decision[EventT, ReplyT, EffectT],
    ) -> Decision[EventT, ReplyT, EffectT]:
        """Return the decision; `tell` is called if a reply of it is sent that must not be."""
        label = partition.topic_partition
        latest = self._epochs.get((label, str(partition.state.topic_id)), -1)
        if latest <= epoch or decision.records or decision.needs_producer_id:
            return decision
        what = type(event).__name__
        replies = tuple(
            Reply(_Heard(token, lambda: self._tell(label, epoch, latest, what)), value)
            for token, value in decision.replies
        )
        return decision._replace(replies=replies)


class _Heard:
    """A promise of an answer; `tell` is called when the answer is sent, not when it is refused."""

    __slots__ = ("_promise", "_tell")

    def __init__(self, promise: Any, tell: Callable[[], None]) -> None:
        self._promise = promise
        self._tell = tell

    def complete(self, value: object) -> None:
        """See `Pending`."""
        if not self._promise.dropped:
            self._tell()
        self._promise.complete(value)

    def fail(self, error: ErrorCode) -> None:
        """See `Pending`."""
        self._promise.fail(error)

"""Writes the markers that coordinators on other brokers have sent here (WriteTxnMarkers).

Such a request can come late: its sender has taken the connection for lost, has sent the markers
again, and has ended the transaction by the answer. Under TV1 the next transaction may have the same
producer epoch, and a late marker would end it (INV-4). So a request counts for one life of its
sender, for a connection that the sender has not given up as far as this broker knows, and for the
leader epoch that it names. All that it refuses is sent again.

A marker that waits for its commit when it is asked for again is not appended again: while replicas
are away for minutes, one marker in the log is enough.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oncelog.broker.coordination.markers import LocalLeaders, Settled
from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

if TYPE_CHECKING:
    from oncelog.transaction.events import SendMarkers

__all__ = ["MarkerSender", "ReceivedMarkers"]

_MarkerKey: TypeAlias = tuple[TopicPartition, int, int, int, bool]
"""Partition, producer id and epoch, coordinator epoch, and whether it commits."""


class MarkerSender(NamedTuple):
    """A life of a broker, and how many of its connections to this one have failed in it."""

    broker_id: int
    broker_epoch: int
    connection: int


class ReceivedMarkers:
    """Writes to the partitions that this broker leads."""

    def __init__(self, leaders: LocalLeaders) -> None:
        self._leaders = leaders
        self._newest: dict[int, MarkerSender] = {}
        """By broker id the newest connection of each."""
        self._waiting: dict[_MarkerKey, Settled] = {}
        """Those that are appended and not committed, with who asked last."""

    def admits(self, sender: MarkerSender, image: MetadataImage) -> bool:
        """Whether what it sends counts.

        A newer registration than this broker knows of is soon known.
        """
        broker = image.brokers.get(sender.broker_id)
        if broker is None or broker.broker_epoch != sender.broker_epoch:
            return False
        newest = self._newest.get(sender.broker_id)
        if newest is not None and newest > sender:
            return False
        self._newest[sender.broker_id] = sender
        return True

    def write(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        markers: SendMarkers,
        settled: Settled,
    ) -> None:
        """Append one partition's marker as the leader of that epoch; see `PartitionLeaders`."""
        partition = self._leaders.partitions.get(*topic_partition)
        if partition is None or partition.state.leader_epoch != leader_epoch:
            settled(topic_partition, ErrorCode.not_leader_or_follower)
            return
        key = (
            topic_partition,
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.commit,
        )
        is_appended = key in self._waiting
        self._waiting[key] = settled
        if not is_appended:
            self._leaders.write(topic_partition, markers, partial(self._written, key))

    def _written(
        self,
        key: _MarkerKey,
        topic_partition: TopicPartition,
        error: ErrorCode,
        /,
        has_ended: bool = False,
    ) -> None:
        self._waiting.pop(key)(topic_partition, error, has_ended)

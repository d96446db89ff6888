"""A follower's Fetch: it reads to the end of the leader's log, and says how far its own log goes.

Who may say that it is a follower: the broker that is registered with the broker epoch of its fetch
(version 15 on), and has a replica of the partition. Others get an error for each partition, and no
broker stops. An older version carries no broker epoch, and is read as a consumer's.

What it says is recorded before it is answered: the high watermark moves, and produces that waited
complete. Where its log diverges from the leader's it is told so, and nothing is recorded (KIP-595).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.fetch_reading import Reading
from oncelog.broker.net.request import Request
from oncelog.broker.partitions.fetch_sessions import FetchContext
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchPartition, FetchRequest
from oncelog.replication.leader import LeaderState

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["FollowerReading"]


class FollowerReading(Reading):
    """One fetch request of a follower and the result of its last attempt to read."""

    __slots__ = ("_fetched_ms", "_unregistered")

    is_follower = True

    def __init__(
        self,
        context: Context,
        request: Request[memoryview],
        fetch: FetchRequest,
        session: FetchContext | None = None,
    ) -> None:
        super().__init__(context, request, fetch, session)
        self._fetched_ms = context.clock.monotonic_ms()
        self._unregistered = _unregistered(context, fetch)

    def _refusal(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        """Return why it is no follower; without the leader's epoch it could be another leader's."""
        if self._unregistered is not ErrorCode.none:
            return self._unregistered
        replica_id = self._fetch.replica_id
        is_replica = replica_id in partition.state.replicas and replica_id != partition.state.leader
        if not is_replica or wanted.current_leader_epoch < 0:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none

    def _record(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        fetch = self._fetch
        if self._reply is None:  # It says so once, when it comes.
            error = partition.follower_fetched(
                fetch.replica_id,
                wanted.fetch_offset,
                self._fetched_ms,
                broker_epoch=fetch.replica_epoch,
                log_start_offset=wanted.log_start_offset,
            )
            if error is not ErrorCode.none:
                return error
        if self._context.partitions.selects_by_rack:
            self._tell_high_watermark(partition)
        return ErrorCode.none

    def _tell_high_watermark(self, partition: Partition) -> None:
        """End the wait for a high watermark that it was not told yet: consumers read up to it."""
        state = partition.state
        if isinstance(state, LeaderState):
            follower = state.followers[self._fetch.replica_id]
            if follower.told_high_watermark < state.high_watermark:
                follower.told_high_watermark = state.high_watermark
                self._ends_wait = True


def _unregistered(context: Context, fetch: FetchRequest) -> ErrorCode:
    """Return the error where the broker is not registered with this epoch.

    A newer registration than this broker knows of is soon known.
    """
    broker = context.image.brokers.get(fetch.replica_id)
    if broker is None or broker.broker_epoch < fetch.replica_epoch:
        return ErrorCode.unknown_leader_epoch
    if broker.broker_epoch > fetch.replica_epoch:
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none

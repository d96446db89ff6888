"""A follower's Fetch: it reads to the end of the leader's log, and says how far its own log goes.

Who may say that it is a follower: the broker that is registered with the broker epoch of its fetch
(version 15 on), and has a replica of the partition. Others get an error for each partition, and no
broker stops. An older version carries no broker epoch, and is read as a consumer's.

What it says is recorded before it is answered: the high watermark moves, and produces that waited
complete. Where its log diverges from the leader's it is told so, and nothing is recorded (KIP-595).

A follower fetches all that it follows in one session, of which most has nothing new most of the
time. A partition where it has everything is *quiet* in its session until anything changes there;
then it costs a comparison instead of a read, and still counts as fetched.

Where a leader waits to be confirmed (`oncelog.replication.leader`), a follower that counts is
answered at once, and its next request of the session confirms what the answer carried. A fetch that
was sent before that answer came proves nothing, however late it is read: the follower may lead by
then. So a request outside of the session, of another connection, confirms nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID

from oncelog.broker.apis.fetch_reading import Reading, names_of
from oncelog.broker.net.request import Buffers, Request
from oncelog.broker.partitions.fetch_sessions import FetchContext, Key, SessionPartition
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
)
from oncelog.replication.leader import LeaderState
from oncelog.replication.progress import FollowerProgress

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["FollowerReading"]


class QuietPartition(NamedTuple):
    """A partition of which a follower in the ISR has been told all, as it was then."""

    partition: Partition
    state: LeaderState
    follower: FollowerProgress
    log_end_offset: int
    high_watermark: int
    log_start_offset: int

    def end(self) -> None:
        """Nothing is held: each request compares."""


class FollowerReading(Reading):
    """One fetch request of a follower and the result of its last attempt to read."""

    __slots__ = ("_fetched_ms", "_held", "_is_new", "_own", "_quiet", "_unregistered")

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
        self._is_new = True
        """Whether what it says is to be recorded: it says so once."""
        self._own = None if session is None else session.session
        self._held = {} if self._own is None else self._own.partitions
        """The partitions of the session; none in the request that opens it."""
        self._quiet = [
            (key, each.asked, cast("QuietPartition", each.quiet))
            for key, each in self._held.items()
            if each.quiet is not None
        ]
        """The partitions of the session that are passed over as long as nothing happens there."""

    @property
    def waits_for_nothing(self) -> bool:
        """Whether nothing can wake it."""
        return not self._quiet and super().waits_for_nothing

    def read(self) -> None:
        """Read all that is not quiet, or is no more.

        What those append that waited for it is read too: no wake-up comes for it any more.
        """
        if self._quiet:
            self._pass_over()
        purgatory = self._context.partitions.purgatory
        before = purgatory.changes_count
        super().read()
        self._is_new = False
        if purgatory.changes_count > before and not self.is_enough:
            self.read()

    def _pass_over(self) -> None:
        """Pass over what is still quiet; it counts as fetched when the request comes."""
        now_ms, life = self._fetched_ms, self._fetch.replica_epoch
        is_registered = self._unregistered is ErrorCode.none
        still: list[tuple[Key, FetchPartition, QuietPartition]] = []
        stirred: list[FetchTopic] = []
        for one in self._quiet:
            key, asked, (partition, state, follower, end, high_watermark, start) = one
            if (
                partition.state is state
                and partition.log.log_end_offset == end
                and state.high_watermark == high_watermark
                and partition.log.log_start_offset == start
                and follower.broker_epoch == life
                and follower.confirmed_round == state.round_begun
                and is_registered
                and not partition.start_waiters.waiting
            ):
                still.append(one)
                if self._is_new:
                    follower.seen_at_end(now_ms)
            else:
                topic = key[0]
                assert isinstance(topic, UUID)
                assert self._own is not None
                self._own.stir(key)
                stirred.append(FetchTopic(None, topic, [asked]))
        self._quiet = still
        if stirred:
            self._resolved += names_of(self._context, stirred)
            self._fetch = self._fetch._replace(topics=[*self._fetch.topics, *stirred])

    def _parked_at(self) -> dict[TopicPartition, Partition]:
        partitions = super()._parked_at()
        for _, _, quiet in self._quiet:
            partitions[quiet.partition.topic_partition] = quiet.partition
        return partitions

    def encode(self) -> Buffers:
        """Return the reply's buffers, and note which partitions are quiet from now on."""
        buffers = super().encode()
        session, own = self._session, self._own
        if session is None or own is None or not session.is_newest:
            return buffers
        for topic, answered, name in zip(
            self._fetch.topics, self._topics, self._resolved, strict=True
        ):
            for wanted, answer in zip(topic.partitions, answered.partitions, strict=True):
                key = (topic.topic_id, wanted.partition)
                one = self._held.get(key)
                if one is not None and name is not None:
                    note = self._note_answered(one, name, wanted, answer)
                    if note is not None:
                        own.quieten(key, note)
        return buffers

    def _note_answered(
        self,
        held: SessionPartition,
        name: str,
        wanted: FetchPartition,
        answer: FetchPartitionResponse,
    ) -> QuietPartition | None:
        """Note the round that an answer carries.

        Return the partition as it was answered, if the follower has all of it and counts.
        """
        partition = self._context.partitions.get(name, wanted.partition)
        if partition is None or answer.error or answer.diverging_epoch is not None:
            return None
        state, end = partition.state, partition.log.log_end_offset
        if not isinstance(state, LeaderState) or wanted.current_leader_epoch != state.leader_epoch:
            return None
        if state.round_begun:
            held.carried_round = state.carry_round()
        if self._fetch.replica_id not in state.isr:
            return None
        follower = state.followers[self._fetch.replica_id]
        if wanted.fetch_offset != end or follower.has_lost_records:
            return None
        if follower.confirmed_round != state.round_begun:
            return None
        told = answer.high_watermark, answer.log_start_offset
        return QuietPartition(partition, state, follower, end, *told)

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
        fetch, state = self._fetch, partition.state
        if self._is_new:
            held = self._held.get((state.topic_id, wanted.partition))
            error = partition.follower_fetched(
                fetch.replica_id,
                wanted.fetch_offset,
                self._fetched_ms,
                broker_epoch=fetch.replica_epoch,
                log_start_offset=wanted.log_start_offset,
                confirmed_round=0 if held is None else held.carried_round,
            )
            if error is not ErrorCode.none:
                return error
        if state.round_begun and isinstance(state, LeaderState) and state.awaits(fetch.replica_id):
            self._ends_wait = True
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

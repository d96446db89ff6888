"""Plays one member of a group under KIP-848.

The member joins with epoch 0 and its own member id, which it keeps when it rejoins. After a
response with an assignment it first commits and revokes the partitions that are not in it, then
adds the new ones, and at once sends a heartbeat with its owned partitions. Any other heartbeat has
only the fields that have changed, and one after a lost response has all of them. A fenced member
has lost its partitions and rejoins; one whose instance id was taken ends.

Now and then a member takes long to revoke partitions. Its heartbeats continue meanwhile.

Sources: `ConsumerMembershipManager`, `AbstractHeartbeatRequestManager` (Java).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import offset_fetch
from oncelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
)
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    Assigned,
    GroupDescribed,
    HeartbeatAnswered,
    HeartbeatAsked,
)
from oncelog.simulation.peers.group import GroupClient
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["PeerConsumerMember"]

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_STATIC_LEAVE_EPOCH: Final = -2
_LOOK_S: Final = 0.5
"""The pause between two checks of a member that waits for its group."""

_Place: TypeAlias = tuple[UUID, int]
"""A partition as this protocol names it."""


class PeerConsumerMember(GroupClient):
    """See the module's docstring. `is_fenced`: the process has to end.

    With a `pattern` the member subscribes with that expression, else with the names of its topics.
    """

    def __init__(
        self,
        context: ClientContext,
        wire: PeerWire,
        group_id: str,
        topics: Sequence[str],
        *,
        assignor: str | None = None,
        pattern: str = "",
        instance_id: str | None = None,
    ) -> None:
        super().__init__(context, wire, group_id, topics, instance_id)
        self.member_id = f"{context.name}-{context.rng.getrandbits(32):08x}"
        self._assignor = assignor
        self._pattern = pattern
        self._interval_s = 0.3
        self._owned: dict[_Place, TopicPartition] = {}
        self._told: frozenset[_Place] = frozenset()
        """The last assignment that it received."""
        self._unknown: frozenset[_Place] = frozenset()
        """Its partitions whose topics have no name: they are new or were deleted."""
        self._said: tuple[TopicPartition, ...] | None = None
        """The owned partitions in the last heartbeat; None: the coordinator may not know them."""
        self._is_fresh = False
        """Whether it has received an assignment that it has not adopted yet."""
        self._must_say = False
        """Whether the next heartbeat has to contain the owned partitions."""
        self._looked_s = 0.0
        self._is_whole = False

    @property
    def is_cooperative(self) -> bool:
        """See `GroupClient`."""
        return True

    @property
    def must_join(self) -> bool:
        """See `GroupClient`. Also True while it has not adopted an assignment."""
        if self.generation < 0 or self._is_fresh:
            return True
        return self._told - self._unknown != self._owned.keys()

    # --- joining ----------------------------------------------------------------------

    async def join(self) -> bool:
        """Join, or adopt the assignment. It waits before it returns False."""
        is_done = await (self._enroll() if self.generation < 0 else self._reconcile())
        if is_done:
            self._attempt = 0
        else:
            await self.context.back_off(self._attempt)
            self._attempt += 1
        return is_done and not self.must_join

    async def _enroll(self) -> bool:
        self._owned.clear()
        self._told, self._said = frozenset(), None
        self._is_fresh = False
        return await self._heartbeat(_JOIN_EPOCH)

    async def _reconcile(self) -> bool:
        if self._owned.keys() - self._told and self.context.chance(0.15):
            await self._dawdle()
        self._is_fresh, self._must_say = False, True
        before = self._owned.keys() | ()
        for place in [place for place in self._owned if place not in self._told]:
            self._revoke((self._owned.pop(place),))
        names = await self._names(self._told - self._owned.keys())
        if self.generation < 0:
            return False
        self._unknown = self._told - self._owned.keys() - names.keys()
        self._owned.update(names)
        if before != self._owned.keys():
            self.assigned = tuple(sorted(self._owned.values()))
            who = self.group_id, self.member_id
            self.context.record(Assigned, *who, self.generation, self.assigned)
        return await self._heartbeat(self.generation)

    async def _dawdle(self) -> None:
        """Take a long time to revoke partitions, sometimes longer than the rebalance timeout."""
        until_s = self.context.elapsed_s() + self.context.rng.uniform(0, 1.3) * (
            self.rebalance_ms / 1000
        )
        while self.generation >= 0 and self.context.elapsed_s() < until_s:
            await self.context.clock.sleep(100)
            await self.beat()

    async def _names(self, places: Collection[_Place]) -> dict[_Place, TopicPartition]:
        """Return the partitions whose topic names are known."""
        if not self._ids().keys() >= {topic_id for topic_id, _ in places}:
            await self.wire.refresh(self.topics)
        return self._known(places)

    def _known(self, places: Collection[_Place]) -> dict[_Place, TopicPartition]:
        ids = self._ids()
        return {
            (topic_id, number): TopicPartition(ids[topic_id], number)
            for topic_id, number in sorted(places)
            if topic_id in ids
        }

    def _ids(self) -> dict[UUID, str]:
        views = self.wire.topics.items()
        return {view.topic_id: name for name, view in views if view.topic_id}

    # --- staying ----------------------------------------------------------------------

    async def beat(self, *, now: bool = False) -> None:
        """See `GroupClient`."""
        is_due = self.context.elapsed_s() - self._beat_s >= self._interval_s
        if self.generation >= 0 and (now or is_due):
            self._unknown = frozenset()
            await self._heartbeat(self.generation)

    async def _heartbeat(self, epoch: int) -> bool:
        """Send one heartbeat; return True if this member is in the group."""
        self._beat_s = self.context.elapsed_s()
        owned = tuple(sorted(self._owned.values()))
        request = self._request(epoch)
        if epoch == _JOIN_EPOCH or self._said is None:
            request = self._with_everything(request)
        elif owned != self._said or self._must_say:
            request = replace(request, topic_partitions=self._owned_by_topic())
        is_said = request.topic_partitions is not None
        answer = await self._say(request, owned if is_said else None)
        if answer is None:
            self._said = None
            return False
        if answer.error_code is not ErrorCode.none:
            self._refused(ApiKey.CONSUMER_GROUP_HEARTBEAT, answer.error_code)
            return False
        if is_said:
            self._said, self._must_say = owned, False
        self._interval_s = int(answer.heartbeat_interval_ms) / 1000
        self._enter(int(answer.member_epoch))
        told = _told(answer)
        if told is not None:
            self._told, self._is_fresh = told, True
        return True

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )

    def _with_everything(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatRequest:
        return replace(
            request,
            rebalance_timeout_ms=self.rebalance_ms,
            subscribed_topic_names=() if self._pattern else self.topics,
            subscribed_topic_regex=self._pattern or None,
            server_assignor=self._assignor,
            topic_partitions=self._owned_by_topic(),
        )

    def _owned_by_topic(self) -> tuple[ConsumerGroupHeartbeatTopicPartitions, ...]:
        topics: dict[UUID, list[int]] = {}
        for topic_id, number in sorted(self._owned):
            topics.setdefault(topic_id, []).append(number)
        return tuple(
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in topics.items()
        )

    async def _say(
        self, request: ConsumerGroupHeartbeatRequest, owned: tuple[TopicPartition, ...] | None
    ) -> ConsumerGroupHeartbeatResponse | None:
        who = self.group_id, self.member_id
        epoch, instance_id = request.member_epoch, self.instance_id or ""
        self.context.record(HeartbeatAsked, *who, epoch, owned, instance_id)
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, self.session_ms)
        if answer is not None:
            code = answer.error_code
            error = "" if code is ErrorCode.none else code.name
            told = _told(answer)
            names = None if told is None else tuple(self._known(told).values())
            self.context.record(HeartbeatAnswered, *who, int(answer.member_epoch), error, names)
        return answer

    def _offsets_group(
        self, wanted: Sequence[TopicPartition]
    ) -> offset_fetch.OffsetFetchRequestGroup:
        group = super()._offsets_group(wanted)
        return replace(group, member_id=self.member_id, member_epoch=self.generation)

    # --- looking ----------------------------------------------------------------------

    async def watch(self) -> bool:
        """See `GroupClient`. Once this client has to stop, also check the group's assignment."""
        if not await self.wire.refresh(self.topics):
            return False
        if not self.context.stopping():
            return True
        if self.context.elapsed_s() - self._looked_s >= _LOOK_S:
            self._looked_s = self.context.elapsed_s()
            self._is_whole = await self._look()
        return self._is_whole

    async def _look(self) -> bool:
        """Return whether ConsumerGroupDescribe shows a member for each partition."""
        request = ConsumerGroupDescribeRequest(group_ids=(self.group_id,))
        answer = await self._ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request, None)
        if answer is None:
            return False
        (group,) = answer.groups
        if group.error_code is not ErrorCode.none:
            return False
        members = _members_of(group)
        self.context.record(GroupDescribed, self.group_id, group.group_state, members)
        given = {at for partitions in members.values() for at in partitions}
        return group.group_state == "Stable" and given.issuperset(self.wire.partitions(self.topics))

    # --- going ------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave the group; a static member may come back."""
        self._revoke(self.assigned)
        if self.generation < 0:
            return
        epoch = _LEAVE_EPOCH if self.instance_id is None else _STATIC_LEAVE_EPOCH
        await self._say(self._request(epoch), None)
        self.generation = -1

    def _refused(self, api: ApiKey, code: ErrorCode) -> None:
        """See `GroupClient`."""
        super()._refused(api, code)
        if code is ErrorCode.stale_member_epoch:
            # The next heartbeat returns the epoch.
            self._beat_s -= self._interval_s
        elif code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
            self._revoke(self.assigned)
            self.generation = -1
        elif code in _FATAL:
            self._revoke(self.assigned)
            self.generation = -1
            self.is_fenced = True
        elif not (code.retriable or code is ErrorCode.unknown_server_error):
            self.context.stuck(f"{api.name} of {self.group_id} answered {code.name}")


_FATAL: Final = frozenset(
    {
        ErrorCode.fenced_instance_id,
        ErrorCode.unreleased_instance_id,
        # The group has become a classic one meanwhile, or cannot be upgraded.
        ErrorCode.group_id_not_found,
    }
)


def _told(answer: ConsumerGroupHeartbeatResponse) -> frozenset[_Place] | None:
    """Return the assignment in a response; None if it has not changed."""
    if answer.assignment is None:
        return None
    return frozenset(
        (topic.topic_id, int(number))
        for topic in answer.assignment.topic_partitions
        if topic.topic_id is not None
        for number in topic.partitions
    )


def _members_of(group: ConsumerGroupDescribeGroup) -> dict[str, tuple[TopicPartition, ...]]:
    return {
        member.member_id: tuple(
            TopicPartition(topic.topic_name, int(number))
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        )
        for member in group.members
    }

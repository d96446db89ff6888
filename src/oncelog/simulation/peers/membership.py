"""Plays one member of a group under the classic protocol: join, sync, heartbeat, leave.

Eager members revoke all partitions before they rejoin; cooperative ones keep theirs, revoke those
that SyncGroup no longer assigns, and rejoin so that these can move (KIP-429). A static member is
identified by its instance id and does not leave (KIP-345). A member that gets UNKNOWN_MEMBER_ID has
lost its partitions.

Sources: `AbstractCoordinator`, `ConsumerCoordinator` (Java).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.protocol.messages import heartbeat, join_group, leave_group, sync_group
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Assigned, AssignmentMade, ClassicHeartbeat, Joined
from oncelog.simulation.peers.assignors import assign
from oncelog.simulation.peers.group import GroupClient
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["Member"]

_JOIN_GRACE_MS: Final = 5_000
_SUBSCRIPTION_VERSION: Final = 2
_ASSIGNMENT_VERSION: Final = 1
_OLD_JOIN_MAX: Final = 2
_EXPELLED: Final = (
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    # Of a commit: the whole group is gone, with its records or its offsets.
    ErrorCode.group_id_not_found,
)


class Member(GroupClient):
    """See the module's docstring. `is_fenced`: another member has taken its instance id."""

    def __init__(
        self,
        context: ClientContext,
        wire: PeerWire,
        group_id: str,
        topics: Sequence[str],
        *,
        assignor: str = "range",
        instance_id: str | None = None,
    ) -> None:
        super().__init__(context, wire, group_id, topics, instance_id)
        self.assignor = assignor
        self._interval_s = float(context.get("heartbeat_interval_ms", self.session_ms / 4)) / 1000
        self._must_join = True
        self._counts: dict[str, int] | None = None
        """The partition counts for which the leader computed its assignment."""

    @property
    def is_cooperative(self) -> bool:
        """See `GroupClient`."""
        return self.assignor == "cooperative-sticky"

    @property
    def must_join(self) -> bool:
        """See `GroupClient`."""
        return self._must_join

    # --- joining ----------------------------------------------------------------------

    async def join(self) -> bool:
        """Try once to join the next generation; return True once the member has its assignment.

        It waits before it returns False; `must_join` is still True then.
        """
        if not self.is_cooperative:
            self._revoke(self.assigned)
        answer = await self._ask(ApiKey.JOIN_GROUP, self._join_request(), self._join_wait_ms())
        if answer is None:
            return await self._failed()
        code = answer.error_code
        if code is ErrorCode.member_id_required:
            self.member_id = str(answer.member_id)
            return False
        if code is not ErrorCode.none:
            self._refused(ApiKey.JOIN_GROUP, code)
            return await self._failed()
        self.member_id = str(answer.member_id)
        self._enter(int(answer.generation_id))
        is_leader = str(answer.leader) == self.member_id
        self._counts = None
        self.context.record(
            Joined,
            self.group_id,
            self.member_id,
            self.generation,
            answer.protocol_name or "",
            is_leader,
            self.instance_id or "",
        )
        assignment: dict[str, tuple[TopicPartition, ...]] = {}
        if is_leader and not answer.skip_assignment:
            found = await self._lead(answer)
            if found is None:
                return await self._failed()
            assignment = found
        return await self._sync(answer.protocol_name or self.assignor, assignment)

    def _join_wait_ms(self) -> float:
        return float(self.rebalance_ms + _JOIN_GRACE_MS)

    def _join_request(self) -> join_group.JoinGroupRequest:
        subscription = MemberSubscription(
            self.topics, self.assigned if self.is_cooperative else (), self.generation
        )
        join_max = self.wire.flavor.at_most.get(ApiKey.JOIN_GROUP)
        is_old = join_max is not None and join_max <= _OLD_JOIN_MAX
        version = 0 if is_old else _SUBSCRIPTION_VERSION
        return join_group.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=(
                join_group.JoinGroupRequestProtocol(
                    name=self.assignor,
                    metadata=encode_subscription(subscription, version),
                ),
            ),
            reason=None,
        )

    async def _lead(
        self, answer: join_group.JoinGroupResponse
    ) -> dict[str, tuple[TopicPartition, ...]] | None:
        """Return the assignment that the leader computes; None without metadata."""
        try:
            members = {
                str(member.member_id): decode_subscription(bytes(member.metadata))
                for member in answer.members
            }
        except ProtocolError as error:
            self.wire.broken(f"JoinGroup gave members that nobody sent: {error}")
            return None
        if self.member_id not in members:
            self.context.stuck(f"JoinGroup of {self.group_id} left its own leader out")
            return None
        topics = sorted({topic for member in members.values() for topic in member.topics})
        counts = await self._count(topics)
        if counts is None:
            return None
        self._counts = counts
        assignment = assign(str(answer.protocol_name), members, counts)
        self.context.record(AssignmentMade, self.group_id, self.generation, assignment)
        return assignment

    async def _count(self, topics: Sequence[str]) -> dict[str, int] | None:
        """Return the partition count of each topic; None if it is not known for certain."""
        if not await self.wire.refresh(topics):
            return None
        views = self.wire.topics
        return {topic: len(views[topic].leaders) for topic in topics if topic in views}

    async def watch(self) -> bool:
        """As leader, rejoin when partition counts have changed; False if they are unknown."""
        if self._counts is None:
            return await self.wire.refresh(self.topics)
        counts = await self._count(sorted({*self._counts, *self.topics}))
        if counts is not None and counts != self._counts:
            self._must_join = True
        return counts is not None

    async def _sync(
        self, protocol: str, assignment: Mapping[str, tuple[TopicPartition, ...]]
    ) -> bool:
        request = sync_group.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=tuple(
                sync_group.SyncGroupRequestAssignment(
                    member_id=member,
                    assignment=encode_assignment(partitions, version=_ASSIGNMENT_VERSION),
                )
                for member, partitions in assignment.items()
            ),
        )
        answer = await self._ask(ApiKey.SYNC_GROUP, request, self._join_wait_ms())
        if answer is None:
            return await self._failed()
        if answer.error_code is not ErrorCode.none:
            self._refused(ApiKey.SYNC_GROUP, answer.error_code)
            return await self._failed()
        try:
            assigned = decode_assignment(bytes(answer.assignment)).partitions
        except ProtocolError as error:
            self.wire.broken(f"SyncGroup: {error}")
            return await self._failed()
        self._take(assigned)
        self._attempt = 0
        self._beat_s = self.context.elapsed_s()
        return True

    def _take(self, assigned: tuple[TopicPartition, ...]) -> None:
        self._must_join = False
        lost = tuple(at for at in self.assigned if at not in assigned)
        if lost:
            self._revoke(lost)
            # The next generation assigns them to their next owner.
            self._must_join = True
        self.assigned = assigned
        self.context.record(Assigned, self.group_id, self.member_id, self.generation, self.assigned)

    # --- staying ----------------------------------------------------------------------

    async def beat(self, *, now: bool = False) -> None:
        """Send a heartbeat if one is due; its response may require a rejoin."""
        if self.generation < 0:
            return
        if not now and self.context.elapsed_s() - self._beat_s < self._interval_s:
            return
        self._beat_s = self.context.elapsed_s()
        request = heartbeat.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        asked_s = self.context.now_s()
        answer = await self._ask(ApiKey.HEARTBEAT, request, self.session_ms)
        if answer is None:
            return
        code = answer.error_code
        self.context.record(
            ClassicHeartbeat,
            self.group_id,
            request.member_id,
            request.generation_id,
            "" if code is ErrorCode.none else code.name,
            asked_s,
            min(self.session_ms, self.rebalance_ms) / 1000,
        )
        if code is not ErrorCode.none:
            self._refused(ApiKey.HEARTBEAT, code)

    # --- going ------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave the group, as dynamic members do, and revoke all partitions."""
        self._revoke(self.assigned)
        if self.generation < 0 or self.instance_id is not None:
            return
        request = leave_group.LeaveGroupRequest(
            group_id=self.group_id,
            members=(
                leave_group.MemberIdentity(
                    member_id=self.member_id,
                    group_instance_id=None,
                    reason="done",
                ),
            ),
        )
        await self._ask(ApiKey.LEAVE_GROUP, request, 2_000)
        self.generation = -1

    # --- asking -----------------------------------------------------------------------

    async def _failed(self) -> bool:
        self._must_join = True
        await self.context.back_off(self._attempt)
        self._attempt += 1
        return False

    def _refused(self, api: ApiKey, code: ErrorCode) -> None:
        """See `GroupClient`."""
        super()._refused(api, code)
        if code is ErrorCode.rebalance_in_progress:
            self._must_join = True
        elif code in _EXPELLED:
            self._revoke(self.assigned)
            self._must_join = True
            self.generation = -1
            if code is not ErrorCode.illegal_generation:
                self.member_id = ""
        elif code is ErrorCode.fenced_instance_id:
            self._revoke(self.assigned)
            self.generation = -1
            self.is_fenced = True
        elif not (code.retriable or code is ErrorCode.unknown_server_error):
            self.context.stuck(f"{api.name} of {self.group_id} answered {code.name}")

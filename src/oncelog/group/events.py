"""Defines the events of the groups of one `__consumer_offsets` partition.

Each request is one frozen event; partitions are flat, in the order of the request, so that the
caller can nest them again as its version requires. The last events are made by the shard's own
timers. This module knows no bytes, connections or wire classes.

Random ids are part of the event (`fresh_id`): the shard makes none.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple
from uuid import UUID

from oncelog.core.ids import TopicPartition
from oncelog.core.values import value

ZERO_TOPIC_ID = UUID(int=0)
"""The topic id of requests in versions without topic ids."""

NO_GENERATION = -1
NO_MEMBER_ID = ""


class JoinProtocol(NamedTuple):
    """One assignment strategy that a member offers, with metadata that only members decode."""

    name: str
    metadata: bytes


class MemberAssignment(NamedTuple):
    """The leader's assignment for one member."""

    member_id: str
    assignment: bytes


class LeavingMember(NamedTuple):
    """One member to remove.

    By `member_id`, or (for administrators) by `group_instance_id` alone.
    """

    member_id: str
    group_instance_id: str | None = None


class OffsetToCommit(NamedTuple):
    """One partition of an offset commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: UUID = ZERO_TOPIC_ID


class OffsetToFetch(NamedTuple):
    """One partition whose committed offset is requested."""

    topic: str
    partition: int
    topic_id: UUID = ZERO_TOPIC_ID


@value
class Join:
    """JoinGroup v0-9.

    The reply (`JoinReply`) may be released much later, by another event or a tick.

    `fresh_id` is a random string (a UUID) that the caller makes for each request; the shard
    builds a new member's id from it. `rebalance_timeout_ms` < 0 (version 0) means the session
    timeout.
    """

    group_id: str
    version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    fresh_id: str
    may_describe: Callable[[str], bool] | None = None
    """Whether the client may describe a topic, where patterns of the group are matched again."""


@value
class Sync:
    """SyncGroup v0-5. The leader's carries the assignments; a follower's waits for it.

    Reply: `SyncReply`.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@value
class Heartbeat:
    """Heartbeat v0-4. Reply: `HeartbeatReply`."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@value
class Leave:
    """LeaveGroup v0-5 (versions before 3 name one member). Reply: `LeaveReply`."""

    group_id: str
    members: tuple[LeavingMember, ...]


@value
class OffsetCommit:
    """OffsetCommit v1-10. `retention_ms` -1 (all but v2-4) means the broker's.

    Reply: `OffsetCommitReply`.
    """

    group_id: str
    version: int
    generation_id: int
    member_id: str
    offsets: tuple[OffsetToCommit, ...]
    group_instance_id: str | None = None
    retention_ms: int = -1


@value
class TxnOffsetCommit:
    """TxnOffsetCommit v0-6: offsets that stay pending until the transaction's marker (INV-6).

    The caller has verified (or added) the group's partition in the transaction before; `permit`
    proves that to the shell when the append is written. Reply: `OffsetCommitReply`.
    """

    group_id: str
    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    offsets: tuple[OffsetToCommit, ...]
    group_instance_id: str | None = None
    permit: Hashable | None = None


@value
class OffsetFetch:
    """OffsetFetch of one group. `offsets` None requests every committed partition.

    Reply: `OffsetFetchReply`.
    """

    group_id: str
    offsets: tuple[OffsetToFetch, ...] | None
    require_stable: bool = False
    member_id: str | None = None
    """The requesting member, from version 9 on; empty from administrators and older versions."""
    member_epoch: int = -1


@value
class OffsetDelete:
    """OffsetDelete v0. Reply: `OffsetDeleteReply`."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@value
class DescribeGroup:
    """DescribeGroups, one group (the caller submits one event per group).

    Reply: `DescribeReply`.
    """

    group_id: str
    version: int = 6


@value
class ListGroups:
    """ListGroups: every group of this partition. Empty filters accept all. Reply: `ListReply`."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@value
class DeleteGroup:
    """DeleteGroups, one group (the caller submits one event per group).

    Reply: `DeleteReply`.
    """

    group_id: str


@value
class TopicsDeleted:
    """The metadata names topics deleted: their offsets are deleted too.

    `topic_ids` has the ids of the deleted topics of each name; the zero id among them means offsets
    without a topic id. No reply (submit without a token, to every active partition and after each
    load).
    """

    topic_ids: Mapping[str, frozenset[UUID]]


@value
class FindDeletedOffsets:
    """Ask which of these deleted topics have offsets here. Reply: `DeletedOffsetsReply`."""

    topic_ids: Mapping[str, frozenset[UUID]]


# Events of the shard's own timers (`tick`); no other caller submits these.


class Leftover(NamedTuple):
    """An offset to delete if it was committed for one of these deleted topics."""

    group_id: str
    partition: TopicPartition
    topic_ids: frozenset[UUID]


@value
class RemoveOffsets:
    """Continue to delete offsets of deleted topics."""

    leftovers: tuple[Leftover, ...]


@value
class MemberSessionExpired:
    """A member (or a pending member id) sent nothing for its session timeout."""

    group_id: str
    member_id: str


@value
class JoinPhaseOver:
    """The time for members to (re)join has passed."""

    group_id: str


@value
class ConnectionLost:
    """The connection of a JoinGroup or SyncGroup that waits has closed.

    `token` is that request's. No reply (submitted without a token).
    """

    group_id: str
    token: Hashable


@value
class SyncPhaseOver:
    """The time for members to send SyncGroup after a rebalance has passed."""

    group_id: str
    generation_id: int


@value
class ExpireOffsets:
    """Find expired offsets, and empty groups without offsets."""

    group_id: str

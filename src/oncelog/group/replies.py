"""Defines the replies of the group shard: one frozen value per request.

They contain Kafka's error codes and no wire classes. Partitions are flat, in the order of the
request.
"""

from typing import NamedTuple
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.values import value
from oncelog.group.events import ZERO_TOPIC_ID

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class JoinedMember(NamedTuple):
    """One member as the leader sees it in its JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class LeftMember(NamedTuple):
    """The outcome for one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class PartitionOutcome(NamedTuple):
    """The outcome for one partition of an offset commit or deletion."""

    topic: str
    partition: int
    error: ErrorCode


class FetchedOffset(NamedTuple):
    """One committed offset; `offset` is -1 where there is none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode
    topic_id: UUID = ZERO_TOPIC_ID
    """The topic that it was committed for."""


class DescribedMember(NamedTuple):
    """One member of a described group; `metadata` is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupOverview(NamedTuple):
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@value
class JoinReply:
    """JoinGroup. `protocol_name` None has to be written as "" before version 7."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@value
class SyncReply:
    """SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@value
class HeartbeatReply:
    """Heartbeat."""

    error: ErrorCode


@value
class LeaveReply:
    """LeaveGroup. Before version 3 the only member's error is the response's error."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


@value
class OffsetCommitReply:
    """OffsetCommit and TxnOffsetCommit."""

    partitions: tuple[PartitionOutcome, ...]


@value
class OffsetFetchReply:
    """OffsetFetch of one group."""

    error: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


@value
class OffsetDeleteReply:
    """OffsetDelete; a top-level `error` leaves `partitions` empty."""

    error: ErrorCode
    partitions: tuple[PartitionOutcome, ...] = ()


@value
class DescribeReply:
    """DescribeGroups, one group.

    `state` has Kafka's spelling, "Dead" for a group that does not exist.
    """

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


@value
class ListReply:
    """ListGroups of this partition."""

    error: ErrorCode
    groups: tuple[GroupOverview, ...] = ()


@value
class DeleteReply:
    """DeleteGroups, one group."""

    error: ErrorCode
    group_id: str


@value
class DeletedOffsetsReply:
    """The deleted topics of which this partition has offsets, by name."""

    names: frozenset[str]

"""Defines the decisions and replies of the group coordinator, for groups of both protocols."""

from typing import Never, TypeAlias

from oncelog.coordinator.shard import Decision
from oncelog.group import events, replies
from oncelog.group.consumer.events import (
    Beat,
    DescribeConsumerGroup,
    DowngradeDue,
    GroupConverted,
    MemberOverdue,
    Quit,
)
from oncelog.group.consumer.outcome import BeatReply, ConsumerGroupDescription

GroupEvent: TypeAlias = (
    events.Join
    | events.Sync
    | events.Heartbeat
    | events.Leave
    | events.OffsetCommit
    | events.TxnOffsetCommit
    | events.OffsetFetch
    | events.OffsetDelete
    | events.DescribeGroup
    | events.ListGroups
    | events.DeleteGroup
    | events.TopicsDeleted
    | events.FindDeletedOffsets
    | events.RemoveOffsets
    | events.MemberSessionExpired
    | events.JoinPhaseOver
    | events.SyncPhaseOver
    | events.ConnectionLost
    | events.ExpireOffsets
    | Beat
    | Quit
    | DescribeConsumerGroup
    | MemberOverdue
    | GroupConverted
    | DowngradeDue
)
"""The events of the group coordinator. A new event is added here and in `shard.decide`."""

GroupReply: TypeAlias = (
    replies.JoinReply
    | replies.SyncReply
    | replies.HeartbeatReply
    | replies.LeaveReply
    | replies.OffsetCommitReply
    | replies.OffsetFetchReply
    | replies.OffsetDeleteReply
    | replies.DescribeReply
    | replies.ListReply
    | replies.DeleteReply
    | replies.DeletedOffsetsReply
    | BeatReply
    | ConsumerGroupDescription
)
"""The replies of the group coordinator."""

GroupDecision: TypeAlias = Decision[GroupEvent, GroupReply, Never]
"""The result of each decision function of this package. Groups have no effects but appends."""

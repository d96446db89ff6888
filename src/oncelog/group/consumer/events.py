"""Defines the events of consumer groups, besides those of every group.

A ConsumerGroupHeartbeat is a `Beat` or, with a negative member epoch, a `Quit`. Fields that are
None (or -1) have not changed since the member's last heartbeat.
"""

from collections.abc import Callable

from oncelog.core.values import value
from oncelog.group.consumer.members import Partitions
from oncelog.group.consumer.timers import MemberTimer


@value
class Beat:
    """ConsumerGroupHeartbeat of a member that joins or stays. Reply: `BeatReply`."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    may_describe: Callable[[str], bool] | None = None
    """As of `ConsumerGroupContext`."""

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as when a member joins or lost a reply."""
        names_topics = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and names_topics and self.owned is not None


@value
class Quit:
    """ConsumerGroupHeartbeat of a member that leaves, for good or (static) temporarily.

    Reply: `BeatReply`.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None


@value
class MemberOverdue:
    """A member missed its deadline. Made by a timer."""

    group_id: str
    member_id: str
    timer: MemberTimer


@value
class GroupConverted:
    """A group has changed its protocol: its members' timers start. Made by the shard itself.

    `generation_id` is the generation in which the members of a group that is classic now still are;
    None for a group that is a consumer group now.
    """

    group_id: str
    generation_id: int | None = None


@value
class DowngradeDue:
    """Perhaps no member of a consumer group speaks the new protocol any more.

    Then the group becomes classic. Made by the shard itself.
    """

    group_id: str


@value
class DescribeConsumerGroup:
    """ConsumerGroupDescribe, one group. Reply: `ConsumerGroupDescription`."""

    group_id: str

"""Handles ConsumerGroupDescribe (69), versions 0-1: describes groups of the KIP-848 protocol.

As in Kafka, a member's assignment contains the partitions it owns, including those it has yet to
revoke. A deleted topic is left out. A group of another type gets GROUP_ID_NOT_FOUND. Gap: none
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.consumer_group_heartbeat import is_enabled
from oncelog.broker.apis.describe_groups import GROUP_OPERATIONS
from oncelog.broker.apis.metadata import OPERATIONS_NOT_ASKED
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.group.consumer.events import DescribeConsumerGroup
from oncelog.group.consumer.members import ConsumerMember, Partitions
from oncelog.group.consumer.outcome import ConsumerGroupDescription
from oncelog.group.consumer.records import by_topic
from oncelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse | Pending[ConsumerGroupDescribeResponse]:
    """Ask the coordinator of each group."""
    group_ids = list(dict.fromkeys(request.body.group_ids))
    if not is_enabled(context):
        refused = [
            ConsumerGroupDescription(ErrorCode.unsupported_version, each) for each in group_ids
        ]
        return _response(context, request, refused)
    answers = [
        context.groups.ask(
            group_id,
            DescribeConsumerGroup(group_id),
            unchanged,
            lambda error, group_id=group_id: ConsumerGroupDescription(error, group_id),  # type: ignore[misc]
        )
        for group_id in group_ids
    ]
    return gather(answers, lambda found: _response(context, request, found), holds_back=True)


def _response(
    context: Context,
    request: Request[ConsumerGroupDescribeRequest],
    found: list[ConsumerGroupDescription],
) -> ConsumerGroupDescribeResponse:
    is_asked = request.body.include_authorized_operations
    groups = tuple(_group(context, each, is_asked=is_asked) for each in found)
    return ConsumerGroupDescribeResponse(groups=groups)


def _group(
    context: Context, found: ConsumerGroupDescription, *, is_asked: bool
) -> ConsumerGroupDescribeGroup:
    members = tuple(
        _member(context, member, found.target.get(member.member_id, frozenset()))
        for member in found.members
    )
    is_told = is_asked and found.error is ErrorCode.none
    return ConsumerGroupDescribeGroup(
        error_code=found.error,
        error_message=found.message,
        group_id=found.group_id,
        group_state="" if found.state is None else found.state.value,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=members,
        authorized_operations=GROUP_OPERATIONS if is_told else OPERATIONS_NOT_ASKED,
    )


def _member(
    context: Context, member: ConsumerMember, target: Partitions
) -> ConsumerGroupDescribeMember:
    owned = frozenset((*member.assigned, *member.pending_revocation))
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(context, owned),
        target_assignment=_assignment(context, target),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(context: Context, partitions: Partitions) -> ConsumerGroupDescribeAssignment:
    topics = (
        (context.image.topic_by_id(topic_id), numbers) for topic_id, numbers in by_topic(partitions)
    )
    return ConsumerGroupDescribeAssignment(
        topic_partitions=tuple(
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=numbers
            )
            for topic, numbers in topics
            if topic is not None
        )
    )

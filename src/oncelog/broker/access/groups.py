"""Asks for the APIs of groups, but offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from oncelog.broker.access.asked import Asked, AskedParts
from oncelog.broker.apis.consumer_group_heartbeat import is_enabled
from oncelog.broker.apis.metadata import OPERATIONS_NOT_ASKED
from oncelog.broker.apis.needs import (
    DELETE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
)
from oncelog.broker.apis.sync_group import PROTOCOL_NAMED_VERSION_MIN
from oncelog.core.acl import ResourceType
from oncelog.core.pending import unchanged
from oncelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.protocol.messages.join_group import JoinGroupRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.sync_group import SyncGroupRequest

_SAYS_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


def join_group(asked: Asked[JoinGroupRequest]) -> object:
    """Patterns of others that are matched again match no topics without the second."""
    if not asked.may(READ_GROUP, asked.body.group_id):
        return asked.refuse(READ_GROUP)
    return asked.serve(None, lambda name: asked.may(DESCRIBE_TOPIC, name, is_filter=True))


def sync_group(asked: Asked[SyncGroupRequest]) -> object:
    """A request that does not name its protocol has another error first."""
    body = asked.body
    is_named = body.protocol_type is not None and body.protocol_name is not None
    if asked.request.version >= PROTOCOL_NAMED_VERSION_MIN and not is_named:
        return asked.serve()
    return asked.serve() if asked.may(READ_GROUP, body.group_id) else asked.refuse(READ_GROUP)


def consumer_group_heartbeat(asked: Asked[ConsumerGroupHeartbeatRequest]) -> object:
    """The second for each topic that it names; a pattern matches no others."""
    if not is_enabled(asked.context):
        return asked.serve()
    body = asked.body
    if not asked.may(READ_GROUP, body.group_id):
        return asked.refuse(READ_GROUP)
    if asked.denied(DESCRIBE_TOPIC, set(body.subscribed_topic_names or ())):
        return ConsumerGroupHeartbeatResponse(error_code=DESCRIBE_TOPIC.error)
    return asked.serve(None, lambda name: asked.may(DESCRIBE_TOPIC, name, is_filter=True))


def describe_groups(asked: Asked[DescribeGroupsRequest]) -> object:
    """Each group needs it."""

    def shown(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        groups = tuple(_with_operations(asked, each) for each in response.groups)
        return replace(response, groups=groups)

    denied = asked.denied(DESCRIBE_GROUP, asked.body.groups)
    parts = AskedParts("groups", "groups", unchanged, lambda group: group.group_id)
    return asked.serve_but(parts, dict.fromkeys(denied, DESCRIBE_GROUP.error), shown)


def list_groups(asked: Asked[ListGroupsRequest]) -> object:
    """Who has the first sees all groups, others those that they may describe."""
    if asked.may(DESCRIBE_CLUSTER, is_filter=True):
        return asked.serve()

    def shown(response: ListGroupsResponse) -> ListGroupsResponse:
        hidden = asked.denied(
            DESCRIBE_GROUP, (each.group_id for each in response.groups), is_filter=True
        )
        kept = tuple(each for each in response.groups if each.group_id not in hidden)
        return replace(response, groups=kept)

    return asked.serve(shown)


def delete_groups(asked: Asked[DeleteGroupsRequest]) -> object:
    """Each group needs it."""
    denied = asked.denied(DELETE_GROUP, set(asked.body.groups_names))
    parts = AskedParts("groups_names", "results", unchanged, lambda group: group.group_id)
    return asked.serve_but(parts, dict.fromkeys(denied, DELETE_GROUP.error))


def consumer_group_describe(asked: Asked[ConsumerGroupDescribeRequest]) -> object:
    """The second for each topic of a member's: a group with another one is not described."""
    if not is_enabled(asked.context):
        return asked.serve()

    def shown(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        named = {name for group in response.groups for name in _topics(group)}
        hidden = asked.denied(DESCRIBE_TOPIC, named)
        groups = tuple(
            ConsumerGroupDescribeGroup(
                group_id=each.group_id,
                error_code=DESCRIBE_TOPIC.error,
                error_message=_SAYS_TOPICS,
            )
            if not hidden.isdisjoint(_topics(each))
            else _with_operations(asked, each)
            for each in response.groups
        )
        return replace(response, groups=groups)

    denied = asked.denied(DESCRIBE_GROUP, asked.body.group_ids)
    parts = AskedParts("group_ids", "groups", unchanged, lambda group: group.group_id)
    return asked.serve_but(parts, dict.fromkeys(denied, DESCRIBE_GROUP.error), shown)


def _topics(group: ConsumerGroupDescribeGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for one in assignment.topic_partitions:
                yield one.topic_name


def _with_operations(asked: Asked[Any], group: Any) -> Any:
    if group.authorized_operations == OPERATIONS_NOT_ASKED:
        return group
    operations = asked.operations_on(ResourceType.GROUP, group.group_id)
    return replace(group, authorized_operations=operations)

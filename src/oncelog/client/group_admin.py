"""Describes and changes groups for `Admin`.

Groups of the classic protocol and of KIP-848 have different requests, but the same results here.
"""

import struct
from collections.abc import Iterable

from oncelog.client import requests
from oncelog.client.cluster import GROUP, Cluster
from oncelog.client.errors import FatalError, Operation, classify
from oncelog.client.group_offsets import group_error
from oncelog.client.values import GroupDescription, GroupListing, GroupMember
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol import wire
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import consumer_group_describe as new_api
from oncelog.protocol.messages import delete_groups as delete_api
from oncelog.protocol.messages import describe_groups as classic_api
from oncelog.protocol.messages import list_groups as list_api
from oncelog.protocol.messages import offset_delete as offset_delete_api
from oncelog.protocol.wire import INT16, INT32

__all__ = [
    "delete_group",
    "delete_offsets",
    "describe_group",
    "list_groups",
]

CLASSIC = "classic"
CONSUMER = "consumer"
_DEAD = "Dead"


async def list_groups(cluster: Cluster) -> list[GroupListing]:
    """The groups of every broker, by name."""
    await cluster.refresh([])
    found = {}
    for node_id in sorted(cluster.metadata.nodes):
        response: list_api.ListGroupsResponse = await cluster.request_node(
            node_id, ApiKey.LIST_GROUPS, list_api.ListGroupsRequest()
        )
        if response.error_code is not ErrorCode.none:
            raise classify(response.error_code, Operation.OTHER, f"broker {node_id}")
        for one in response.groups:
            kind = one.group_type.lower() or CLASSIC
            found[one.group_id] = GroupListing(
                one.group_id, kind, one.group_state, one.protocol_type, node_id
            )
    return [found[name] for name in sorted(found)]


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """State and members of a group. Raises `FatalError` (group_id_not_found)."""
    connection = await cluster.coordinator(GROUP, group_id)
    if connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE, 0):
        described = await _describe_new(cluster, group_id)
        if described is not None:
            return described
    return await _describe_classic(cluster, group_id)


async def _describe_new(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """The group if it is one of the new protocol, None for all others."""
    request = new_api.ConsumerGroupDescribeRequest(group_ids=(group_id,))
    response: new_api.ConsumerGroupDescribeResponse = await cluster.ask_coordinator(
        GROUP, group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, request
    )
    (group,) = response.groups
    if group.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
        return None
    if group.error_code is not ErrorCode.none:
        raise group_error(cluster, group_id, group.error_code)
    members = tuple(
        GroupMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in one.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for one in group.members
    )
    at = cluster.coordinator_id(GROUP, group_id)
    return GroupDescription(group_id, CONSUMER, group.group_state, group.assignor_name, at, members)


async def _describe_classic(cluster: Cluster, group_id: str) -> GroupDescription:
    request = classic_api.DescribeGroupsRequest(groups=(group_id,))
    response: classic_api.DescribeGroupsResponse = await cluster.ask_coordinator(
        GROUP, group_id, ApiKey.DESCRIBE_GROUPS, request
    )
    (group,) = response.groups
    if group.error_code is not ErrorCode.none:
        raise group_error(cluster, group_id, group.error_code)
    if group.group_state == _DEAD:
        # Before version 6 DescribeGroups describes an unknown group as Dead.
        raise FatalError(ErrorCode.group_id_not_found, group_id)
    members = tuple(
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assigned(one.member_assignment) if group.protocol_type == CONSUMER else (),
        )
        for one in group.members
    )
    at = cluster.coordinator_id(GROUP, group_id)
    return GroupDescription(group_id, CLASSIC, group.group_state, group.protocol_data, at, members)


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment; none if it has another format.

    Source: `ConsumerProtocolAssignment`.
    """
    found = []
    try:
        count, position = wire.read_array_count(data, INT16.size)
        for _ in range(count):
            topic, position = wire.read_string(data, position)
            partition_count, position = wire.read_array_count(data, position)
            for _ in range(partition_count):
                found.append(TopicPartition(topic, INT32.unpack_from(data, position)[0]))
                position += INT32.size
    except (struct.error, ProtocolError):
        return ()
    return tuple(found)


async def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group with its offsets.

    Raises `FatalError`: non_empty_group while it has members, group_id_not_found; with the broker's
    own message where it gives one (KIP-1331).
    """
    request = delete_api.DeleteGroupsRequest(groups_names=(group_id,))
    response: delete_api.DeleteGroupsResponse = await cluster.ask_coordinator(
        GROUP, group_id, ApiKey.DELETE_GROUPS, request
    )
    (result,) = response.results
    if result.error_code is not ErrorCode.none:
        why = f"{group_id}: {result.error_message}" if result.error_message else ""
        raise group_error(cluster, group_id, result.error_code, why)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    """Delete a group's committed offsets of these partitions.

    Raises `FatalError`: group_subscribed_to_topic while a member reads one, group_id_not_found.
    """
    request = offset_delete_api.OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            offset_delete_api.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(
                    offset_delete_api.OffsetDeleteRequestPartition(partition_index=index)
                    for index in indexes
                ),
            )
            for name, indexes in requests.by_topic(partitions).items()
        ),
    )
    response: offset_delete_api.OffsetDeleteResponse = await cluster.ask_coordinator(
        GROUP, group_id, ApiKey.OFFSET_DELETE, request
    )
    codes = [response.error_code]
    codes += [one.error_code for topic in response.topics for one in topic.partitions]
    for code in codes:
        if code is not ErrorCode.none:
            raise group_error(cluster, group_id, code)

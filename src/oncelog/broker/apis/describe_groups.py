"""Handles DescribeGroups (15), versions 0-6: returns the state and members of groups.

Members' subscriptions and assignments are the clients' own bytes. A group that does not exist is
Dead, and from version 6 on gets GROUP_ID_NOT_FOUND (KIP-1043). From version 3 on all operations are
authorized, as in Kafka without an authorizer. Gap: groups of the KIP-848 protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.metadata import OPERATIONS_NOT_ASKED
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.group.events import DescribeGroup
from oncelog.group.replies import DescribeReply
from oncelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Bit set of the `AclOperation` codes that apply to groups."""


def handle(
    context: Context, request: Request[DescribeGroupsRequest]
) -> DescribeGroupsResponse | Pending[DescribeGroupsResponse]:
    """Ask the coordinator of each group."""
    answers = [
        context.groups.ask(
            group_id,
            DescribeGroup(group_id, request.version),
            unchanged,
            lambda error, group_id=group_id: DescribeReply(error, group_id, ""),  # type: ignore[misc]
        )
        for group_id in dict.fromkeys(request.body.groups)
    ]

    def convert(results: list[DescribeReply]) -> DescribeGroupsResponse:
        groups = tuple(_group(request, result) for result in results)
        return DescribeGroupsResponse(groups=groups)

    return gather(answers, convert, holds_back=True)


def _group(request: Request[DescribeGroupsRequest], result: DescribeReply) -> DescribedGroup:
    is_asked = request.body.include_authorized_operations and result.error is ErrorCode.none
    return DescribedGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=result.group_id,
        group_state=result.state,
        protocol_type=result.protocol_type,
        protocol_data=result.protocol_data,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in result.members
        ),
        authorized_operations=GROUP_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED,
    )

"""Handles LeaveGroup (13), versions 0-5: removes members from a group.

A member leaves by itself; from version 3 on the request may name several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import Leave, LeavingMember
from oncelog.group.replies import LeaveReply
from oncelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_MEMBERS_SINCE: Final = 3
"""Earlier versions reply with the error of the only member."""


def handle(
    context: Context, request: Request[LeaveGroupRequest]
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    """Ask the group coordinator."""
    body = request.body
    event = Leave(
        body.group_id,
        tuple(LeavingMember(member.member_id, member.group_instance_id) for member in body.members),
    )

    def convert(result: LeaveReply) -> LeaveGroupResponse:
        return _response(request, result)

    return context.groups.ask(
        body.group_id,
        event,
        convert,
        lambda error: _response(request, LeaveReply(error)),
        holds_back=False,
    )


def _response(request: Request[LeaveGroupRequest], result: LeaveReply) -> LeaveGroupResponse:
    error = result.error
    if request.version < _MEMBERS_SINCE and error is ErrorCode.none and result.members:
        (member,) = result.members
        error = member.error
    return LeaveGroupResponse(
        error_code=error,
        members=tuple(
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error,
            )
            for member in result.members
        ),
    )

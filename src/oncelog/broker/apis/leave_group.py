"""LeaveGroup, versions 0 to 5: members leave, or are removed (from version 3 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.leave_group.v5.response import MemberResponse

from oncelog.broker.apis.responses import NO_THROTTLE
from oncelog.broker.net.request import Request
from oncelog.group.events import Leave, LeavingMember
from oncelog.group.results import LeaveResult
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message, response_class

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_Response = response_class(ApiKey.LEAVE_GROUP)


def handle(context: Context, request: Request) -> Any:
    """Ask the group coordinator."""
    body = request.body
    event = Leave(
        body.group_id,
        tuple(LeavingMember(member.member_id, member.group_instance_id) for member in body.members),
    )
    return context.groups.ask(
        body.group_id,
        event,
        _response,
        lambda error: _response(LeaveResult(error)),
        holds_back=False,
    )


def _response(result: LeaveResult) -> Any:
    return message(
        _Response,
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        members=tuple(
            message(
                MemberResponse,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error,
            )
            for member in result.members
        ),
    )

"""Handles SyncGroup (14), versions 0-5: distributes the leader's assignments (INV-8).

Each member gets its assignment as the leader sent it. A follower's reply waits for the leader's
request; later requests of the connection proceed meanwhile. From version 5 on a request names the
group's protocol type and protocol, else it gets INCONSISTENT_GROUP_PROTOCOL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import MemberAssignment, Sync
from oncelog.group.replies import SyncReply
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

PROTOCOL_NAMED_VERSION_MIN = 5
"""From this version on a request has to name the group's protocol (KIP-559)."""


def handle(
    context: Context, request: Request[SyncGroupRequest]
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Check that a protocol is named, then ask the group coordinator."""
    body = request.body
    is_named = body.protocol_type is not None and body.protocol_name is not None
    if request.version >= PROTOCOL_NAMED_VERSION_MIN and not is_named:
        return _response(SyncReply(ErrorCode.inconsistent_group_protocol))
    event = Sync(
        body.group_id,
        body.generation_id,
        body.member_id,
        body.group_instance_id,
        body.protocol_type,
        body.protocol_name,
        tuple(MemberAssignment(a.member_id, a.assignment) for a in body.assignments),
    )
    return context.groups.ask(
        body.group_id,
        event,
        _response,
        lambda error: _response(SyncReply(error)),
        holds_back=False,
    )


def _response(result: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )

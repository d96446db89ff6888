"""Handles Heartbeat (12), versions 0-4: renews a classic member's session.

The reply says whether the group rebalances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import Heartbeat
from oncelog.group.replies import HeartbeatReply
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[HeartbeatRequest]
) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    """Ask the group coordinator."""
    body = request.body
    event = Heartbeat(body.group_id, body.generation_id, body.member_id, body.group_instance_id)
    return context.groups.ask(
        body.group_id,
        event,
        _converted,
        _response,
        holds_back=False,
    )


def _converted(result: HeartbeatReply) -> HeartbeatResponse:
    return _response(result.error)


def _response(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)

"""Heartbeat, versions 0 to 4: a member is alive, and hears whether its group rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.apis.responses import NO_THROTTLE
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.group.events import Heartbeat
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message, response_class

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_Response = response_class(ApiKey.HEARTBEAT)


def handle(context: Context, request: Request) -> Any:
    """Ask the group coordinator."""
    body = request.body
    event = Heartbeat(body.group_id, body.generation_id, body.member_id, body.group_instance_id)
    return context.groups.ask(
        body.group_id,
        event,
        lambda result: _response(result.error),
        _response,
        holds_back=False,
    )


def _response(error: ErrorCode) -> Any:
    return message(_Response, throttle_time=NO_THROTTLE, error_code=error)

"""Heartbeat, versions 0 to 4: a member is alive, and hears whether its group rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.apis import Request
from oncelog.broker.apis.responses import NO_THROTTLE, meanwhile
from oncelog.core.errors import ErrorCode
from oncelog.group.events import Heartbeat
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message, response_class

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker

__all__ = ["handle"]

_Response = response_class(ApiKey.HEARTBEAT)


def handle(broker: Broker, request: Request) -> Any:
    """Ask the group coordinator."""
    body = request.body
    event = Heartbeat(body.group_id, body.generation_id, body.member_id, body.group_instance_id)
    return meanwhile(
        broker.groups,
        body.group_id,
        event,
        request.connection,
        lambda result: _response(result.error),
        _response,
    )


def _response(error: ErrorCode) -> Any:
    return message(_Response, throttle_time=NO_THROTTLE, error_code=error)

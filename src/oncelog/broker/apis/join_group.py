"""Handles JoinGroup (11), versions 0-9: joins a group of the classic protocol.

The reply waits until every member has joined or the rebalance timeout has passed; later requests of
the connection proceed meanwhile. The session of a member whose connection closes while it waits
counts from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.pending import Pending
from oncelog.group.events import Join, JoinProtocol
from oncelog.group.replies import JoinReply
from oncelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from oncelog.runtime.ids import fresh_uuid

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_NULLABLE_PROTOCOL_SINCE: Final = 7


def handle(
    context: Context,
    request: Request[JoinGroupRequest],
    may_describe: Callable[[str], bool] | None = None,
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """Ask the group coordinator; the client `may_describe` any topic if it is not given."""
    body = request.body
    event = Join(
        group_id=body.group_id,
        version=request.version,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        client_id=request.client_id,
        client_host=f"/{request.connection.peer_host}",
        session_timeout_ms=body.session_timeout_ms,
        # Version 0 has no such field: the session timeout is used.
        rebalance_timeout_ms=body.rebalance_timeout_ms if request.version else -1,
        protocol_type=body.protocol_type,
        protocols=tuple([JoinProtocol(p.name, p.metadata) for p in body.protocols]),
        fresh_id=str(fresh_uuid(context.rng)),
        may_describe=may_describe,
    )

    def convert(result: JoinReply) -> JoinGroupResponse:
        return _response(request, result)

    return context.groups.ask(
        body.group_id,
        event,
        convert,
        lambda error: _response(request, JoinReply(error, body.member_id)),
        holds_back=False,
    )


def _response(request: Request[JoinGroupRequest], result: JoinReply) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and request.version < _NULLABLE_PROTOCOL_SINCE:
        protocol_name = ""
    members = [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata,
        )
        for member in result.members
    ]
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(members),
    )

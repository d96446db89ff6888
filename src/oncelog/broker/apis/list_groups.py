"""Handles ListGroups (16), versions 0-5: lists the groups that this broker coordinates.

Filters by state (version 4 on, KIP-518) and type (version 5 on, KIP-848) ignore case. The reply
waits for shards that are being loaded; after a limit it is COORDINATOR_LOAD_IN_PROGRESS. As
in Kafka the groups of a shard whose log is damaged or off line are left out. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending, gather
from oncelog.group.events import ListGroups
from oncelog.group.replies import ListReply
from oncelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[ListGroupsRequest]
) -> ListGroupsResponse | Pending[ListGroupsResponse]:
    """Ask every shard that this broker leads."""
    body = request.body
    event = ListGroups(tuple(body.states_filter), tuple(body.types_filter))
    return gather(context.groups.ask_all(event, ListReply), _response, holds_back=True)


def _response(results: list[ListReply]) -> ListGroupsResponse:
    failed = {result.error for result in results} - {ErrorCode.none, ErrorCode.not_coordinator}
    if failed:
        return ListGroupsResponse(error_code=next(iter(failed)))
    return ListGroupsResponse(
        error_code=ErrorCode.none,
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for result in results
            for group in result.groups
        ),
    )

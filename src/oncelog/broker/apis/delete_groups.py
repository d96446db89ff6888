"""Handles DeleteGroups (42), versions 0-3: deletes empty groups and their offsets.

Each group gets its own result: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND when it
does not exist. As in Kafka, a group named twice gets one result, and none of these errors has a
message: only streams groups give one in version 3. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.group.events import DeleteGroup
from oncelog.group.replies import DeleteReply
from oncelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[DeleteGroupsRequest]
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Ask the coordinator of each group."""
    answers = [
        context.groups.ask(
            group_id,
            DeleteGroup(group_id),
            unchanged,
            lambda error, group_id=group_id: DeleteReply(error, group_id),  # type: ignore[misc]
        )
        for group_id in dict.fromkeys(request.body.groups_names)
    ]
    return gather(answers, _response, holds_back=True)


def _response(results: list[DeleteReply]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=result.group_id, error_code=result.error)
            for result in results
        ),
    )

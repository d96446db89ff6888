"""DeleteGroups."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String, Versions


@message
class DeleteGroupsRequest(RequestFor["DeleteGroupsResponse"]):
    """DeleteGroups, versions 0 to 3."""

    groups_names: tuple[String, ...] = ()


@message
class DeletableGroupResult:
    """An element of `results` in DeleteGroupsResponse."""

    group_id: String = ""
    error_code: Error = ErrorCode.none
    error_message: Annotated[String | None, Versions(3)] = None


@message
class DeleteGroupsResponse:
    """DeleteGroups's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()

"""ListGroups."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String, Versions


@message
class ListGroupsRequest(RequestFor["ListGroupsResponse"]):
    """ListGroups, versions 0 to 5."""

    states_filter: Annotated[tuple[String, ...], Versions(4)] = ()
    types_filter: Annotated[tuple[String, ...], Versions(5)] = ()


@message
class ListedGroup:
    """An element of `groups` in ListGroupsResponse."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Versions(4)] = ""
    group_type: Annotated[String, Versions(5)] = ""


@message
class ListGroupsResponse:
    """ListGroups's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Error = ErrorCode.none
    groups: tuple[ListedGroup, ...] = ()

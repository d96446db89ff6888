"""LeaveGroup."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, Single, String, Versions


@message
class MemberIdentity:
    """An element of `members` in LeaveGroupRequest."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(3)] = None
    reason: Annotated[String | None, Versions(5)] = None


@message
class LeaveGroupRequest(RequestFor["LeaveGroupResponse"]):
    """LeaveGroup, versions 0 to 5."""

    group_id: String = ""
    members: Annotated[tuple[MemberIdentity, ...], Single(2)] = ()
    """`member_id` alone up to version 2."""


@message
class MemberResponse:
    """An element of `members` in LeaveGroupResponse."""

    member_id: String = ""
    group_instance_id: String | None = None
    error_code: Error = ErrorCode.none


@message
class LeaveGroupResponse:
    """LeaveGroup's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Error = ErrorCode.none
    members: Annotated[tuple[MemberResponse, ...], Versions(3)] = ()

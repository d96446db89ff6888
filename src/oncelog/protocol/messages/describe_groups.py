"""DescribeGroups."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Bytes, Error, Int32, RequestFor, String, Versions


@message
class DescribeGroupsRequest(RequestFor["DescribeGroupsResponse"]):
    """DescribeGroups, versions 0 to 6."""

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Boolean, Versions(3)] = False


@message
class DescribedGroupMember:
    """An element of `members` in DescribedGroup."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@message
class DescribedGroup:
    """An element of `groups` in DescribeGroupsResponse."""

    error_code: Error = ErrorCode.none
    error_message: Annotated[String | None, Versions(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Versions(3)] = -2147483648


@message
class DescribeGroupsResponse:
    """DescribeGroups's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()

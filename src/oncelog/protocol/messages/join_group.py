"""JoinGroup."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Bytes,
    Error,
    Int32,
    Nullable,
    RequestFor,
    String,
    Versions,
)


@message
class JoinGroupRequestProtocol:
    """An element of `protocols` in JoinGroupRequest."""

    name: String = ""
    metadata: Bytes = b""


@message
class JoinGroupRequest(RequestFor["JoinGroupResponse"]):
    """JoinGroup, versions 0 to 9."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Versions(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(5)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, Versions(8)] = None


@message
class JoinGroupResponseMember:
    """An element of `members` in JoinGroupResponse."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(5)] = None
    metadata: Bytes = b""


@message
class JoinGroupResponse:
    """JoinGroup's response."""

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    error_code: Error = ErrorCode.none
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Versions(7)] = None
    protocol_name: Annotated[String | None, Nullable(7)] = None
    leader: String = ""
    skip_assignment: Annotated[Boolean, Versions(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()

"""SyncGroup."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bytes, Error, Int32, RequestFor, String, Versions


@message
class SyncGroupRequestAssignment:
    """An element of `assignments` in SyncGroupRequest."""

    member_id: String = ""
    assignment: Bytes = b""


@message
class SyncGroupRequest(RequestFor["SyncGroupResponse"]):
    """SyncGroup, versions 0 to 5."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(3)] = None
    protocol_type: Annotated[String | None, Versions(5)] = None
    protocol_name: Annotated[String | None, Versions(5)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@message
class SyncGroupResponse:
    """SyncGroup's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Error = ErrorCode.none
    protocol_type: Annotated[String | None, Versions(5)] = None
    protocol_name: Annotated[String | None, Versions(5)] = None
    assignment: Bytes = b""

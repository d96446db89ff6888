"""Heartbeat."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String, Versions


@message
class HeartbeatRequest(RequestFor["HeartbeatResponse"]):
    """Heartbeat, versions 0 to 4."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(3)] = None


@message
class HeartbeatResponse:
    """Heartbeat's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Error = ErrorCode.none

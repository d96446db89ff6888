"""FindCoordinator."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Error,
    Int8,
    Int32,
    Leading,
    RequestFor,
    Single,
    String,
    Versions,
)


@message
class FindCoordinatorRequest(RequestFor["FindCoordinatorResponse"]):
    """FindCoordinator, versions 0 to 6."""

    key_type: Annotated[Int8, Versions(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], Single(3), Leading(3)] = ()
    """`key` up to version 3."""


@message
class Coordinator:
    """An element of `coordinators` in FindCoordinatorResponse."""

    key: Annotated[String, Versions(4)] = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Annotated[Error, Leading(3)] = ErrorCode.none
    error_message: Annotated[String | None, Versions(1), Leading(3)] = None


@message
class FindCoordinatorResponse:
    """FindCoordinator's response."""

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], Single(3)] = ()
    """Up to version 3 its fields are the response's own."""

"""DeleteGroups."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(RequestFor["DeleteGroupsResponse"]):
    """DeleteGroups, versions 0 to 2."""

    groups_names: tuple[String, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    """An element of `results` in DeleteGroupsResponse."""

    group_id: String = ""
    error_code: Error = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    """DeleteGroups's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()

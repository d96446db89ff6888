"""DeleteAcls."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String


@message
class DeleteAclsFilter:
    """An element of `filters` in DeleteAclsRequest."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = None
    host_filter: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class DeleteAclsRequest(RequestFor["DeleteAclsResponse"]):
    """DeleteAcls, versions 1 to 3."""

    filters: tuple[DeleteAclsFilter, ...] = ()


@message
class DeleteAclsMatchingAcl:
    """An element of `matching_acls` in DeleteAclsFilterResult."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class DeleteAclsFilterResult:
    """An element of `filter_results` in DeleteAclsResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


@message
class DeleteAclsResponse:
    """DeleteAcls's response."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()

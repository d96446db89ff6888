"""DescribeAcls."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String


@message
class DescribeAclsRequest(RequestFor["DescribeAclsResponse"]):
    """DescribeAcls, versions 1 to 3."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = None
    host_filter: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class AclDescription:
    """An element of `acls` in DescribeAclsResource."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class DescribeAclsResource:
    """An element of `resources` in DescribeAclsResponse."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: tuple[AclDescription, ...] = ()


@message
class DescribeAclsResponse:
    """DescribeAcls's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    resources: tuple[DescribeAclsResource, ...] = ()

"""CreateAcls."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String


@message
class AclCreation:
    """An element of `creations` in CreateAclsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class CreateAclsRequest(RequestFor["CreateAclsResponse"]):
    """CreateAcls, versions 1 to 3."""

    creations: tuple[AclCreation, ...] = ()


@message
class AclCreationResult:
    """An element of `results` in CreateAclsResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class CreateAclsResponse:
    """CreateAcls's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()

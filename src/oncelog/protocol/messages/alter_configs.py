"""AlterConfigs."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int8, Int32, RequestFor, String


@message
class AlterableConfig:
    """An element of `configs` in AlterConfigsResource."""

    name: String = ""
    value: String | None = None


@message
class AlterConfigsResource:
    """An element of `resources` in AlterConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


@message
class AlterConfigsRequest(RequestFor["AlterConfigsResponse"]):
    """AlterConfigs, versions 0 to 2."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Boolean = False


@message
class AlterConfigsResourceResponse:
    """An element of `responses` in AlterConfigsResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


@message
class AlterConfigsResponse:
    """AlterConfigs's response."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()

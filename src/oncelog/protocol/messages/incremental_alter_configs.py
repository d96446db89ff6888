"""IncrementalAlterConfigs."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int8, Int32, RequestFor, String


@message
class IncrementalAlterableConfig:
    """An element of `configs` in IncrementalAlterConfigsResource."""

    name: String = ""
    config_operation: Int8 = 0
    value: String | None = None


@message
class IncrementalAlterConfigsResource:
    """An element of `resources` in IncrementalAlterConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[IncrementalAlterableConfig, ...] = ()


@message
class IncrementalAlterConfigsRequest(RequestFor["IncrementalAlterConfigsResponse"]):
    """IncrementalAlterConfigs, versions 0 to 1."""

    resources: tuple[IncrementalAlterConfigsResource, ...] = ()
    validate_only: Boolean = False


@message
class IncrementalAlterConfigsResourceResponse:
    """An element of `responses` in IncrementalAlterConfigsResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


@message
class IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs's response."""

    throttle_time_ms: Int32 = 0
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...] = ()

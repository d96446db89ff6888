"""ListConfigResources."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String, Versions


@message
class ListConfigResourcesRequest(RequestFor["ListConfigResourcesResponse"]):
    """ListConfigResources, versions 0 to 1."""

    resource_types: Annotated[tuple[Int8, ...], Versions(1)] = ()


@message
class ConfigResource:
    """An element of `config_resources` in ListConfigResourcesResponse."""

    resource_name: String = ""
    resource_type: Annotated[Int8, Versions(1)] = 16


@message
class ListConfigResourcesResponse:
    """ListConfigResources's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    config_resources: tuple[ConfigResource, ...] = ()

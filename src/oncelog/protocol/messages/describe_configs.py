"""DescribeConfigs."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int8, Int32, RequestFor, String, Versions


@message
class DescribeConfigsResource:
    """An element of `resources` in DescribeConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


@message
class DescribeConfigsRequest(RequestFor["DescribeConfigsResponse"]):
    """DescribeConfigs, versions 1 to 4."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Boolean = False
    include_documentation: Annotated[Boolean, Versions(3)] = False


@message
class DescribeConfigsSynonym:
    """An element of `synonyms` in DescribeConfigsResourceResult."""

    name: String = ""
    value: String | None = None
    source: Int8 = 0


@message
class DescribeConfigsResourceResult:
    """An element of `configs` in DescribeConfigsResult."""

    name: String = ""
    value: String | None = None
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: Annotated[Int8, Versions(3)] = 0
    documentation: Annotated[String | None, Versions(3)] = None


@message
class DescribeConfigsResult:
    """An element of `results` in DescribeConfigsResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


@message
class DescribeConfigsResponse:
    """DescribeConfigs's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()

"""ApiVersions."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Tag,
    Versions,
)


@message
class ApiVersionsRequest(RequestFor["ApiVersionsResponse"]):
    """ApiVersions, versions 0 to 5."""

    client_software_name: Annotated[String, Versions(3)] = ""
    client_software_version: Annotated[String, Versions(3)] = ""
    cluster_id: Annotated[String | None, Versions(5)] = None
    node_id: Annotated[Int32, Versions(5)] = -1


@message
class ApiVersion:
    """An element of `api_keys` in ApiVersionsResponse."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@message
class SupportedFeatureKey:
    """An element of `supported_features` in ApiVersionsResponse."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


@message
class FinalizedFeatureKey:
    """An element of `finalized_features` in ApiVersionsResponse."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message
class ApiVersionsResponse:
    """ApiVersions's response."""

    error_code: Error = ErrorCode.none
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Versions(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Versions(3), Tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Versions(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Boolean, Versions(3), Tag(3)] = False

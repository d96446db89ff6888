"""DescribeCluster."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int8, Int32, RequestFor, String, Versions


@message
class DescribeClusterRequest(RequestFor["DescribeClusterResponse"]):
    """DescribeCluster, versions 0 to 2."""

    include_cluster_authorized_operations: Boolean = False
    endpoint_type: Annotated[Int8, Versions(1)] = 1
    include_fenced_brokers: Annotated[Boolean, Versions(2)] = False


@message
class DescribeClusterBroker:
    """An element of `brokers` in DescribeClusterResponse."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Boolean, Versions(2)] = False


@message
class DescribeClusterResponse:
    """DescribeCluster's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    endpoint_type: Annotated[Int8, Versions(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648

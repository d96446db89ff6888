"""Handles DescribeCluster (60), versions 0-2: returns the cluster id, brokers and controller.

Only brokers can be requested (endpoint type 1): there are no separate controllers. Those that are
registered and have the listener that was asked are returned, with its address; none of them is
fenced. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.metadata import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from oncelog.broker.apis.responses import shown_by
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

BROKER_ENDPOINTS: Final = 1


def handle(context: Context, request: Request[DescribeClusterRequest]) -> DescribeClusterResponse:
    """Reply from the metadata image."""
    image = context.image
    endpoint_type = request.body.endpoint_type
    if endpoint_type != BROKER_ENDPOINTS:
        # Kafka's brokers return 114 for a known but wrong type, 115 for an unknown one.
        error = (
            ErrorCode.mismatched_endpoint_type
            if endpoint_type == 2
            else ErrorCode.unsupported_endpoint_type
        )
        return DescribeClusterResponse(
            error_code=error,
            error_message=f"This broker does not serve endpoint type {endpoint_type}.",
            endpoint_type=BROKER_ENDPOINTS,
        )
    shown = shown_by(image, request.connection.listener)
    is_asked = request.body.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=ErrorCode.none,
        endpoint_type=endpoint_type,
        cluster_id=image.cluster_id,
        controller_id=shown.controller_id,
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=broker_id,
                host=host,
                port=port,
                rack=image.brokers[broker_id].rack,
            )
            for broker_id, (host, port) in shown.brokers.items()
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED,
    )

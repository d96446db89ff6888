"""Describes a cluster for `Admin`."""

from oncelog.client.cluster import Cluster
from oncelog.client.errors import Operation, classify
from oncelog.client.values import ClusterDescription, Node
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest

__all__ = ["describe", "describe_older"]


async def describe(cluster: Cluster) -> ClusterDescription:
    """Brokers, controller and id by DescribeCluster; what is fenced is left out."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )
    response = await cluster.request_any(ApiKey.DESCRIBE_CLUSTER, request)
    if response.error_code is not ErrorCode.none:
        raise classify(response.error_code, Operation.OTHER, response.error_message or "")
    nodes = tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
    return ClusterDescription(response.cluster_id, response.controller_id, nodes)


async def describe_older(cluster: Cluster) -> ClusterDescription:
    """The same by Metadata."""
    await cluster.refresh([])
    known = cluster.metadata
    return ClusterDescription(known.cluster_id, known.controller_id, tuple(known.nodes.values()))

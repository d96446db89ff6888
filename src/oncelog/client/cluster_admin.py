"""Describes a cluster and its replicas for `Admin`."""

from collections.abc import Iterable, Sequence

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Operation, classify
from oncelog.client.values import (
    ClusterDescription,
    Node,
    PartitionDescription,
    TopicDescription,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsTopic,
)

__all__ = ["describe", "describe_older", "describe_replicas", "log_ends"]

ANY_REPLICA = -2
"""The replica id of who asks a broker about its own log, whether it leads or not."""


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


async def describe_replicas(
    cluster: Cluster, names: Sequence[str] | None
) -> dict[str, TopicDescription]:
    """Describe topics (None: all) with eligible leaders, by DescribeTopicPartitions (KIP-966).

    Raises `FatalError`: unsupported_version, or the error of a topic that was named.
    """
    found: dict[str, TopicDescription] = {}
    asked = tuple(DescribeTopicPartitionsTopic(name=name) for name in names or ())
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=asked, cursor=cursor)
        response = await cluster.request_any(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
        for topic in response.topics:
            name = str(topic.name)
            if topic.error_code is not ErrorCode.none:
                raise classify(topic.error_code, Operation.OTHER, name)
            before = found[name].partitions if name in found else ()
            parts = (*before, *_partitions(topic))
            found[name] = TopicDescription(name, topic.topic_id, parts, topic.is_internal)
        if response.next_cursor is None:
            return found
        cursor = response.next_cursor
        asked = tuple(topic for topic in asked if topic.name >= cursor.topic_name)


def _partitions(topic: DescribeTopicPartitionsResponseTopic) -> list[PartitionDescription]:
    return [
        PartitionDescription(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            one.replica_nodes,
            one.isr_nodes,
            one.eligible_leader_replicas or (),
            one.last_known_elr or (),
        )
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]


async def log_ends(
    cluster: Cluster, node_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where the logs of a broker's replicas end, as far as it serves them."""
    if node_id not in cluster.metadata.nodes:
        await cluster.refresh([])
    request = requests.list_offsets_request(
        dict.fromkeys(partitions, requests.LATEST), 0, cluster.request_timeout_ms, ANY_REPLICA
    )
    response = await cluster.request_node(node_id, ApiKey.LIST_OFFSETS, request)
    return {
        TopicPartition(topic.name, one.partition_index): one.offset
        for topic in response.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none
    }

"""Describes logs' sizes on disk, and deletes records, for `Admin`."""

from collections.abc import Iterable, Mapping

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import ConnectionLostError, Operation, classify
from oncelog.client.values import DataFolder
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import delete_records as delete_api
from oncelog.protocol.messages import describe_log_dirs as folders_api

__all__ = ["delete_records", "describe_data_folders"]


async def describe_data_folders(cluster: Cluster, node_id: int) -> list[DataFolder]:
    """The log directories of one broker, with the size of every partition in them."""
    if node_id not in cluster.metadata.nodes:
        await cluster.refresh([])
    response: folders_api.DescribeLogDirsResponse = await cluster.request_node(
        node_id, ApiKey.DESCRIBE_LOG_DIRS, folders_api.DescribeLogDirsRequest(topics=None)
    )
    if response.error_code is not ErrorCode.none:
        raise classify(response.error_code, Operation.OTHER, f"broker {node_id}")
    return [
        DataFolder(
            found.log_dir,
            found.error_code,
            found.total_bytes if found.total_bytes >= 0 else None,
            found.usable_bytes if found.usable_bytes >= 0 else None,
            {
                TopicPartition(topic.name, one.partition_index): one.partition_size
                for topic in found.topics
                for one in topic.partitions
                if not one.is_future_key
            },
        )
        for found in response.results
    ]


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, int]:
    """Delete the records before these offsets (-1: the high watermark).

    Returns the new start of each log. Raises `FatalError` (offset_out_of_range, policy_violation).
    """
    by_node: dict[int, list[TopicPartition]] = {}
    for topic_partition in before:
        by_node.setdefault(await cluster.leader(topic_partition), []).append(topic_partition)
    found = {}
    for node_id, wanted in by_node.items():
        try:
            response: delete_api.DeleteRecordsResponse = await cluster.request_node(
                node_id, ApiKey.DELETE_RECORDS, _delete_request(wanted, before, timeout_ms)
            )
        except ConnectionLostError:
            for topic_partition in wanted:
                cluster.metadata.mark_stale(topic_partition.topic)
            raise
        for topic in response.topics:
            for one in topic.partitions:
                topic_partition = TopicPartition(topic.name, one.partition_index)
                if one.error_code is not ErrorCode.none:
                    cluster.metadata.mark_stale(topic.name)
                    raise classify(one.error_code, Operation.OTHER, str(topic_partition))
                found[topic_partition] = one.low_watermark
    return found


def _delete_request(
    wanted: Iterable[TopicPartition], before: Mapping[TopicPartition, int], timeout_ms: float
) -> delete_api.DeleteRecordsRequest:
    return delete_api.DeleteRecordsRequest(
        topics=tuple(
            delete_api.DeleteRecordsTopic(
                name=name,
                partitions=tuple(
                    delete_api.DeleteRecordsPartition(
                        partition_index=index, offset=before[TopicPartition(name, index)]
                    )
                    for index in indexes
                ),
            )
            for name, indexes in requests.by_topic(wanted).items()
        ),
        timeout_ms=int(timeout_ms),
    )

"""Finds the start and end offsets of logs (ListOffsets), for consumer and admin."""

from collections.abc import Mapping

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import ConnectionLostError, Operation, classify
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey

__all__ = ["READ_COMMITTED", "READ_UNCOMMITTED", "list_offsets"]

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: float,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offset and leader epoch for each partition.

    Of the log's start or end, or of the first record at or after a time (-1: none).

    Asks again, of the right leaders, until `timeout_ms` is over. Raises `RetriableError` then.
    """
    found: dict[TopicPartition, OffsetAndMetadata] = {}

    async def call() -> None:
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in timestamps.items():
            if tp not in found:
                by_node.setdefault(await cluster.leader(tp), {})[tp] = timestamp
        for node_id, wanted in by_node.items():
            request = requests.list_offsets_request(
                wanted, isolation_level, cluster.request_timeout_ms
            )
            try:
                response = await cluster.request_node(node_id, ApiKey.LIST_OFFSETS, request)
            except ConnectionLostError:
                for tp in wanted:
                    cluster.metadata.mark_stale(tp.topic)
                raise
            for topic in response.topics:
                for p in topic.partitions:
                    tp = TopicPartition(str(topic.name), int(p.partition_index))
                    if p.error_code is not ErrorCode.none:
                        cluster.metadata.mark_stale(tp.topic)
                        raise classify(p.error_code, Operation.OTHER, str(tp))
                    found[tp] = OffsetAndMetadata(int(p.offset), "", int(p.leader_epoch))

    await cluster.retrying(call, timeout_ms)
    return found

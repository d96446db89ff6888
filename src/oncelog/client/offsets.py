"""Finds the start and end offsets of logs (ListOffsets), for consumer and admin."""

from collections.abc import Mapping

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import ConnectionLostError, Operation, classify, most_severe
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
    found: dict[TopicPartition, OffsetAndMetadata] | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offset and leader epoch for each partition.

    Of the log's start or end, or of the first record at or after a time (-1: none).

    Asks again, of the right leaders, until `timeout_ms` is over. Raises `RetriableError` then.
    `found`, if given, also has the answers that came beside an error: one partition without a
    leader, or whose leader does not answer, does not keep the others from being asked.
    """
    found = {} if found is None else found

    async def call() -> None:
        by_node: dict[int, dict[TopicPartition, int]] = {}
        leaders, failed = await cluster.leaders(tp for tp in timestamps if tp not in found)
        for tp, node_id in leaders.items():
            by_node.setdefault(node_id, {})[tp] = timestamps[tp]
        for node_id, wanted in by_node.items():
            request = requests.list_offsets_request(
                wanted, isolation_level, cluster.request_timeout_ms
            )
            try:
                response = await cluster.request_node(node_id, ApiKey.LIST_OFFSETS, request)
            except ConnectionLostError as error:
                for tp in wanted:
                    cluster.metadata.mark_stale(tp.topic)
                    failed[tp] = error
                continue
            for topic in response.topics:
                for p in topic.partitions:
                    tp = TopicPartition(str(topic.name), int(p.partition_index))
                    if p.error_code is not ErrorCode.none:
                        cluster.metadata.mark_stale(tp.topic)
                        failed[tp] = classify(p.error_code, Operation.OTHER, str(tp))
                        continue
                    found[tp] = OffsetAndMetadata(int(p.offset), "", int(p.leader_epoch))

        if failed:
            raise most_severe(failed.values())

    await cluster.retrying(call, timeout_ms)
    return found

"""Commits offsets of a group without being a member, for consumer and admin."""

from collections.abc import Mapping

from oncelog.client import requests
from oncelog.client.cluster import GROUP, Cluster
from oncelog.client.errors import ClientError, Operation, RetriableError, classify
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey

__all__ = ["commit_offsets", "group_error"]


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit offsets of a group without being a member.

    Raises `FatalError` (unknown_member_id) when the group has members of its own.
    """
    response = await cluster.ask_coordinator(
        GROUP,
        group_id,
        ApiKey.OFFSET_COMMIT,
        requests.offset_commit_request(group_id, offsets),
        requests.OFFSETS_BY_NAME_MAX,
    )
    for topic_partition, code in requests.partition_errors(response):
        raise group_error(cluster, group_id, code, f"offset of {topic_partition}")


def group_error(cluster: Cluster, group_id: str, code: ErrorCode, message: str = "") -> ClientError:
    """Return the error of a response; forget the coordinator if it may be another broker."""
    error = cluster.coordinator_error(GROUP, group_id, code, message or group_id)
    if isinstance(error, RetriableError):
        return error
    return classify(code, Operation.OTHER, message or group_id)

"""Commits and fetches offsets of a group, for consumer, admin and transactions."""

from collections.abc import Iterable, Mapping

from oncelog.client import requests
from oncelog.client.cluster import GROUP, Cluster
from oncelog.client.errors import ClientError, Operation, RetriableError, classify
from oncelog.client.values import GroupOrMember, OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey

__all__ = ["commit_offsets", "fetch_offsets", "group_error"]


async def commit_offsets(
    cluster: Cluster,
    group: GroupOrMember,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit offsets of a group, as a member of it or by its name alone.

    Raises `FatalError` (unknown_member_id) when the group has members, and this is none of them.
    """
    who = requests.as_member(group)
    response = await cluster.ask_coordinator(
        GROUP,
        who.group_id,
        ApiKey.OFFSET_COMMIT,
        requests.offset_commit_request(who, offsets),
        requests.OFFSETS_BY_NAME_MAX,
    )
    for topic_partition, code in requests.partition_errors(response):
        raise group_error(cluster, who.group_id, code, f"offset of {topic_partition}")


def group_error(cluster: Cluster, group_id: str, code: ErrorCode, message: str = "") -> ClientError:
    """Return the error of a response; forget the coordinator if it may be another broker."""
    error = cluster.coordinator_error(GROUP, group_id, code, message or group_id)
    if isinstance(error, RetriableError):
        return error
    return classify(code, Operation.OTHER, message or group_id)


async def fetch_offsets(
    cluster: Cluster,
    group: GroupOrMember,
    partitions: Iterable[TopicPartition] | None,
    require_stable: bool,
    timeout_ms: float,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask a group's coordinator for its offsets, again while they are unstable.

    Raises `RetriableError` after `timeout_ms`.
    """
    group_id = requests.as_member(group).group_id
    request = requests.offset_fetch_request(group, partitions, require_stable)

    async def call() -> dict[TopicPartition, OffsetAndMetadata]:
        response = await cluster.ask_coordinator(
            GROUP, group_id, ApiKey.OFFSET_FETCH, request, requests.OFFSETS_BY_NAME_MAX
        )
        code, offsets = requests.offsets_of(response)
        if code is not ErrorCode.none:
            error = cluster.coordinator_error(GROUP, group_id, code, f"group {group_id}")
            raise (
                classify(code, Operation.OTHER) if not isinstance(error, RetriableError) else error
            )
        return offsets

    return await cluster.retrying(call, timeout_ms)

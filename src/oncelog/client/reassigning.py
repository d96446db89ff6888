"""Begins, cancels and lists reassignments of partitions for `Admin` (KIP-455)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from oncelog.client.cluster import Cluster
from oncelog.client.errors import FatalError, Operation, RetriableError, classify
from oncelog.client.values import PartitionReassignment
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)

__all__ = ["alter", "ongoing"]

Controller = Callable[[], Awaitable[Connection]]


async def alter(
    cluster: Cluster, controller: Controller, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    """Ask once for all of them; asked again, one that has begun stays as it is."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for label, replicas in wanted.items():
        given = None if replicas is None else tuple(replicas)
        one = ReassignablePartition(partition_index=label.partition, replicas=given)
        topics.setdefault(label.topic, []).append(one)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(cluster.request_timeout_ms),
        topics=tuple(
            ReassignableTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items()
        ),
    )
    response = await cluster.request(
        await controller(), ApiKey.ALTER_PARTITION_REASSIGNMENTS, request
    )
    _check(cluster, response.error_code, response.error_message)
    for topic in response.responses:
        for found in topic.partitions:
            label = TopicPartition(topic.name, found.partition_index)
            _check(cluster, found.error_code, f"{label}: {found.error_message or ''}")


async def ongoing(
    cluster: Cluster, controller: Controller
) -> dict[TopicPartition, PartitionReassignment]:
    """Ask once for all that are under way."""
    request = ListPartitionReassignmentsRequest(timeout_ms=int(cluster.request_timeout_ms))
    response = await cluster.request(
        await controller(), ApiKey.LIST_PARTITION_REASSIGNMENTS, request
    )
    _check(cluster, response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionReassignment(
            one.replicas, one.adding_replicas, one.removing_replicas
        )
        for topic in response.topics
        for one in topic.partitions
    }


def _check(cluster: Cluster, code: ErrorCode, message: str | None) -> None:
    if code is ErrorCode.none:
        return
    if code is ErrorCode.not_controller:
        cluster.metadata.controller_id = -1
        raise RetriableError(code, message or "")
    if code is ErrorCode.unknown_topic_or_partition:
        # A producer retries it; for an administrator it is the answer.
        raise FatalError(code, message or "")
    raise classify(code, Operation.OTHER, message or "")

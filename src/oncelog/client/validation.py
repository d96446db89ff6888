"""Asks leaders whether their logs still are what a consumer read: OffsetForLeaderEpoch (KIP-320).

What follows from their answers is decided in `machines.positions`.
"""

from collections.abc import Mapping

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ClientError,
    ConnectionLostError,
    LogTruncationError,
    Operation,
    classify,
    most_severe,
)
from oncelog.client.machines.positions import (
    NO_EPOCH,
    Diverged,
    Leadership,
    Position,
    compare,
    under,
)
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.offset_for_leader_epoch import EpochEndOffset

__all__ = ["truncation", "validate", "validate_each"]

OPEN_TO_CONSUMERS_SINCE = 3
"""Older versions of OffsetForLeaderEpoch need the right to act as a broker."""


async def validate(
    cluster: Cluster, positions: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, Position | Diverged]:
    """Each position as it stands under its present leader, which is asked where that is needed.

    Raises `RetriableError` when a leader is not known or does not answer.
    """
    checked, failed = await validate_each(cluster, positions)
    if failed:
        raise most_severe(failed.values())
    return checked


async def validate_each(
    cluster: Cluster, positions: Mapping[TopicPartition, Position]
) -> tuple[dict[TopicPartition, Position | Diverged], dict[TopicPartition, ClientError]]:
    """Do as `validate`, and return the errors of single partitions beside the others' positions.

    Raises `ConnectionLostError` when no broker tells who leads.
    """
    checked: dict[TopicPartition, Position | Diverged] = {}
    unsure: dict[int, dict[TopicPartition, tuple[Position, Leadership]]] = {}
    leaders, failed = await cluster.leaders(positions)
    for tp, node_id in leaders.items():
        position = positions[tp]
        now = cluster.metadata.leadership(tp)
        known = under(position, now)
        if known is None:
            unsure.setdefault(node_id, {})[tp] = (position, now)
        else:
            checked[tp] = known
    for node_id, wanted in unsure.items():
        try:
            ends = await _ends(cluster, node_id, wanted)
        except ConnectionLostError as error:
            for tp in wanted:
                cluster.metadata.mark_stale(tp.topic)
                failed[tp] = error
            continue
        for tp, end in ends.items():
            position, now = wanted[tp]
            if isinstance(end, ClientError):
                failed[tp] = end
            else:
                checked[tp] = compare(position, *end, now)
    return checked, failed


async def _ends(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, tuple[Position, Leadership]]
) -> dict[TopicPartition, tuple[int, int] | ClientError]:
    """(epoch, end offset) of the largest epoch up to each position's, or the error.

    Raises `ConnectionLostError`.
    """
    connection = await cluster.connection(node_id)
    version = connection.support.newest_common(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    if version is None or version < OPEN_TO_CONSUMERS_SINCE:
        return {tp: (position.epoch, position.offset) for tp, (position, _) in wanted.items()}
    request = requests.offset_for_leader_epoch_request(
        {tp: (now.leader_epoch, position.epoch) for tp, (position, now) in wanted.items()}
    )
    response = await cluster.request(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
    return dict(
        _end(cluster, str(topic.topic), p) for topic in response.topics for p in topic.partitions
    )


def _end(
    cluster: Cluster, topic: str, answer: EpochEndOffset
) -> tuple[TopicPartition, tuple[int, int] | ClientError]:
    tp = TopicPartition(topic, int(answer.partition))
    if answer.error_code is not ErrorCode.none:
        cluster.metadata.mark_stale(topic)
        return tp, classify(answer.error_code, Operation.OTHER, str(tp))
    return tp, (int(answer.leader_epoch), int(answer.end_offset))


def truncation(
    topic_partition: TopicPartition, position: Position, diverged: Diverged
) -> LogTruncationError:
    """The error for a reader whose log was cut below its position."""
    at = None
    if diverged.epoch != NO_EPOCH:
        at = OffsetAndMetadata(diverged.end_offset, "", diverged.epoch)
    return LogTruncationError(topic_partition, position.offset, at)

"""Handles DescribeTopicPartitions (75), version 0: returns topics in pages (KIP-966).

Topics are sorted by name, with at most `response_partition_limit` (and
`max.request.partition.size.limit`) partitions in all; `next_cursor` is the start of the next page.
An empty list of topics asks for all. A cursor that does not fit the request gets INVALID_REQUEST
for every topic named. The last known eligible leaders are the replicas of the last ISR that came
back and may have lost records, while none can lead without doubt. Gap: none known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from oncelog.broker.apis.metadata import TOPIC_OPERATIONS
from oncelog.broker.apis.responses import (
    ShownCluster,
    shown_by,
    shown_eligible,
    shown_isr,
)
from oncelog.broker.net.request import Request
from oncelog.controller.image import TopicImage
from oncelog.controller.topics import name_problem
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context,
    request: Request[DescribeTopicPartitionsRequest],
    hidden: Container[str] = (),
) -> DescribeTopicPartitionsResponse:
    """Return one page from the metadata image, without `hidden` topics."""
    body = request.body
    image = context.image
    shown = shown_by(image, request.connection.listener)
    cursor = body.cursor
    start_name, start_index = ("", 0)
    if cursor is not None:
        start_name, start_index = cursor.topic_name, cursor.partition_index
    wants_all = not body.topics
    asked = set(image.topics) if wants_all else {topic.name for topic in body.topics}
    names = sorted(name for name in asked if name >= start_name and name not in hidden)
    if cursor is not None and (start_index < 0 or (not wants_all and start_name not in asked)):
        return _refused(body.topics)
    limit = context.config.get_int("max.request.partition.size.limit")
    remaining = max(min(limit, body.response_partition_limit), 1)
    topics = []
    next_cursor = None
    for name in names:
        if remaining == 0:
            next_cursor = (name, 0)
            break
        topic = image.topic(name)
        if topic is None:
            if not wants_all:
                topics.append(_unknown(name))
            continue
        first = start_index if name == start_name else 0
        indexes = range(first, min(first + remaining, len(topic.partitions)))
        topics.append(_topic(shown, topic, indexes))
        remaining -= len(indexes)
        if indexes.stop < len(topic.partitions):
            next_cursor = (name, indexes.stop)
            break
    return DescribeTopicPartitionsResponse(
        topics=tuple(topics),
        next_cursor=(
            None
            if next_cursor is None
            else Cursor(topic_name=next_cursor[0], partition_index=next_cursor[1])
        ),
    )


def _refused(topics: Iterable[DescribeTopicPartitionsTopic]) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                error_code=ErrorCode.invalid_request,
            )
            for topic in topics
        ),
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_legal = name_problem(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.unknown_topic_or_partition if is_legal else ErrorCode.invalid_topic_exception
        ),
        name=name,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    shown: ShownCluster, topic: TopicImage, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        image = topic.partitions[index]
        leader, error = shown.leader(image)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=image.leader_epoch,
                replica_nodes=image.replicas,
                isr_nodes=shown_isr(shown.image, image),
                eligible_leader_replicas=shown_eligible(shown.image, image),
                last_known_elr=tuple(image.suspects),
                offline_replicas=shown.offline_replicas(image),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )

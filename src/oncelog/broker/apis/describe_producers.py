"""Handles DescribeProducers (61), version 0: returns the producer state of partitions (KIP-664).

Only the partition's leader answers; others return NOT_LEADER_OR_FOLLOWER. `last_timestamp` is the
time of the producer's last append on this broker's clock; Kafka returns the records' own timestamp.
Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.responses import each_once
from oncelog.broker.net.request import Request
from oncelog.controller.topics import name_problem
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Describe each partition independently."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _partition(context, topic.name, index)
                    for index in dict.fromkeys(topic.partition_indexes)
                ),
            )
            for topic in each_once(request.body.topics, lambda topic: topic.name)
        ),
    )


def _partition(context: Context, topic: str, index: int) -> PartitionResponse:
    problem = name_problem(topic)
    if problem is not None:
        text = f"Topic name is invalid: {problem}"
        return _failed(index, ErrorCode.invalid_topic_exception, text)
    if context.image.partition(topic, index) is None:
        return _failed(index, ErrorCode.unknown_topic_or_partition)
    partition = context.partitions.get(topic, index)
    if partition is None or not partition.state.is_leader:
        return _failed(index, ErrorCode.not_leader_or_follower)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        active_producers=tuple(
            ActiveProducer(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
            for entry in partition.log.producers.entries()
        ),
    )


def _failed(index: int, error: ErrorCode, text: str | None = None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=error,
        error_message=text,
        active_producers=(),
    )

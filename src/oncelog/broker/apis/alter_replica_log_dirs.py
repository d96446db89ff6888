"""Handles AlterReplicaLogDirs (34), versions 1-2: moves partitions between log directories.

The reply is sent when the moves have been requested; DescribeLogDirs shows their progress
(`is_future_key`). As in Kafka, an unknown directory gets LOG_DIR_NOT_FOUND, a failed one
KAFKA_STORAGE_ERROR, a partition without a replica here REPLICA_NOT_AVAILABLE. Gap: a restart
cancels a move; Kafka resumes it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """Request each move."""
    results: dict[str, dict[int, ErrorCode]] = {}
    for asked in request.body.dirs:
        for topic in asked.topics:
            for index in topic.partitions:
                error = _ask(context, TopicPartition(topic.name, index), asked.path)
                results.setdefault(topic.name, {})[index] = error
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index, error in partitions.items()
                ),
            )
            for name, partitions in results.items()
        ),
    )


def _ask(context: Context, topic_partition: TopicPartition, path: str) -> ErrorCode:
    if path in map(os.path.abspath, context.logs.off_line_directories):
        return ErrorCode.kafka_storage_error
    folders = {os.path.abspath(folder.directory): folder for folder in context.logs.online}
    if path not in folders:
        return ErrorCode.log_dir_not_found
    partition = context.partitions.get(*topic_partition)
    if partition is None:
        return ErrorCode.replica_not_available
    if partition.state.is_failed:
        return ErrorCode.kafka_storage_error
    context.mover.ask(topic_partition, folders[path])
    return ErrorCode.none

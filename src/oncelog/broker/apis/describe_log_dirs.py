"""Handles DescribeLogDirs (35), versions 1-5: returns log directories and the size of each log.

A null topic list asks for every log. A log that is being moved is listed in both directories, in
the new one with `is_future_key` and its lag. A failed directory gets KAFKA_STORAGE_ERROR and lists
no logs. Total and usable bytes come from the file system (KIP-827), -1 when it does not report
them. Gap: none known.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from oncelog.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

_UNKNOWN_BYTES = -1


async def handle(
    context: Context, request: Request[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    """Describe each log directory."""
    folders = context.logs.online
    results = [
        DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path)
        for path in map(os.path.abspath, context.logs.off_line_directories)
    ]

    def look() -> list[tuple[str, tuple[int, int] | None]]:
        paths = [os.path.abspath(folder.directory) for folder in folders]
        return [(path, context.disk.usage(path)) for path in paths]

    for folder, (path, usage) in zip(folders, await context.disk.run(look), strict=True):
        total_bytes, usable_bytes = usage or (_UNKNOWN_BYTES, _UNKNOWN_BYTES)
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.none,
                log_dir=path,
                topics=_topics(context, request, folder),
                total_bytes=min(total_bytes, INT64_MAX),
                usable_bytes=min(usable_bytes, INT64_MAX),
            )
        )
    return DescribeLogDirsResponse(error_code=ErrorCode.none, results=tuple(results))


def _topics(
    context: Context, request: Request[DescribeLogDirsRequest], folder: LogDirectory
) -> tuple[DescribeLogDirsTopic, ...]:
    wanted = None
    if request.body.topics is not None:
        wanted = {(t.topic, index) for t in request.body.topics for index in t.partitions}
    found: dict[str, list[DescribeLogDirsPartition]] = {}

    def add(label: TopicPartition, size_bytes: int, lag: int, *, is_future: bool) -> None:
        if wanted is None or label in wanted:
            found.setdefault(label.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=label.partition,
                    partition_size=size_bytes,
                    offset_lag=max(0, lag),
                    is_future_key=is_future,
                )
            )

    for partition in context.partitions:
        if partition.topic_partition in folder:
            held = partition.log
            behind = partition.state.high_watermark - held.log_end_offset
            add(partition.topic_partition, held.size_bytes, behind, is_future=False)
    for label, move in context.mover.moves.items():
        if move.target is folder:
            add(label, move.size_bytes, move.lag, is_future=True)
    return tuple(
        DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
        for name, partitions in sorted(found.items())
    )

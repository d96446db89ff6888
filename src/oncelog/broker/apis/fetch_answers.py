"""Answers of Fetch for a partition that is not read."""

from __future__ import annotations

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import PartitionImage
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchPartition, FetchPartitionResponse
from oncelog.protocol.fetch_values import ENDPOINTS_SINCE
from oncelog.replication.replica import ReplicaState

__all__ = ["diverging", "not_led", "out_of_range"]


def not_led(
    index: int, error: ErrorCode, leader: ReplicaState | PartitionImage, version: int
) -> FetchPartitionResponse:
    """Name the leader, as far as it is known here, with the error.

    Not below the version that has its address, as in Kafka: a client that does not know the broker
    could not ask it.
    """
    if version < ENDPOINTS_SINCE:
        return FetchPartitionResponse(index, error)
    return FetchPartitionResponse(index, error, current_leader=(leader.leader, leader.leader_epoch))


def out_of_range(partition: Partition, index: int) -> FetchPartitionResponse:
    """Answer for an offset that the log does not have, with what it has."""
    return FetchPartitionResponse(
        index,
        ErrorCode.offset_out_of_range,
        high_watermark=partition.state.high_watermark,
        log_start_offset=partition.log.log_start_offset,
    )


def diverging(partition: Partition, wanted: FetchPartition) -> FetchPartitionResponse | None:
    """Return where a reader's last epoch ended, if before its position (KIP-595), otherwise None.

    The reader's offset may have been reused after a truncation.
    """
    log = partition.log
    if wanted.last_fetched_epoch == log.latest_epoch and wanted.fetch_offset <= log.log_end_offset:
        return None  # The epoch that is written now, as almost always.
    epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if end_offset < 0:
        return out_of_range(partition, wanted.partition)
    # A follower may lag behind what the reader has: the end of its log is not that of the epoch.
    is_open = epoch == log.latest_epoch and not partition.state.is_leader
    if epoch == wanted.last_fetched_epoch and (is_open or end_offset >= wanted.fetch_offset):
        return None
    return FetchPartitionResponse(
        wanted.partition,
        0,
        partition.state.high_watermark,
        partition.last_stable_offset,
        log.log_start_offset,
        diverging_epoch=(epoch, end_offset),
    )

"""What a request is told that could not read or write a partition's log, and what is logged."""

from __future__ import annotations

import logging

from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import DAMAGED_PLACES_NAMED_COUNT_MAX
from oncelog.runtime.disk import StorageFailure

__all__ = ["note_damage"]

log = logging.getLogger(__name__)


def note_damage(partition: Partition, error: StorageFailure | ProtocolError) -> ErrorCode:
    """Return the error for a request that could not read or write here.

    A disk that fails takes its log directory off line (D12). A damaged batch is CORRUPT_MESSAGE for
    its readers, each place is logged once, and all other batches stay readable. The files of a
    deleted log are gone, which is no failure.
    """
    if partition.log.is_deleted:
        return ErrorCode.unknown_topic_or_partition
    partition.meter.failed_fetches += 1
    if isinstance(error, StorageFailure):
        partition.on_failure(error)
    elif error.code is ErrorCode.corrupt_message:
        said = partition.named_damage
        if error.message not in said and len(said) < DAMAGED_PLACES_NAMED_COUNT_MAX:
            said.add(error.message)
            log.error("%s is damaged: %s", partition.topic_partition, error.message)
    return error.code

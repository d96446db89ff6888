"""Loads a coordinator: its partition is read from start to end and replayed into its shard.

What was read counts once the high watermark has passed it: a next leader may not have a record
above, so that no marker, reply or offset may rest on one (`committed`). Kafka sends markers before
that, and a transaction can end both ways.

The executor reads; the event loop parses and applies, a bounded piece per turn, so that other
clients are served meanwhile. Of each stretch only the records that still count are decoded and
applied (`oncelog.coordinator.replay`).

It raises for a partition that cannot be loaded, with the offset; the caller decides what follows.
Only records of unknown types are skipped, as in Kafka, and one line logs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic

from oncelog.coordinator.replay import RecordToReplay, ReplayBuffer
from oncelog.coordinator.shard import (
    EffectT,
    EndTransactionMarker,
    EventT,
    ReplyT,
    marker_context,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.core.limits import (
    COORDINATOR_LOAD_BYTES,
    LOAD_APPLIED_PER_TURN_COUNT_MAX,
    LOAD_RECORDS_PER_TURN_COUNT_MAX,
    LOAD_STRETCH_BYTES_MAX,
    LOAD_STRETCH_RECORDS_COUNT_MAX,
)
from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record import Record, read_end_marker
from oncelog.protocol.records.scan import DamagedRecord, ScannedRecord, scan_batches
from oncelog.runtime.disk import Lane

if TYPE_CHECKING:
    from oncelog.broker.partitions.partition import Partition
    from oncelog.coordinator.event_processor import EventProcessor
    from oncelog.runtime.disk import Disk

__all__ = ["committed", "load"]

log = logging.getLogger(__name__)


async def load(
    processor: EventProcessor[EventT, ReplyT, EffectT],
    partition: Partition,
    disk: Disk,
    now_ms: int,
) -> int:
    """Replay the partition into the shard, up to its end, which is returned.

    A record whose timestamp is later than `now_ms` was written before the wall clock was set back;
    it counts as written now.

    Other coordinators may append markers meanwhile, so the end is read again after each turn.
    Raises `DamagedRecord`, `CorruptBatch` and whatever else reading the log raises.
    """
    log_ = partition.log
    loading = _Loading(processor, now_ms)
    offset = log_.log_start_offset
    while offset < log_.log_end_offset or loading.has_more:
        end = log_.log_end_offset
        if offset < end and not loading.is_full:
            read = partial(log_.read_cold, offset, COORDINATOR_LOAD_BYTES, upper_bound=end)
            batches = bytes(await disk.run(read, Lane.READ))
            for turn_ended_at in loading.take_in(batches, offset):
                offset = turn_ended_at
                await asyncio.sleep(0)
            if not batches:
                offset = end  # Compaction left nothing after the offset.
        else:
            for _ in loading.apply():
                await asyncio.sleep(0)
    loading.tell(partition)
    return offset


async def committed(partition: Partition, end_offset: int) -> ErrorCode:
    """Return once the high watermark has reached `end_offset`; an error if leadership is lost."""
    settled: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(error: ErrorCode) -> None:
        # The wait may have been cancelled.
        if not settled.done():
            settled.set_result(error)

    partition.on_committed(end_offset, settle)
    return await settled


class _Loading(Generic[EventT, ReplyT, EffectT]):
    """The stretch of the log that is being read."""

    def __init__(self, processor: EventProcessor[EventT, ReplyT, EffectT], now_ms: int) -> None:
        self._processor = processor
        self._now_ms = now_ms
        self._replay = ReplayBuffer()
        self._stretch_bytes = 0
        self._read_count = 0

    @property
    def has_more(self) -> bool:
        """Whether the stretch has records that are not applied yet."""
        return bool(self._replay)

    @property
    def is_full(self) -> bool:
        """Whether the stretch is long enough to be applied."""
        return (
            len(self._replay) >= LOAD_STRETCH_RECORDS_COUNT_MAX
            or self._stretch_bytes >= LOAD_STRETCH_BYTES_MAX
        )

    def take_in(self, batches: bytes, offset: int) -> Iterator[int]:
        """Add whole batches; yield the next offset after each turn."""
        turn_count = 0
        self._stretch_bytes += len(batches)
        next_offset = offset
        for header, records, next_offset in scan_batches(batches, offset):
            if header is None:
                self._replay.add(records)
            elif header.is_control:
                self._end_transactions(header, records)
            else:
                ids = (ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
                self._replay.add_transactional(records, *ids)
            self._read_count += len(records)
            turn_count += 1 + len(records)
            if turn_count >= LOAD_RECORDS_PER_TURN_COUNT_MAX:
                turn_count = 0
                yield next_offset
        yield next_offset

    def _end_transactions(self, header: BatchHeader, records: list[ScannedRecord]) -> None:
        ids = (ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
        for record in records:
            try:
                marker = read_end_marker(Record(*record))
            except ProtocolError as error:
                raise DamagedRecord(record[0], error.message) from error
            if marker is not None:
                self._replay.end_transaction(EndTransactionMarker(record[0], *ids, marker.commit))

    def apply(self) -> Iterator[None]:
        """Apply the stretch; yield after each turn."""
        stretch, self._replay = self._replay, ReplayBuffer()
        self._stretch_bytes = 0
        for number, step in enumerate(stretch.rest(), start=1):
            if isinstance(step, EndTransactionMarker):
                self._processor.replay(step, marker_context(step))
            else:
                self._apply(step)
            if number % LOAD_APPLIED_PER_TURN_COUNT_MAX == 0:
                yield

    def _apply(self, step: RecordToReplay) -> None:
        context = step.context
        if context.timestamp_ms > self._now_ms:
            context = replace(context, timestamp_ms=self._now_ms)
        self._processor.replay(step.record, context)

    def tell(self, partition: Partition) -> None:
        """Log that the partition is loaded, and which records were skipped."""
        topic_partition = partition.topic_partition
        log.info(
            "%s is loaded: %d records up to offset %d, of which %d counted",
            topic_partition,
            self._read_count,
            partition.log.log_end_offset,
            self._processor.replayed_count,
        )
        for kind, offset in self._processor.unknown.items():
            log.warning(
                "%s: records of type %d are ignored, as at offset %d: this version does not know "
                "them; a newer one may have left them",
                topic_partition,
                kind,
                offset,
            )

"""Sends encoded record batches under the producer id and epoch of the driver's transaction.

Tasks of the write stage use it, and the driver for small micro-batches. Connecting and sending are
retried until the delivery timeout, as in Java's producer: a broker that is down for seconds delays
the micro-batch, but costs no attempt.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.errors import ClientError
from oncelog.client.producer import Producer
from oncelog.core.errors import ErrorCode
from oncelog.spark.encoder import Blob, BlobOrder
from oncelog.spark.errors import TooLargeError
from oncelog.spark.parties import TaskReport
from oncelog.spark.targets import Targets

__all__ = ["Deliveries"]

IN_FLIGHT_COUNT_MAX: Final = 16
"""Record batches of one sender that wait for their acknowledgement before it takes more."""


@dataclass(slots=True)
class _Written:
    record_count: int
    first_offset: int
    last_offset: int


class Deliveries:
    """Sends one sender's batches of one transaction, and reports their offsets.

    A target partition may have one sender per (producer id, epoch) only, which begins at sequence 0
    (INV-2), unless senders take turns (`oncelog.spark.sharing`).
    """

    def __init__(self, producer: Producer, targets: Targets) -> None:
        self._producer = producer
        self._targets = targets
        self._order = BlobOrder()
        self._pending: list[tuple[Blob, asyncio.Future[Any]]] = []
        self._written: dict[int, _Written] = {}

    async def send(self, blobs: Iterable[Blob]) -> None:
        """Queue blobs; wait for older ones while many are in flight.

        Raises what the producer raised for an older one, or `WriteStageError` for a blob that is
        not the next of its source and target.
        """
        for blob in blobs:
            self._order.check(blob)
            topic, partition = self._targets.topic_partition(blob.target)
            try:
                future = self._producer.send_batch(topic, partition, blob.data, blob.record_count)
            except ClientError:
                # The transaction has failed; the delivery that failed it has the reason.
                await self.settle()
                raise
            self._pending.append((blob, future))
            if len(self._pending) >= IN_FLIGHT_COUNT_MAX:
                await self._settle(len(self._pending) // 2)

    async def finish(self, task: int) -> list[TaskReport]:
        """Wait until everything is acknowledged, and return the reports."""
        await self._producer.flush()
        await self.settle()
        return self.reports(task)

    async def settle(self) -> None:
        """Wait until everything is acknowledged. Raises as `send`."""
        await self._settle(len(self._pending))

    def reports(self, task: int) -> list[TaskReport]:
        """Return what was acknowledged."""
        return [
            TaskReport(
                task,
                self._targets.topic_partition(number),
                entry.record_count,
                entry.first_offset,
                entry.last_offset,
            )
            for number, entry in sorted(self._written.items())
        ]

    async def _settle(self, count: int) -> None:
        """Wait for the oldest `count` batches and record their offsets."""
        for blob, future in self._pending[:count]:
            try:
                metadata = await future
            except ClientError as error:
                if error.code is ErrorCode.message_too_large:
                    raise self._too_large(blob) from error
                raise
            # Batches of a partition are appended in this order, so offsets rise.
            first = metadata.offset
            entry = self._written.setdefault(blob.target, _Written(0, first, first))
            entry.record_count += blob.record_count
            entry.last_offset = first + blob.record_count - 1
        del self._pending[:count]

    def _too_large(self, blob: Blob) -> TooLargeError:
        topic = self._targets.topic_partition(blob.target).topic
        return TooLargeError(topic, len(blob.data), blob.record_count)

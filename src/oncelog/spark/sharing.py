"""Encodes rows as record batches and sends them at once, from tasks that share the partitions.

Nothing is shuffled: each task sends what it has to every target partition, when it is its turn
there (`oncelog.spark.turns`). So a stage of these tasks can be the query's own last one. As with
`oncelog.spark.tasks.WriteTask`, a second attempt of a task raises an error: its records would
follow those of the first attempt (INV-2, INV-10). Picklable.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from oncelog.client.producer import Producer
from oncelog.core.ids import TopicPartition
from oncelog.runtime.loop import new_event_loop
from oncelog.spark.encoder import Blob, Encoder
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.sending import Deliveries
from oncelog.spark.targets import Targets
from oncelog.spark.tasks import REPORT_SCHEMA, first_attempt, row_of
from oncelog.spark.turn_server import TurnClient, TurnsAddress
from oncelog.spark.worker import spare_collections

__all__ = ["ShareTask", "SharedDeliveries", "merged", "one_error"]

HELD_SIZE_MAX: Final = 8 << 20
"""Bytes of record batches of one task that wait for their turn or their acknowledgement before it
encodes more."""


@dataclass(frozen=True, slots=True)
class ShareTask:
    """The function of the stage (`mapInArrow`): encodes and sends rows, returns reports."""

    encoder: Encoder
    turns: TurnsAddress
    bootstrap_servers: str
    transactional_id: str
    identity: ProducerIdentity
    producer_options: dict[str, Any] = field(default_factory=dict)
    progress_path: str | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Send all rows of one partition, and yield the reports once all are acknowledged."""
        spare_collections()
        task = first_attempt()
        blocks = self.encoder.encode(task, batches)
        first = next(blocks, None)
        if first is None:
            return
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            reports = runner.run(self._write(task, first, blocks))
        yield pa.RecordBatch.from_pylist([row_of(r) for r in reports], schema=REPORT_SCHEMA)

    async def _write(
        self, task: int, first: list[Blob], rest: Iterator[list[Blob]]
    ) -> list[TaskReport]:
        batch_id = self.encoder.batch_id
        producer = Producer.attach(
            self.bootstrap_servers,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            **self.producer_options,
        )
        async with TurnClient.connected(self.turns, task) as turns, producer:
            ProgressLog(self.progress_path).step("mid_task", batch_id, task=task)
            async with one_error(), asyncio.TaskGroup() as group:
                deliveries = SharedDeliveries(producer, self.encoder.targets, turns, group)
                blobs: list[Blob] | None = first
                while blobs is not None:
                    await deliveries.send(blobs)
                    # Rows come from a socket that blocks; what is encoded is sent meanwhile.
                    blobs = await asyncio.to_thread(next, rest, None)
            return deliveries.reports(task)


class SharedDeliveries:
    """Sends one task's record batches in its turns. Its tasks belong to `group`."""

    def __init__(
        self, producer: Producer, targets: Targets, turns: TurnClient, group: asyncio.TaskGroup
    ) -> None:
        self._producer, self._targets = producer, targets
        self._turns, self._group = turns, group
        self._queues: dict[int, list[Blob]] = defaultdict(list)
        self._deliveries: dict[int, Deliveries] = {}
        self._sending: set[int] = set()
        self._held_size = 0
        self._freed = asyncio.Event()

    async def send(self, blobs: Iterable[Blob]) -> None:
        """Queue blobs; wait while many bytes are queued. Blobs of a target keep their order."""
        for blob in blobs:
            self._queues[blob.target].append(blob)
            self._held_size += len(blob.data)
            if blob.target not in self._sending:
                self._sending.add(blob.target)
                self._group.create_task(self._send_all(blob.target))
        while self._held_size > HELD_SIZE_MAX:
            self._freed.clear()
            await self._freed.wait()

    def reports(self, task: int) -> list[TaskReport]:
        """Return what was acknowledged, once the group has ended."""
        return [
            report
            for _, deliveries in sorted(self._deliveries.items())
            for report in deliveries.reports(task)
        ]

    async def _send_all(self, target: int) -> None:
        """Send the target's queue, with a turn for all that is queued when the turn comes."""
        topic, partition = self._targets.topic_partition(target)
        deliveries = self._deliveries.setdefault(target, Deliveries(self._producer, self._targets))
        while self._queues[target]:
            sequence = await self._turns.take(target)
            blobs = self._queues.pop(target)
            self._producer.continue_at(topic, partition, sequence)
            await deliveries.send(blobs)
            await deliveries.settle()
            self._turns.give_back(target, sum(blob.record_count for blob in blobs))
            self._held_size -= sum(len(blob.data) for blob in blobs)
            self._freed.set()
        self._sending.discard(target)


def merged(reports: Iterable[TaskReport]) -> list[TaskReport]:
    """Return one report for each partition; its task is the first of those that wrote there."""
    found: dict[TopicPartition, TaskReport] = {}
    for report in reports:
        place = report.topic_partition
        other = found.setdefault(place, report)
        if other is not report:
            found[place] = replace(
                other,
                task=min(other.task, report.task),
                record_count=other.record_count + report.record_count,
                first_offset=min(other.first_offset, report.first_offset),
                last_offset=max(other.last_offset, report.last_offset),
            )
    return list(found.values())


@asynccontextmanager
async def one_error() -> AsyncIterator[None]:
    """Raise the first error of a task group alone: a failed job's message has one line."""
    try:
        yield
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None

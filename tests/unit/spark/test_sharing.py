"""Tasks that share a made-up topic: what each sends in its turns, and what they report."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

import oncelog.spark.sharing as sharing_module
from oncelog.client.errors import AbortableError
from oncelog.client.values import RecordMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.encoder import Blob
from oncelog.spark.errors import TooLargeError, WriteStageError
from oncelog.spark.parties import TaskReport
from oncelog.spark.sharing import SharedDeliveries, merged, one_error
from oncelog.spark.targets import Targets
from oncelog.spark.turn_server import TurnClient, TurnServer

pytestmark = pytest.mark.timeout(10)

TARGETS = Targets(("out",), (2,))


class Log:
    """Partitions that take only the sequence that is due (INV-2), a moment after it was sent."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = defaultdict(int)
        self.written: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By partition: (task, number of the blob)."""


class Producer:
    def __init__(self, log: Log, task: int, refuse: Exception | None = None) -> None:
        self.log, self.task, self.refuse = log, task, refuse
        self.sequences: dict[int, int] = {}

    def continue_at(self, topic: str, partition: int, sequence: int) -> None:
        self.sequences[partition] = sequence

    def send_batch(
        self, topic: str, partition: int, data: bytearray, record_count: int
    ) -> "asyncio.Future[RecordMetadata]":
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        sequence = self.sequences[partition]
        self.sequences[partition] += record_count

        def append() -> None:
            refuse = self.refuse
            if refuse is None and sequence != self.log.ends[partition]:
                refuse = AbortableError(ErrorCode.out_of_order_sequence_number, "")
            if refuse is not None:
                future.set_exception(refuse)
                future.exception()
                return
            self.log.ends[partition] += record_count
            self.log.written[partition].append((self.task, data[0]))
            future.set_result(RecordMetadata(topic, partition, sequence + 100, 0))

        loop.call_later(0.001, append)
        return future


def blobs(task: int, target: int, first: int, count: int) -> list[Blob]:
    return [Blob(target, task, n, 5, bytearray([n])) for n in range(first, first + count)]


async def write(server: TurnServer, producer: Producer, rounds_count: int) -> list[TaskReport]:
    task = producer.task
    async with TurnClient.connected(server.address, task) as turns:
        async with one_error(), asyncio.TaskGroup() as group:
            shared: Any = SharedDeliveries(producer, TARGETS, turns, group)  # type: ignore[arg-type]
            for number in range(rounds_count):
                await shared.send(blobs(task, 0, 3 * number, 3) + blobs(task, 1, number, 1))
        reports: list[TaskReport] = shared.reports(task)
    return reports


@pytest.mark.parametrize("held_size_max", [1, 1 << 20])
async def test_tasks_that_share_partitions_write_contiguous_sequences_each_in_its_order(
    monkeypatch: pytest.MonkeyPatch, held_size_max: int
) -> None:
    """INV-2, whether a task waits for each of its batches or queues all of them."""
    monkeypatch.setattr(sharing_module, "HELD_SIZE_MAX", held_size_max)
    log, server = Log(), TurnServer()
    await server.start()
    reports = await asyncio.gather(*(write(server, Producer(log, n), 4) for n in range(3)))
    total = merged(report for task in reports for report in task)
    server.check(total, TARGETS)
    await server.close()
    assert total == [
        TaskReport(0, TopicPartition("out", 0), 180, 100, 279),
        TaskReport(0, TopicPartition("out", 1), 60, 100, 159),
    ]
    for partition, count in ((0, 12), (1, 4)):
        written = log.written[partition]
        for task in range(3):
            assert [n for who, n in written if who == task] == list(range(count))


async def test_a_refused_batch_ends_the_task_with_its_own_error_and_the_others_with_it() -> None:
    log, server = Log(), TurnServer()
    await server.start()
    refusing = Producer(log, 0, AbortableError(ErrorCode.message_too_large, ""))
    ended = await asyncio.gather(
        write(server, refusing, 2), write(server, Producer(log, 1), 80), return_exceptions=True
    )
    await server.close()
    assert isinstance(ended[0], TooLargeError)
    assert isinstance(ended[1], WriteStageError)
    assert "TooLargeError: topic 'out' refuses" in str(ended[1])
    assert server.turns.failure is not None


def test_reports_of_one_partition_become_one() -> None:
    a, b = TopicPartition("out", 0), TopicPartition("out", 1)
    reports = [TaskReport(1, a, 5, 10, 14), TaskReport(0, a, 7, 3, 9), TaskReport(0, b, 1, 0, 0)]
    assert merged(reports) == [TaskReport(0, a, 12, 3, 14), TaskReport(0, b, 1, 0, 0)]

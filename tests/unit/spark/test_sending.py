"""What one sender sends, with a made-up producer, and the driver as a sender."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

import oncelog.spark.direct as direct_module
from oncelog.client.errors import AbortableError, DeliveryTimeoutError
from oncelog.client.values import RecordMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.direct import DRIVER_TASK, DirectWriter
from oncelog.spark.encoder import Blob
from oncelog.spark.errors import TooLargeError, WriteStageError
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.sending import Deliveries
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.targets import Targets

TARGETS = Targets(("a", "b"), (1, 2))
T = TypeVar("T")


class FakeProducer:
    """Acknowledges each batch at the end of its partition, or refuses it."""

    made: list["FakeProducer"]

    def __init__(self, *_: Any, refuse: Exception | None = None, **identity: Any) -> None:
        self.identities = [(identity.get("producer_id"), identity.get("producer_epoch"))]
        self.ends: dict[TopicPartition, int] = {}
        self.refuse = refuse
        self.is_closed = False

    @classmethod
    def attach(cls, *_: Any, **options: Any) -> "FakeProducer":
        cls.made.append(cls(**options))
        return cls.made[-1]

    async def start(self) -> None:
        pass

    def reattach(self, producer_id: int, producer_epoch: int) -> None:
        self.identities.append((producer_id, producer_epoch))

    def send_batch(
        self, topic: str, partition: int, data: bytearray, record_count: int
    ) -> "asyncio.Future[RecordMetadata]":
        future = asyncio.get_running_loop().create_future()
        place = TopicPartition(topic, partition)
        offset = self.ends.get(place, 100)
        if self.refuse is not None:
            future.set_exception(self.refuse)
        else:
            future.set_result(RecordMetadata(topic, partition, offset, 0))
            self.ends[place] = offset + record_count
        return future

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


def blobs(count: int, target: int = 2) -> list[Blob]:
    return [Blob(target, 0, number, 5, bytearray(9)) for number in range(count)]


async def deliver(producer: Any, some: list[Blob]) -> list[TaskReport]:
    deliveries = Deliveries(producer, TARGETS)
    await deliveries.send(some)
    return await deliveries.finish(3)


def test_every_acknowledged_batch_is_in_the_report() -> None:
    reports = asyncio.run(deliver(FakeProducer(), [*blobs(40), *blobs(1, 0)]))
    assert reports == [
        TaskReport(3, TopicPartition("a", 0), 5, 100, 104),
        TaskReport(3, TopicPartition("b", 1), 200, 100, 299),
    ]


def test_a_refused_batch_is_named_with_its_size_and_its_records() -> None:
    refusal = AbortableError(ErrorCode.message_too_large, "")
    with pytest.raises(TooLargeError, match="topic 'b' refuses a record batch of 9 bytes with 5"):
        asyncio.run(deliver(FakeProducer(refuse=refusal), blobs(1)))


class Loop:
    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(coroutine)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> DirectWriter:
    FakeProducer.made = []
    monkeypatch.setattr(direct_module, "Producer", FakeProducer)
    driver = ProtocolOptions("app")
    options = SinkOptions("host:1", driver, None, None, None, 1000, "none", 5_000, None)
    return DirectWriter(options, Loop())


def test_the_driver_keeps_its_producer_and_takes_each_epoch(writer: DirectWriter) -> None:
    for epoch in (1, 2):
        (report,) = writer.write(ProducerIdentity(7, epoch), 0, TARGETS, [blobs(2)])
        assert (report.task, report.record_count) == (DRIVER_TASK, 10)
    (producer,) = FakeProducer.made
    assert producer.identities == [(7, 1), (7, 2)]


def test_the_driver_sends_all_that_the_encoder_yields(writer: DirectWriter) -> None:
    rows = [blobs(2), blobs(3, target=1)]
    reports = writer.write(ProducerIdentity(7, 1), 0, TARGETS, rows)
    assert [report.record_count for report in reports] == [15, 10]


def test_after_a_failed_write_the_driver_takes_a_new_producer(writer: DirectWriter) -> None:
    writer.write(ProducerIdentity(7, 1), 0, TARGETS, [blobs(1)])
    FakeProducer.made[0].refuse = DeliveryTimeoutError("nobody answered")
    with pytest.raises(WriteStageError, match="nobody answered"):
        writer.write(ProducerIdentity(7, 2), 0, TARGETS, [blobs(1)])
    assert FakeProducer.made[0].is_closed
    writer.write(ProducerIdentity(7, 3), 0, TARGETS, [blobs(1)])
    assert [producer.identities for producer in FakeProducer.made] == [[(7, 1), (7, 2)], [(7, 3)]]


def test_rows_that_fail_to_come_cost_the_producer_too(writer: DirectWriter) -> None:
    def rows() -> Any:
        yield blobs(1)
        raise WriteStageError("the job failed")

    with pytest.raises(WriteStageError, match="the job failed"):
        writer.write(ProducerIdentity(7, 1), 0, TARGETS, rows())
    assert FakeProducer.made[0].is_closed

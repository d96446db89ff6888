"""The ledger of a client finds what breaks the promises of producers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.client import RecordMetadata, TopicPartition
from oncelog.client.values import ConsumerRecord
from oncelog.protocol.batch import set_producer
from oncelog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.protocol.record import Record, build_batch
from oncelog.simulation.workloads.ledger import Entry, Ledger, Settings

PLACE = TopicPartition("mine", 0)
SETTINGS = Settings(0, 16_384, 20_000, 3_000, is_transactional=False)


class Kept:
    """A ledger, with what it complains of."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.now_ms = 1_000.0
        self.ledger = Ledger("c0", lambda: self.now_ms, self.complaints.append)
        self.deliveries: list[asyncio.Future[RecordMetadata]] = []

    def add(self, count: int) -> None:
        for number in range(len(self.deliveries), len(self.deliveries) + count):
            delivery = asyncio.get_running_loop().create_future()
            value = f"c0.0/{number}/-1/".encode()
            entry = Entry(PLACE, value, 5, 30, (), self.now_ms, SETTINGS, number, 0, -1)
            self.ledger.add(entry, delivery)
            self.deliveries.append(delivery)

    def produce(self, numbers: range, sequence: int) -> None:
        records = [
            Record(at, 5, None, f"c0.0/{number}/-1/".encode(), ())
            for at, number in enumerate(numbers)
        ]
        batch = build_batch(records)
        set_producer(
            batch, 0, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=False
        )
        place = ProducePartition(0, memoryview(batch))
        topics = [ProduceTopic("mine", None, [place])]
        self.ledger.produced(ProduceRequest(None, -1, 3_000, topics))

    async def acknowledge(self, number: int, offset: int) -> None:
        self.deliveries[number].set_result(RecordMetadata("mine", 0, offset, 5))
        await asyncio.sleep(0)


@asynccontextmanager
async def kept(count: int) -> AsyncIterator[Kept]:
    one = Kept()
    one.add(count)
    yield one
    for delivery in one.deliveries:
        delivery.cancel()


async def test_a_right_producer_is_not_complained_of() -> None:
    async with kept(3) as one:
        one.produce(range(2), 0)
        one.produce(range(2), 0)
        one.produce(range(2, 3), 2)
        for number in range(3):
            await one.acknowledge(number, number)
        one.ledger.read(_record(2, 2), 2, committed=False)
        assert one.complaints == []


async def test_a_gap_in_the_sequences_is_found() -> None:
    async with kept(2) as one:
        one.produce(range(1), 0)
        one.produce(range(1, 2), 2)
        assert "due is 1" in one.complaints[0]


async def test_other_records_under_the_same_sequence_are_found() -> None:
    async with kept(2) as one:
        one.produce(range(1), 0)
        one.produce(range(1, 2), 0)
        assert one.complaints


async def test_a_sixth_batch_in_flight_is_found() -> None:
    async with kept(6) as one:
        for number in range(6):
            one.produce(range(number, number + 1), number)
        assert len(one.complaints) == 1


async def test_an_acknowledgement_out_of_order_is_found() -> None:
    async with kept(2) as one:
        one.produce(range(2), 0)
        await one.acknowledge(1, 1)
        assert "was acknowledged before" in one.complaints[0]


async def test_a_record_that_is_left_out_is_found() -> None:
    async with kept(2) as one:
        one.produce(range(2), 0)
        await one.acknowledge(0, 0)
        await one.acknowledge(1, 1)
        one.ledger.read(_record(1, 1), 0, committed=False)
        assert "was left out" in one.complaints[0]


def _record(number: int, offset: int) -> ConsumerRecord:
    value = f"c0.0/{number}/-1/".encode()
    return ConsumerRecord("mine", 0, offset, 5, 0, None, value, (), 0)

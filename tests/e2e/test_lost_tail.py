"""A consumer that runs on while its broker dies and loses the tail of a log (KIP-320)."""

from pathlib import Path

import pytest

from oncelog.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    LogTruncationError,
    NewTopic,
    Producer,
    TopicPartition,
)
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TP = TopicPartition("t", 0)


async def produce(servers: str, values: range) -> None:
    """Each record in a batch of its own."""
    async with Producer(servers, linger_ms=0) as producer:
        for value in values:
            await producer.send(TP.topic, b"%d" % value, partition=TP.partition)


async def read_to(consumer: Consumer, end: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while not records or records[-1].offset < end - 1:
        records += await consumer.poll(1_000)
    return records


def lose_the_tail(folder: Path) -> None:
    """As a power failure may: the second half of the log was never synced."""
    path = folder / str(TP) / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + 10])


async def test_records_that_take_the_offsets_of_a_lost_tail_are_not_missed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic(TP.topic, 1)])
        async with (
            Consumer(servers) as going_on,
            Consumer(servers, auto_offset_reset="none") as asking,
        ):
            for consumer in (going_on, asking):
                consumer.assign([TP])
                consumer.seek(TP, 0)
            await produce(servers, range(40))
            for consumer in (going_on, asking):
                assert len(await read_to(consumer, 40)) == 40
            broker.kill()
            lose_the_tail(broker.folder)
            broker.start()
            await produce(servers, range(100, 140))
            with pytest.raises(LogTruncationError, match="up to offset 40") as raised:
                await read_to(asking, 60)
            assert raised.value.diverging is not None
            assert raised.value.diverging[::2] == (20, 0)
            asking.seek(TP, raised.value.diverging)
            for consumer in (going_on, asking):
                seen = [(r.offset, r.value, r.leader_epoch) for r in await read_to(consumer, 60)]
                assert seen == [(20 + n, b"%d" % (100 + n), 1) for n in range(40)]

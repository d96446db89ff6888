"""Our client's transactions against a real broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from oncelog.client import (
    Admin,
    Consumer,
    FencedError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RetriableError,
    TopicPartition,
    TransactionDriver,
)
from oncelog.protocol.record import Record, build_batch

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PARTITION_COUNT = 3


@pytest.fixture
def servers(bootstrap_servers: str) -> str:
    return bootstrap_servers


@pytest.fixture
async def topic(servers: str) -> AsyncIterator[str]:
    name = f"client-{uuid.uuid4().hex[:12]}"
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name, PARTITION_COUNT)])
        yield name


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    """Both transaction protocols."""
    return int(request.param)


async def read(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end that the isolation level lets one see, sorted."""
    partitions = [TopicPartition(topic, i) for i in range(PARTITION_COUNT)]
    async with (
        Admin(servers) as admin,
        Consumer(servers, isolation_level=isolation) as consumer,  # type: ignore[arg-type]
    ):
        ends = await admin.list_offsets(
            dict.fromkeys(partitions, "latest"),
            isolation,  # type: ignore[arg-type]
        )
        consumer.assign(partitions)
        values: list[bytes] = []
        while [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
            values += [record.value or b"" for record in await consumer.poll(500)]
    return sorted(values)


async def test_only_committed_records_are_seen(servers: str, topic: str, version: int) -> None:
    async with Producer(
        servers, transactional_id=topic, transaction_version_max=version
    ) as producer:
        await producer.init_transactions()
        for number in range(6):
            await producer.begin_transaction()
            for partition in range(PARTITION_COUNT):
                producer.send(topic, b"%d" % number, partition=partition)
            if number % 3 == 1:
                await producer.flush()
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    assert await read(servers, topic) == sorted([b"0", b"2", b"4"] * PARTITION_COUNT)
    everything = await read(servers, topic, "read_uncommitted")
    assert everything.count(b"1") == PARTITION_COUNT


async def test_a_second_instance_fences_the_first(servers: str, topic: str, version: int) -> None:
    options = {"transactional_id": topic, "transaction_version_max": version}
    async with (
        Producer(servers, **options) as first,  # type: ignore[arg-type]
        Producer(servers, **options) as second,  # type: ignore[arg-type]
    ):
        await first.init_transactions()
        await first.begin_transaction()
        await first.send(topic, b"lost", partition=0)
        await second.init_transactions()
        with pytest.raises(FencedError):
            await first.commit_transaction()
        await second.begin_transaction()
        await second.send(topic, b"kept", partition=0)
        await second.commit_transaction()
    assert await read(servers, topic) == [b"kept"]


async def test_offsets_become_visible_when_the_transaction_commits(
    servers: str, topic: str, version: int
) -> None:
    group, source = f"g-{topic}", TopicPartition(topic, 0)
    async with (
        Producer(servers, transactional_id=topic, transaction_version_max=version) as producer,
        Consumer(servers, group_id=group, retry_timeout_ms=300) as consumer,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({source: OffsetAndMetadata(5, "five")}, group)
        assert await consumer.committed([source], require_stable=False) == {}
        with pytest.raises(RetriableError, match="UNSTABLE_OFFSET_COMMIT"):
            await consumer.committed([source])
        await producer.abort_transaction()
        assert await consumer.committed([source]) == {}
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({source: OffsetAndMetadata(6, "six")}, group)
        await producer.commit_transaction()
        assert await consumer.committed([source]) == {source: OffsetAndMetadata(6, "six")}


async def attached(
    servers: str, driver: TransactionDriver, producer: tuple[int, int], topic: str, partition: int
) -> int:
    """What a worker does: encoded batches for its own partition."""
    values = [b"p%d-%d" % (partition, number) for number in range(3)]
    records = [Record(i, 1_000, None, value, ()) for i, value in enumerate(values)]
    version = driver.transaction_version
    async with Producer.attach(
        servers, driver.transactional_id, *producer, transaction_version_max=version
    ) as worker:
        first = worker.send_batch(topic, partition, build_batch(records), len(records))
        second = worker.send_batch(topic, partition, build_batch(records), len(records))
        await worker.flush()
        assert second.result().offset == first.result().offset + len(records)
    return 2 * len(records)


async def test_a_driver_ends_what_its_workers_wrote(servers: str, topic: str, version: int) -> None:
    marker = TopicPartition(topic, 0)
    async with TransactionDriver(servers, topic, transaction_version_max=version) as driver:
        await driver.open()
        assert await driver.fetch_offsets(topic) == {}
        for batch in range(4):
            producer = await driver.new_epoch()
            await asyncio.gather(
                *(attached(servers, driver, producer, topic, i) for i in range(PARTITION_COUNT))
            )
            await driver.txn_offset_commit(topic, {marker: OffsetAndMetadata(batch, f"b{batch}")})
            if batch == 1:
                # The driver gives the batch up without a word: the next epoch aborts it.
                continue
            await driver.end(commit=batch != 2)
        assert await driver.fetch_offsets(topic) == {marker: OffsetAndMetadata(3, "b3")}
    values = await read(servers, topic)
    assert len(values) == 2 * 2 * 3 * PARTITION_COUNT
    assert len(set(values)) == 3 * PARTITION_COUNT


async def test_a_new_driver_fences_the_old_one_and_aborts_its_batch(
    servers: str, topic: str, version: int
) -> None:
    async with (
        TransactionDriver(servers, topic, transaction_version_max=version) as old,
        TransactionDriver(servers, topic, transaction_version_max=version) as new,
    ):
        await old.open()
        producer = await old.new_epoch()
        await attached(servers, old, producer, topic, 0)
        await new.open()
        with pytest.raises(FencedError):
            await old.end(commit=True)
        with pytest.raises(FencedError):
            await old.new_epoch()
    assert await read(servers, topic) == []

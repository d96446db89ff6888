"""Our own clients follow coordinators that move, and learn how their transaction has ended."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client import (
    Consumer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionDriver,
)
from oncelog.client.group_session import GroupProtocol
from oncelog.testing.moments import TransactionWriteKind
from tests.support.transaction_stage import (
    COORDINATOR,
    GROUP,
    GROUPS,
    TOPIC,
    TRANSACTIONAL_ID,
    by_leader,
    stage,
)

pytestmark = pytest.mark.slow

QUICK: Any = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
READ = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_coming", [True, False], ids=["undecided", "decided"])
async def test_a_driver_ends_its_transaction_at_the_next_coordinator(
    version: int, is_coming: bool
) -> None:
    async with (
        stage() as on,
        TransactionDriver(
            on.servers, TRANSACTIONAL_ID, transaction_version_max=version, **QUICK
        ) as driver,
    ):
        await driver.open()
        for value, offset in ((b"one", 1), (b"two", 2)):
            ids = await driver.new_epoch()
            async with Producer.attach(
                on.servers, TRANSACTIONAL_ID, *ids, transaction_version_max=version, **QUICK
            ) as worker:
                for partition in range(3):
                    await worker.send(TOPIC, value, partition=partition)
            await driver.txn_offset_commit(GROUP, {READ: OffsetAndMetadata(offset)})
            if value == b"one":
                # A marker is written once PREPARE is committed.
                kind = TransactionWriteKind.PREPARE if is_coming else TransactionWriteKind.MARKER
                on.kill_at(COORDINATOR, by_leader(kind), is_coming=True)
            await driver.end(commit=True)
        assert on.dead == [COORDINATOR]
        assert await driver.fetch_offsets(GROUP) == {READ: OffsetAndMetadata(2)}
        await on.settle()
        assert on.logs() == [["one", "COMMIT", "two", "COMMIT"]] * 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_stays_one_when_its_groups_coordinator_dies(protocol: GroupProtocol) -> None:
    async with stage() as on:
        async with Producer(on.servers) as producer:
            for partition in range(3):
                await producer.send(TOPIC, b"one", partition=partition)
        async with Consumer(
            on.servers, group_id=GROUP, group_protocol=protocol, enable_auto_commit=False, **QUICK
        ) as consumer:
            consumer.subscribe([TOPIC])
            read = 0
            while read < 3:
                read += len(await consumer.poll(1_000))
            await consumer.commit()
            before = consumer.group_metadata()
            on.kill(GROUPS)
            await on.buried()
            async with Producer(on.servers, **QUICK) as producer:
                for partition in range(3):
                    await producer.send(TOPIC, b"two", partition=partition)
            while read < 6:
                read += len(await consumer.poll(1_000))
            await consumer.commit()
            assert consumer.group_metadata() == before
        assert read == 6

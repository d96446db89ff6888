"""INV-11: a producer id is never issued twice, across restarts and brokers."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.limits import PRODUCER_ID_BLOCK_COUNT
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Stored, Write
from oncelog.protocol.api import ApiKey
from tests.support.members import members
from tests.unit.broker.apis.producing import prepare
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import init_producer


def ids_on(store: MemoryStore) -> ProducerIds:
    return ProducerIds(store)


async def test_ids_are_consecutive_within_blocks() -> None:
    ids = ids_on(MemoryStore())
    assert [await ids.next() for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_block_is_used_up_before_the_one_that_was_fetched_ahead() -> None:
    ids = ids_on(MemoryStore())
    drawn = []
    for _ in range(2 * PRODUCER_ID_BLOCK_COUNT):
        drawn.append(await ids.next())
        await asyncio.sleep(0)  # So that a refill gets on.
    assert drawn == list(range(2 * PRODUCER_ID_BLOCK_COUNT))
    assert ids.remaining_count == PRODUCER_ID_BLOCK_COUNT


async def test_a_restart_skips_the_rest_of_the_block() -> None:
    store = MemoryStore()
    assert await ids_on(store).next() == 0
    assert await ids_on(store).next() == PRODUCER_ID_BLOCK_COUNT


async def test_two_brokers_never_issue_the_same_id() -> None:
    store = MemoryStore()
    suppliers = [ids_on(store), ids_on(store)]

    async def draw(ids: ProducerIds) -> list[int]:
        return [await ids.next() for _ in range(2 * PRODUCER_ID_BLOCK_COUNT + 10)]

    drawn = await asyncio.gather(*(draw(ids) for ids in suppliers))
    flat = [producer_id for part in drawn for producer_id in part]
    assert len(set(flat)) == len(flat)


class ContestedStore(MemoryStore):
    """A store in which a rival reserves a block between each of the next reads and its write."""

    def __init__(self, rivals_count: int) -> None:
        super().__init__()
        self._rivals_count = rivals_count

    async def get(self, path: str) -> Stored | None:
        stored = await super().get(path)
        if self._rivals_count:
            self._rivals_count -= 1
            value, version = stored or (b"0", 0)
            after = str(int(value) + PRODUCER_ID_BLOCK_COUNT).encode()
            await self.write_all([Write(path, after, version)])
        return stored


@pytest.mark.parametrize("rivals_count", [1, 2])
async def test_a_block_that_a_rival_reserved_first_is_left_to_it(rivals_count: int) -> None:
    """INV-11: the first ids of a fresh store, and those of a later block."""
    ids = ids_on(ContestedStore(rivals_count))
    assert await ids.next() == rivals_count * PRODUCER_ID_BLOCK_COUNT


async def test_nothing_is_taken_before_a_block_is_durable() -> None:
    ids = ids_on(MemoryStore())
    assert ids.take() is None
    await ids.ready()
    assert ids.take() == 0


class SlowStore(MemoryStore):
    """A store whose writes begin at once and are there only when a test lets them end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.waiting_count = 0

    async def write_all(self, writes: Sequence[Write], **more: Any) -> None:
        self.waiting_count += 1
        await self.is_open.wait()
        await super().write_all(writes, **more)


async def test_no_id_of_a_block_is_given_out_while_it_is_being_stored() -> None:
    """A crash at this moment would let the next start give the same ids out again."""
    store = SlowStore()
    for first in (0, PRODUCER_ID_BLOCK_COUNT):
        ids = ids_on(store)
        assert ids.take() is None
        while not store.waiting_count:  # noqa: ASYNC110 - the refill is already started
            await asyncio.sleep(0)
        assert ids.take() is None
        assert ids.remaining_count == 0
        store.is_open.set()
        assert await ids.next() == first
        store.is_open.clear()
        store.waiting_count = 0


async def test_callers_that_wait_share_one_refill() -> None:
    ids = ids_on(MemoryStore())
    drawn = await asyncio.gather(*(ids.next() for _ in range(20)))
    assert sorted(drawn) == list(range(20))
    assert ids.remaining_count == PRODUCER_ID_BLOCK_COUNT - 20


class ForgetfulStore(MemoryStore):
    """A store that lost what was written to it."""

    async def get(self, path: str) -> Stored | None:
        return None

    async def write_all(self, writes: Sequence[Write], **more: Any) -> None:
        """Write nothing."""


async def test_inv11_a_block_that_was_issued_already_stops_the_broker() -> None:
    ids = ids_on(ForgetfulStore())
    for _ in range(PRODUCER_ID_BLOCK_COUNT):
        await ids.next()
    with pytest.raises(InvariantViolation, match="INV-11"):
        await ids.next()


async def test_a_block_begins_above_the_ids_in_the_logs() -> None:
    """The store may have been put back from an older copy."""
    ids = ids_on(MemoryStore())
    ids.largest_seen = lambda: 4_321
    assert await ids.next() == 4_322
    ids.largest_seen = lambda: 10
    assert [await ids.next() for _ in range(PRODUCER_ID_BLOCK_COUNT)][-1] == 5_322


async def test_inv11_a_new_block_begins_above_the_ids_of_every_transactional_id(
    tmp_path: Path,
) -> None:
    """In whichever partition its coordinator is, and whether it has written or not."""
    async with running(tmp_path) as context:
        await prepare(context)
        client, broker = await context.connect(), context.broker
        partitions = set()
        for name in "abcd":
            issued = (await init_producer(client, name, transaction_timeout_ms=1_000)).producer_id
            assert broker.producer_ids.largest_seen() == issued
            partitions.add(broker.transactions.partition_of(name))
        assert partitions == {0, 1}


async def test_an_id_that_a_client_made_up_does_not_use_up_all_others() -> None:
    ids = ids_on(MemoryStore())
    ids.largest_seen = lambda: 2**63 - 1
    assert await ids.next() == 0


async def test_inv11_no_broker_of_a_cluster_issues_the_id_of_another() -> None:
    """Each has blocks of its own, in each of its lives, also while the controller is down."""
    async with members(3) as cluster:
        issued: list[int] = []

        async def draw(*broker_ids: int) -> None:
            for broker_id in 2 * broker_ids:
                context = Running(cluster[broker_id].broker)
                client = await context.connect()
                answer = await client.ask(
                    ApiKey.INIT_PRODUCER_ID, transactional_id=None, producer_id=-1
                )
                await context.close()
                assert answer.error_code is ErrorCode.none
                issued.append(int(answer.producer_id))

        await draw(1, 2, 3)
        assert len({each // PRODUCER_ID_BLOCK_COUNT for each in issued}) == 3
        controller_id = cluster[1].broker.image.controller_id
        await cluster.kill(controller_id)
        await draw(*(member.broker_id for member in cluster))
        await cluster.restart(controller_id)
        await draw(1, 2, 3)
        assert len(set(issued)) == len(issued) == 16

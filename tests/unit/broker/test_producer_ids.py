"""INV-11: a producer id is never issued twice, across restarts and brokers."""

import asyncio

from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.core.limits import PRODUCER_ID_BLOCK_COUNT
from oncelog.metadata.memory import MemoryStore


def ids_on(store: MemoryStore) -> ProducerIds:
    return ProducerIds(store)


async def test_ids_are_consecutive_within_blocks() -> None:
    ids = ids_on(MemoryStore())
    assert [await ids.next() for _ in range(5)] == [0, 1, 2, 3, 4]


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


async def test_nothing_is_taken_before_a_block_is_durable() -> None:
    ids = ids_on(MemoryStore())
    assert ids.take() is None
    await ids.ready()
    assert ids.take() == 0


async def test_callers_that_wait_share_one_refill() -> None:
    ids = ids_on(MemoryStore())
    drawn = await asyncio.gather(*(ids.next() for _ in range(20)))
    assert sorted(drawn) == list(range(20))
    assert ids.remaining_count == PRODUCER_ID_BLOCK_COUNT - 20

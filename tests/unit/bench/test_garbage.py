"""What requests make is freed by reference counts: the garbage collector of `serve` runs rarely."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.calls import COUNTED, TOPIC, WARM_UP, Requests
from bench.counting import TurningClient
from oncelog.broker.broker import Broker
from oncelog.runtime.loop import new_event_loop
from tests.support.peer.in_loop import broker_in_loop
from tests.unit.broker.raw import until

pytestmark = pytest.mark.slow
REPEATS = 10


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Each collection looks at what is made from here on only; all else would take seconds."""
    gc.disable()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Broker, Requests]]:
    async with broker_in_loop(str(folder), {"group.initial.rebalance.delay.ms": 0}) as broker:
        client = TurningClient(broker.bootstrap_servers)
        requests = Requests(client)
        await requests.prepare()
        yield broker, requests
        client.close()


async def left_by(work: Callable[[], Awaitable[object]], warm_up: int = WARM_UP) -> int:
    """How many objects `REPEATS` of it leave to the collector."""
    for _ in range(warm_up):
        await work()
    gc.collect()
    for _ in range(REPEATS):
        await work()
    return gc.collect()


def test_no_request_leaves_anything_to_the_collector(tmp_path: Path) -> None:
    async def run() -> dict[str, int]:
        async with served(tmp_path) as (_, requests):
            return {name: await left_by(partial(ask, requests)) for name, ask in COUNTED.items()}

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        left = runner.run(run())
    # A timer of the broker may leave something now and then, which is less than one per request.
    assert {name: count for name, count in left.items() if count >= REPEATS} == {}


def test_a_connection_leaves_nothing_even_if_its_fetch_waits(tmp_path: Path) -> None:
    async def run() -> int:
        async with served(tmp_path) as (broker, requests):
            partition = broker.partitions.get(TOPIC, 0)
            assert partition is not None
            end = partition.log.log_end_offset

            async def cut() -> None:
                client = TurningClient(broker.bootstrap_servers)
                fetch = Requests(client)._fetch(requests._topic_id, [(0, end)], wait_ms=60_000)
                waits = asyncio.create_task(fetch)
                await until(lambda: bool(partition.fetches))
                waits.cancel()
                await asyncio.wait([waits])
                client.close()
                await until(lambda: not partition.fetches)

            return await left_by(cut, warm_up=3)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run()) < REPEATS

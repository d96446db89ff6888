"""Brokers come, go and come back; what the others answer of them is true."""

from __future__ import annotations

import asyncio
import logging
from itertools import permutations

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.support.members import Member, members
from tests.unit.broker.context import Client
from tests.unit.broker.raw import error_of, fetch, produce, values
from tests.unit.broker.support import batch

NONE = ErrorCode.none


async def connected(member: Member) -> Client:
    host, _, port = member.broker.bootstrap_servers.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def named_by(member: Member) -> list[int]:
    """The brokers in an answer to Metadata."""
    client = await connected(member)
    response = await client.ask(ApiKey.METADATA, topics=())
    client.writer.close()
    return sorted(broker.node_id for broker in response.brokers)


async def create(member: Member, name: str) -> None:
    (outcome,) = await member.broker.controller.create_topics([TopicToCreate(name)])
    assert outcome.error is NONE


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
async def test_a_broker_that_is_gone_is_in_no_answer(order: tuple[int, int, int]) -> None:
    gone, *others = order
    async with members(3, starts=False) as cluster:
        await cluster.start(*order)
        await cluster.kill(gone)
        cluster.expire(gone)
        await cluster.agreed()
        for member in cluster:
            assert await named_by(member) == sorted(others)
        await cluster.restart(gone)
        await cluster.agreed()
        for member in cluster:
            assert await named_by(member) == [1, 2, 3]


async def test_brokers_that_start_at_once_all_join() -> None:
    async with members(3, starts=False) as cluster:
        await asyncio.gather(*(cluster.start(number) for number in (1, 2, 3)))
        await cluster.agreed()
        for member in cluster:
            assert await named_by(member) == [1, 2, 3]
        assert cluster[1].broker.image.controller_epoch == 1


async def test_each_life_of_a_broker_has_a_larger_epoch() -> None:
    async with members(1) as cluster:
        epochs = [cluster[1].broker.membership.broker_epoch]
        await cluster.kill(1)
        epochs.append((await cluster.restart(1)).membership.broker_epoch)
        epochs.append((await cluster.restart(1)).membership.broker_epoch)
        cluster.expire(1)
        await cluster.until(lambda: cluster[1].broker.membership.broker_epoch == 4)
        assert epochs == [1, 2, 3]


async def test_a_lone_broker_starts_with_one_write() -> None:
    async with members(1) as cluster:
        for end in (cluster.stop, cluster.kill):
            await end(1)
            await cluster.restart(1)
            (writes,) = cluster[1].link.writes
            assert [one.path for one in writes] == [
                "/brokers/ids/1",
                "/oncelog/broker-epochs/1",
                "/controller_epoch",
                "/controller",
            ]


async def test_another_life_under_an_id_waits_for_the_end_of_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with members(2) as cluster:
        first = cluster[2]
        again = cluster.add(2)
        again.folder += "-other"
        starting = asyncio.create_task(again.start())
        await cluster.until(lambda: "waiting for its session to end" in caplog.text)
        assert not starting.done()
        await first.kill()
        first.link.expire()
        assert (await starting).membership.broker_epoch == 2
        assert caplog.text.count("waiting for its session to end") == 1


async def test_a_broker_serves_what_it_leads_while_its_session_is_over() -> None:
    async with members(1) as cluster:
        await create(cluster[1], "t")
        client = await connected(cluster[1])
        cluster[1].link.is_open.clear()
        cluster.expire(1)
        assert error_of(await produce(client, 9, batch())) is NONE
        assert len(values((await fetch(client)).records)) == 1
        assert await named_by(cluster[1]) == [1]
        cluster[1].link.is_open.set()
        await cluster.until(lambda: cluster[1].broker.membership.broker_epoch == 2)
        assert error_of(await produce(client, 9, batch())) is NONE
        client.writer.close()


async def test_a_broker_cut_from_the_store_serves_on_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with members(2) as cluster:
        await create(cluster[1], "t")
        leader = cluster[cluster.leader_of("t", 0)]
        client = await connected(leader)
        leader.link.cut()
        for name in ("u", "v"):
            (refused,) = await leader.broker.controller.create_topics([TopicToCreate(name)])
            assert refused.error is ErrorCode.request_timed_out
        assert error_of(await produce(client, 9, batch())) is NONE
        leader.link.heal()
        await cluster.until(lambda: not leader.broker.feed.health.pause_ms)
        await create(leader, "w")
        said = [r.getMessage() for r in caplog.records if "is out of reach" in r.getMessage()]
        assert len(said) == 1
        client.writer.close()


async def test_a_lost_answer_to_a_registration_is_no_second_broker() -> None:
    async with members(2) as cluster:
        cluster[2].link.answers_lost_count = 1
        cluster.expire(2)
        await cluster.until(lambda: cluster[2].broker.membership.broker_epoch == 3)
        await cluster.agreed()
        assert await named_by(cluster[1]) == [1, 2]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
async def test_brokers_stop_in_any_order_and_start_again(order: tuple[int, int, int]) -> None:
    async with members(3) as cluster:
        await create(cluster[3], "t")
        for _ in range(2):
            for broker_id in order:
                await cluster.stop(broker_id)
            assert await cluster.store.list("/brokers/ids/") == {}
            assert await cluster.store.get("/controller") is None
            await cluster.start(*order)
            await cluster.agreed()
            for member in cluster:
                assert await named_by(member) == [1, 2, 3]
                assert "t" in member.broker.image.topics


async def test_brokers_that_stop_at_once_all_stop() -> None:
    async with members(3) as cluster:
        await create(cluster[3], "t")
        await asyncio.gather(*(cluster.stop(number) for number in (1, 2, 3)))
        assert await cluster.store.list("/brokers/ids/") == {}


async def test_a_lone_broker_is_joined_and_left_again() -> None:
    async with members(3, starts=False) as cluster:
        await cluster.start(1)
        await create(cluster[1], "t")
        await cluster.start(2, 3)
        await create(cluster[3], "u")
        await cluster.stop(2)
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.agreed()
        assert await named_by(cluster[1]) == [1]
        await create(cluster[1], "v")
        assert set(cluster[1].broker.image.topics) == {"t", "u", "v"}


async def test_all_brokers_are_killed_at_once_and_start_again() -> None:
    async with members(3) as cluster:
        await create(cluster[2], "t")
        for _ in range(2):
            await asyncio.gather(*(cluster.kill(number) for number in (1, 2, 3)))
            await asyncio.gather(*(cluster.start(number) for number in (3, 2, 1)))
            await cluster.agreed()
            for member in cluster:
                assert await named_by(member) == [1, 2, 3]

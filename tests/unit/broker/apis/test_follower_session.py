"""A follower's fetch session: partitions where nothing happens, and what its requests confirm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchResponse
from oncelog.replication.leader import LeaderState
from tests.unit.broker.apis.test_follower_fetch import (
    EPOCH,
    FOLLOWER,
    LIFE,
    LONG_MS,
    STRANGER,
    VERSION,
    followed,
    lead,
    partition_of,
    send_follow,
)
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import error_of, produce, receive_fetch, until, values
from tests.unit.broker.support import NOW_MS, assignment, batch


class Session:
    """A follower's session with one partition, of which it has everything and was told so."""

    def __init__(self, context: Running, client: Client) -> None:
        self.context = context
        self.client = client
        self.id = self.epoch = 0

    async def begin(self, end: int) -> None:
        await self.fetch(end, sends_topic=True)
        for _ in range(2):
            assert not (await self.fetch(end)).topics

    async def send(self, end: int = 0, *, sends_topic: bool = False, **options: Any) -> None:
        session = self.id, self.epoch
        ids: dict[str, Any] = {"session": session, "last_epoch": EPOCH, **options}
        await send_follow(self.context, self.client, end, sends_topic=sends_topic, **ids)

    async def receive(self) -> FetchResponse:
        answer = await receive_fetch(self.client, VERSION)
        self.id, self.epoch = answer.session_id, self.epoch + 1
        return answer

    async def fetch(self, end: int = 0, **options: Any) -> FetchResponse:
        await self.send(end, **options)
        return await self.receive()


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with followed(tmp_path) as started:
        yield started


@pytest.fixture
async def session(context: Running) -> Session:
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    begun = Session(context, client)
    await begun.begin(3)
    return begun


async def test_a_quiet_partition_counts_as_fetched_at_each_request(session: Session) -> None:
    partition = partition_of(session.context)
    state = partition.state
    assert isinstance(state, LeaderState)
    before_ms = state.followers[FOLLOWER].caught_up_ms
    reads = partition.meter.fetches
    assert not (await session.fetch()).topics
    assert state.followers[FOLLOWER].caught_up_ms > before_ms
    assert partition.meter.fetches == reads


async def test_an_append_wakes_a_fetch_that_waits_for_quiet_partitions(session: Session) -> None:
    partition = partition_of(session.context)
    await session.send(max_wait_ms=LONG_MS)
    await until(lambda: bool(partition.fetches))
    partition.append(batch(2), now_ms=NOW_MS)
    found = (await session.receive()).topics[0].partitions[0]
    assert values(found.records) == [b"value"] * 2
    found = (await session.fetch(5, sends_topic=True)).topics[0].partitions[0]
    assert found.high_watermark == 5


@pytest.mark.parametrize("what", ["high watermark", "log start", "role", "epoch", "life"])
async def test_whatever_happens_to_a_quiet_partition_is_told(session: Session, what: str) -> None:
    context, partition = session.context, partition_of(session.context)
    if what == "high watermark":
        partition.assign(assignment((1, FOLLOWER, STRANGER), epoch=EPOCH, min_isr=3), 0)
        await session.begin(3)
        partition.append(batch(), now_ms=NOW_MS)
        await session.fetch()
        await session.fetch(4, sends_topic=True)
        partition.follower_fetched(STRANGER, 4, 0)
        found = (await session.fetch()).topics[0].partitions[0]
        assert found.high_watermark == 4
    elif what == "log start":
        partition.delete_records(2)
        assert (await session.fetch()).topics[0].partitions[0].log_start_offset == 2
    elif what == "role":
        partition.resign(ErrorCode.not_leader_or_follower)
        found = (await session.fetch()).topics[0].partitions[0]
        assert error_of(found) is ErrorCode.not_leader_or_follower
    elif what == "epoch":
        lead(context, epoch=EPOCH + 1)
        found = (await session.fetch()).topics[0].partitions[0]
        assert error_of(found) is ErrorCode.fenced_leader_epoch
    else:
        found = (await session.fetch(replica=(FOLLOWER, LIFE + 1))).topics[0].partitions[0]
        assert error_of(found) is ErrorCode.unknown_leader_epoch


async def test_a_follower_outside_of_the_isr_is_never_passed_over(context: Running) -> None:
    """Each of its fetches may bring it into the ISR."""
    client = await context.connect()
    await produce(client, 9, batch(3), acks=1)
    lead(context, (1,))
    begun = Session(context, client)
    await begun.begin(3)
    reads = partition_of(context).meter.fetches
    await begun.fetch()
    assert partition_of(context).meter.fetches == reads + 1


# --- confirmations that this broker leads


def confirmed(context: Running) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    partition_of(context).on_confirmed(told.append)
    return told


@pytest.mark.parametrize("is_quiet", [True, False])
async def test_a_parked_fetch_is_answered_and_the_next_one_confirms(
    session: Session, is_quiet: bool
) -> None:
    partition = partition_of(session.context)
    if not is_quiet:
        partition.append(batch(), now_ms=NOW_MS)
        await session.fetch()
    end = partition.log.log_end_offset
    await session.send(end, max_wait_ms=LONG_MS, sends_topic=not is_quiet)
    await until(lambda: bool(partition.fetches))
    told = confirmed(session.context)
    assert not (await session.receive()).topics or not is_quiet
    assert told == []
    await session.send(max_wait_ms=LONG_MS)
    await until(lambda: told == [ErrorCode.none])
    await until(lambda: bool(partition.fetches))
    partition.append(batch(), now_ms=NOW_MS)
    assert (await session.receive()).topics


async def test_a_fetch_sent_before_its_answer_came_confirms_nothing(session: Session) -> None:
    """A paused leader reads it late, when its follower may lead."""
    context, partition = session.context, partition_of(session.context)
    await session.send(max_wait_ms=LONG_MS)
    await until(lambda: bool(partition.fetches))
    told = confirmed(context)
    other = await context.connect()
    again = Session(context, other)
    again.id = session.id  # Its follower gave up the first connection, and begins anew.
    await again.fetch(3, sends_topic=True)
    assert told == []
    await again.fetch(3)
    assert told == []
    await again.fetch(3)
    assert told == [ErrorCode.none]


async def test_a_fetch_of_another_epoch_confirms_nothing(session: Session) -> None:
    context = session.context
    lead(context, epoch=EPOCH + 1)
    told = confirmed(context)
    for _ in range(3):
        found = (await session.fetch(3, sends_topic=True)).topics[0].partitions[0]
        assert error_of(found) is ErrorCode.fenced_leader_epoch
    assert told == []


async def test_who_is_not_in_sync_is_not_woken_for_a_confirmation(context: Running) -> None:
    client = await context.connect()
    partition = lead(context, (1, STRANGER), replicas=(1, FOLLOWER, STRANGER))
    begun = Session(context, client)
    await begun.fetch(0, sends_topic=True)
    told = confirmed(context)
    await begun.send(max_wait_ms=LONG_MS)
    await until(lambda: bool(partition.fetches))
    state = partition.state
    assert isinstance(state, LeaderState)
    partition.follower_fetched(STRANGER, 0, 0, confirmed_round=state.carry_round())
    assert told == [ErrorCode.none]
    assert partition.fetches

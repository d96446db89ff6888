"""A follower's Fetch that commits what a coordinator waits for: what that appends wakes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from tests.unit.broker.apis.test_follower_fetch import (
    EPOCH,
    FOLLOWER,
    LIFE,
    LONG_MS,
    VERSION,
    know,
)
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import receive_fetch, values
from tests.unit.broker.support import NOW_MS, assignment, batch

FIRST, SECOND = "a", "b"
Begin = Callable[["Following"], Any]


class Following:
    """A follower of two partitions; what the second one has committed is acted on in the first."""

    def __init__(self, context: Running, client: Client) -> None:
        self.context = context
        self.client = client
        self.session = (0, -1)

    def partition(self, name: str) -> Partition:
        partition = self.context.broker.partitions.get(name, 0)
        assert partition is not None
        return partition

    def append(self, name: str) -> None:
        assert self.partition(name).append(batch(), now_ms=NOW_MS).error is ErrorCode.none

    async def follow(self, *, wait_ms: int = 0, **offsets: int) -> Any:
        topics = [
            FetchTopic(
                None,
                self.context.broker.image.topics[name].topic_id,
                [FetchPartition(0, offset, 2**20, EPOCH, -1, 0)],
            )
            for name, offset in offsets.items()
        ]
        request = FetchRequest(
            wait_ms,
            1,
            2**20,
            0,
            *self.session,
            topics,
            replica_id=FOLLOWER,
            replica_epoch=LIFE,
        )
        await self.client.send(encode_fetch_request(VERSION, 78, "test", request))
        return await receive_fetch(self.client, VERSION)

    async def open_session(self) -> None:
        """The follower has nothing of both; the first is quiet from then on."""
        self.session = (0, 0)
        answer = await self.follow(a=0, b=0)
        self.session = (answer.session_id, 1)


@pytest.fixture
async def following(tmp_path: Path) -> AsyncIterator[Following]:
    async with running(tmp_path / "data") as context:
        await context.broker.controller.create_topics([TopicToCreate(FIRST), TopicToCreate(SECOND)])
        know(context, FOLLOWER)
        found = Following(context, await context.connect())
        given = assignment((1, FOLLOWER), (1, FOLLOWER), epoch=EPOCH)
        for name in (FIRST, SECOND):
            found.partition(name).assign(given, context.broker.clock.monotonic_ms())
        yield found


@pytest.mark.parametrize("has_session", [False, True])
async def test_a_follower_is_sent_what_its_own_fetch_had_appended(
    following: Following, has_session: bool
) -> None:
    """Otherwise each transaction over several brokers takes replica.fetch.wait.max.ms."""
    if has_session:
        await following.open_session()
    following.append(SECOND)
    following.partition(SECOND).on_committed(1, lambda _: following.append(FIRST))
    offsets = {SECOND: 1} if has_session else {FIRST: 0, SECOND: 1}
    answer = await following.follow(wait_ms=LONG_MS, **offsets)
    read = {topic.topic_id: values(topic.partitions[0].records) for topic in answer.topics}
    topic_id = following.context.broker.image.topics[FIRST].topic_id
    assert topic_id is not None
    assert read[topic_id] == [b"value"]


@pytest.mark.parametrize("has_session", [False, True])
async def test_a_follower_is_answered_for_a_round_that_its_own_fetch_began(
    following: Following, has_session: bool
) -> None:
    if has_session:
        await following.open_session()
    following.append(SECOND)
    confirmed: list[ErrorCode] = []
    first = following.partition(FIRST)

    def begin_round(_: ErrorCode) -> None:
        first.on_confirmed(confirmed.append)

    following.partition(SECOND).on_committed(1, begin_round)
    offsets = {SECOND: 1} if has_session else {FIRST: 0, SECOND: 1}
    await following.follow(wait_ms=LONG_MS, **offsets)
    assert confirmed == []

"""A consumer's session: what is quiet is not read, and all that happens there is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
)
from oncelog.replication.replica import Assignment
from oncelog.runtime import Lane
from tests.unit.broker.cold import Cold, cold_broker
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import produce, receive_fetch, send_fetch, until
from tests.unit.broker.support import NOW_MS, batch

COUNT = 12
LONG_MS = 60_000
NAMES, IDS = 12, 18
PRODUCER_ID, OTHER = 7, 99
COMMITTED = 1
HAPPENINGS = (
    *("append", "append", "transaction", "marker", "read", "read"),
    *("seek", "forget", "delete", "isolation", "lead"),
)


class Told(NamedTuple):
    """What a reader learns of a partition."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: bytes

    @classmethod
    def of(cls, answer: Any) -> Told:
        records = answer.records
        held = b"".join(bytes(each) for each in records) if isinstance(records, list) else records
        return cls(
            ErrorCode(answer.error),
            answer.high_watermark,
            answer.log_start_offset,
            bytes(held or b""),
        )


class Reader:
    """A consumer with a session over the topic, and one without that reads the same."""

    def __init__(self, context: Running, client: Client, naive: Client, version: int) -> None:
        self.context, self.client, self.naive, self.version = context, client, naive, version
        self.offsets = dict.fromkeys(range(COUNT), 0)
        self.isolation = 0
        self.session_id, self.session_epoch = 0, 0
        self.sequences = [0] * COUNT
        self._changed: dict[int, int] = dict(self.offsets)
        self._forgotten: set[int] = set()
        self._marks: dict[int, tuple[int, int]] = {}
        """High watermark and log start, as they were last told."""
        self._topic_id = context.broker.image.topics["t"].topic_id

    def seek(self, index: int, offset: int) -> None:
        self.offsets[index] = self._changed[index] = offset
        self._forgotten.discard(index)

    def forget(self, index: int) -> None:
        if self.offsets.pop(index, None) is not None:
            self._changed.pop(index, None)
            self._marks.pop(index, None)
            self._forgotten.add(index)

    def _topics(self, offsets: Iterable[tuple[int, int]]) -> list[FetchTopic]:
        asked = [FetchPartition(index, offset, 2**20) for index, offset in offsets]
        return [FetchTopic("t", self._topic_id, asked)] if asked else []

    async def send(
        self, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 2**24, rack: str = ""
    ) -> None:
        gone = [ForgottenTopic("t", self._topic_id, sorted(self._forgotten))]
        request = FetchRequest(
            wait_ms,
            min_bytes,
            max_bytes,
            self.isolation,
            self.session_id,
            self.session_epoch,
            self._topics(self._changed.items()),
            gone if self._forgotten else [],
            rack,
        )
        await self.client.send(bytes(encode_fetch_request(self.version, 1, "test", request)))
        self._changed, self._forgotten = {}, set()

    async def receive(self) -> dict[int, Told]:
        """What the next answer tells, which the reader then has."""
        answer = await receive_fetch(self.client, self.version)
        assert answer.error == 0
        self.session_id, self.session_epoch = answer.session_id, self.session_epoch + 1
        found = {
            each.partition: Told.of(each) for topic in answer.topics for each in topic.partitions
        }
        for index, told in found.items():
            self._marks[index] = told.high_watermark, told.log_start_offset
            if told.error:
                self._marks[index] = (-1, told.log_start_offset)
        return found

    async def news(self) -> dict[int, Told]:
        """What the next answer has to tell: by a reader without a session."""
        request = FetchRequest(
            0, 0, 2**24, self.isolation, 0, -1, self._topics(self.offsets.items())
        )
        await self.naive.send(bytes(encode_fetch_request(self.version, 1, "test", request)))
        answer = await receive_fetch(self.naive, self.version)
        found = {
            each.partition: Told.of(each) for topic in answer.topics for each in topic.partitions
        }
        return {
            index: told
            for index, told in found.items()
            if told.error
            or told.records
            or (told.high_watermark, told.log_start_offset) != self._marks.get(index)
        }

    async def read(self) -> dict[int, Told]:
        await self.send()
        return await self.receive()


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics([TopicToCreate("t", COUNT)])
        yield started


async def reader_of(context: Running, version: int = NAMES) -> Reader:
    """One that has been told that there is nothing."""
    made = Reader(context, await context.connect(), await context.connect(), version)
    assert len(await made.read()) == COUNT
    assert await made.read() == {}
    return made


def partition(context: Running, index: int) -> Partition:
    found = context.broker.partitions.get("t", index)
    assert found is not None
    return found


def append(context: Running, index: int) -> None:
    given = partition(context, index).append(batch(), now_ms=NOW_MS)
    assert given.error is ErrorCode.none


def append_in_transaction(context: Running, index: int, sequence: int = 0) -> None:
    to = partition(context, index)
    records = batch(producer_id=PRODUCER_ID, epoch=0, sequence=sequence, transactional=True)
    assert to.append(records, now_ms=NOW_MS).error is ErrorCode.none


def exchange_leader(to: Partition) -> None:
    """Another broker leads it, or this one again."""
    state = to.state
    me, leads = state.broker_id, not state.is_leader
    leader = me if leads else OTHER
    to.assign(Assignment(leader, state.leader_epoch + 1, frozenset({leader}), (me, OTHER)), 0)


def is_parked(context: Running, reader: Reader) -> bool:
    sessions = context.broker.partitions.fetch_sessions._sessions
    return bool(sessions[reader.session_id].fetches)


def reads(context: Running) -> int:
    return partition(context, 0).meter.fetches


@pytest.mark.parametrize("version", [NAMES, IDS])
async def test_only_what_changed_is_read(context: Running, version: int) -> None:
    reader = await reader_of(context, version)
    before = reads(context)
    assert await reader.read() == {}
    assert reads(context) == before
    append(context, 5)
    assert set(await reader.read()) == {5}
    assert reads(context) == before + 1
    reader.seek(5, 1)
    assert await reader.read() == {}
    assert reads(context) == before + 2
    assert await reader.read() == {}
    assert reads(context) == before + 2


@pytest.mark.parametrize("version", [NAMES, IDS])
async def test_a_request_that_waits_is_woken_by_what_was_quiet(
    context: Running, version: int
) -> None:
    reader = await reader_of(context, version)
    await reader.send(LONG_MS)
    await until(lambda: is_parked(context, reader))
    before = reads(context)
    append(context, 3)
    append(context, 9)
    assert set(await reader.receive()) == {3, 9}
    assert reads(context) == before + 2
    assert not any(partition(context, index).fetches for index in range(COUNT))


async def test_it_waits_for_more_where_too_little_came(context: Running) -> None:
    reader = await reader_of(context)
    await reader.send(LONG_MS, min_bytes=3 * len(batch()))
    await until(lambda: is_parked(context, reader))
    before = reads(context)
    append(context, 3)
    await until(lambda: bool(partition(context, 3).fetches))
    append(context, 3)
    for _ in range(3):
        await asyncio.sleep(0)
    assert reads(context) == before + 1
    append(context, 3)
    assert set(await reader.receive()) == {3}
    assert reads(context) == before + 2


async def test_a_stable_offset_that_moves_wakes_a_reader_of_committed_records(
    context: Running,
) -> None:
    reader = await reader_of(context)
    reader.isolation = COMMITTED
    assert await reader.read() == {}
    append_in_transaction(context, 4)
    assert not (await reader.read())[4].records
    await reader.send(LONG_MS)
    partition(context, 4).append_marker(
        PRODUCER_ID, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0
    )
    assert (await reader.receive())[4].records


async def test_a_reader_of_committed_records_is_told_all_once_it_reads_all(
    context: Running,
) -> None:
    reader = await reader_of(context)
    reader.isolation = COMMITTED
    append_in_transaction(context, 4)
    assert not (await reader.read())[4].records
    assert await reader.read() == {}
    reader.isolation = 0
    assert (await reader.read())[4].records


async def test_a_deleted_topic_is_told_to_who_waits_and_found_again_by_name(
    context: Running,
) -> None:
    reader = await reader_of(context)
    await reader.send(LONG_MS)
    await context.broker.controller.delete_topic(context.broker.image.topics["t"].topic_id)
    gone = await reader.receive()
    assert {told.error for told in gone.values()} == {ErrorCode.unknown_topic_or_partition}
    await reader.read()
    await context.broker.controller.create_topics([TopicToCreate("t", COUNT)])
    assert len(await reader.read()) == COUNT
    append(context, 2)
    assert set(await reader.read()) == {2}


async def test_nothing_is_left_at_the_partitions_of_a_session_that_ends(context: Running) -> None:
    reader = await reader_of(context)
    assert all(partition(context, index).watches for index in range(COUNT))
    reader.forget(3)
    await reader.read()
    assert not partition(context, 3).watches
    await send_fetch(reader.client, session_id=reader.session_id, session_epoch=-1)
    await receive_fetch(reader.client)
    assert not any(partition(context, index).watches for index in range(COUNT))


async def test_a_session_that_is_evicted_while_it_waits_leaves_nothing(context: Running) -> None:
    reader = await reader_of(context)
    reader.seek(3, 0)
    await reader.send(20)
    await until(lambda: is_parked(context, reader))
    context.broker.partitions.fetch_sessions._remove(reader.session_id)
    await reader.receive()
    assert not any(partition(context, index).watches for index in range(COUNT))


async def test_what_was_quiet_has_its_place_in_the_order_of_the_session(context: Running) -> None:
    """When the limits of a reply are used up, those that got something last stand behind."""
    reader = await reader_of(context)
    for index in (1, 5):
        append(context, index)
        assert set(await reader.read()) == {index}
        reader.seek(index, 1)
    for index in (8, 5, 3, 1):
        append(context, index)
    assert list(await reader.read()) == [3, 8, 1, 5]


async def test_what_did_not_fit_is_not_quiet(context: Running) -> None:
    reader = await reader_of(context)
    append(context, 1)
    append(context, 2)
    await reader.send(max_bytes=1)
    assert [bool(told.records) for told in (await reader.receive()).values()] == [True, False]
    reader.seek(1, 1)
    assert (await reader.read())[2].records


async def test_an_offset_out_of_range_is_told_until_the_reader_goes_elsewhere(
    context: Running,
) -> None:
    reader = await reader_of(context)
    reader.seek(3, 9)
    for _ in range(2):
        told = await reader.read()
        assert {index: each.error for index, each in told.items()} == {
            3: ErrorCode.offset_out_of_range
        }


async def test_nothing_is_quiet_where_the_rack_decides_who_is_read(context: Running) -> None:
    context.broker.partitions.selects_by_rack = True
    reader = Reader(context, await context.connect(), await context.connect(), NAMES)
    for _ in range(3):
        before = reads(context)
        await reader.send(rack="here")
        await reader.receive()
        assert reads(context) == before + COUNT


@asynccontextmanager
async def cold_session(folder: Path) -> AsyncIterator[tuple[Cold, Partition, Client, int]]:
    """A session at the end of t, which is returned, and of u; their records are on the disk."""
    async with cold_broker(folder) as first:
        await first.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        for topic in "tu":
            await produce(await first.connect(), 9, batch(), topic=topic)
    async with cold_broker(folder) as cold:
        client, found = await cold.connect(), cold.broker.partitions.get("t", 0)
        assert found is not None
        await send_fetch(client, session_epoch=0, offset=1, more=u_from(1))
        session_id = (await receive_fetch(client)).session_id
        cold.disk.held.add(Lane.READ)
        yield cold, found, client, session_id


def u_from(offset: int) -> list[FetchTopic]:
    return [FetchTopic("u", None, [FetchPartition(0, offset, 2**20)])]


async def test_what_changes_while_another_partition_is_read_from_disk_is_told(
    tmp_path: Path,
) -> None:
    async with cold_session(tmp_path) as (cold, t, client, id_):
        await send_fetch(client, session_id=id_, session_epoch=1, offset=1, more=u_from(0))
        await until(lambda: cold.disk.running[Lane.READ] == 1)
        t.delete_records(1)
        cold.disk.let_go()
        assert [each.name for each in (await receive_fetch(client)).topics] == ["u"]
        await send_fetch(client, session_id=id_, session_epoch=2, topic="u", offset=1)
        (told,) = (await receive_fetch(client)).topics
        assert (told.name, told.partitions[0].log_start_offset) == ("t", 1)


async def test_what_comes_while_another_partition_is_read_from_disk_is_not_waited_for(
    tmp_path: Path,
) -> None:
    enough: dict[str, Any] = {"min_bytes": 2 * len(batch()), "max_wait_ms": LONG_MS}
    async with cold_session(tmp_path) as (cold, t, client, id_):
        await send_fetch(client, session_id=id_, session_epoch=1, offset=1)
        assert not (await receive_fetch(client)).topics
        await send_fetch(client, session_id=id_, session_epoch=2, topic="u", **enough)
        await until(lambda: cold.disk.running[Lane.READ] == 1)
        assert t.append(batch(), now_ms=NOW_MS).error is ErrorCode.none
        cold.disk.let_go()
        assert {each.name for each in (await receive_fetch(client)).topics} == {"t", "u"}


@pytest.mark.parametrize("version", [NAMES, IDS])
@pytest.mark.parametrize("seed", range(6))
async def test_a_session_tells_what_a_reader_without_one_would_see(
    context: Running, version: int, seed: int
) -> None:
    """INV-7, and KIP-227: whatever happens between the requests."""
    chance = random.Random(seed)
    reader = await reader_of(context, version)
    for _ in range(120):
        for _ in range(chance.choice((0, 1, 1, 2))):
            await happen(context, reader, chance)
        expected = await reader.news()
        assert await reader.read() == expected


async def happen(context: Running, reader: Reader, chance: random.Random) -> None:
    """One thing, to a partition drawn."""
    index = chance.randrange(COUNT)
    chosen = partition(context, index)
    what = chance.choice(HAPPENINGS)
    if not chosen.state.is_leader and what in ("append", "transaction", "marker"):
        what = "read"
    if what == "append":
        append(context, index)
    elif what == "transaction":
        append_in_transaction(context, index, reader.sequences[index])
        reader.sequences[index] += 1
    elif what == "marker":
        commit = chance.random() < 0.5
        chosen.append_marker(PRODUCER_ID, 0, 0, commit=commit, now_ms=NOW_MS, transaction_version=0)
    elif what == "read":
        reader.seek(index, chosen.readable_end(bool(reader.isolation)))
    elif what == "seek":
        reader.seek(index, chance.randint(chosen.log.log_start_offset, chosen.log.log_end_offset))
    elif what == "forget":
        reader.forget(index)
    elif what == "delete":
        chosen.delete_records(
            chance.randint(chosen.log.log_start_offset, chosen.state.high_watermark)
        )
    elif what == "isolation":
        reader.isolation = 1 - reader.isolation
    else:
        exchange_leader(chosen)

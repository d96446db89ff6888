"""Produce and Fetch of who may do some of it, at a whole broker: each topic has its own answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.access import Guard
from oncelog.broker.net.dispatch import Layer
from oncelog.controller.topics import TopicToCreate
from oncelog.core.acl import Acl, AuthorizerConfig
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response_header
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from tests.unit.broker.access.asking import by_id, rights
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import init_producer, values
from tests.unit.broker.support import batch

DENIED = ErrorCode.topic_authorization_failed
NONE = ErrorCode.none
ABSENT = "absent"


class Guarded:
    """A broker whose rules a test changes, and one client of it, who is nobody in particular."""

    def __init__(self, context: Running, client: Client) -> None:
        self.context = context
        self.client = client
        self.acls: dict[str, Acl] = {}
        guard = Guard(context.broker.clock, lambda: self.acls, AuthorizerConfig())
        context.broker.dispatcher.wrap(Layer.ACCESS, guard.asking)

    def allow(self, text: str) -> None:
        """Give the client exactly these rights."""
        acls = (acl._replace(principal="User:ANONYMOUS") for acl in rights(text))
        self.acls = by_id(acls)

    def end_of(self, topic: str) -> int:
        partition = self.context.broker.partitions.get(topic, 0)
        assert partition is not None
        return partition.log.log_end_offset

    async def produce(
        self,
        topics: Iterable[str],
        *,
        version: int = 12,
        acks: int = -1,
        transactional_id: str | None = None,
        producer: tuple[int, int] | None = None,
        size: int | None = None,
    ) -> list[ErrorCode] | None:
        """Send a batch to the first partition of each topic; return the errors, None if closed.

        Of a batch that is cut there are `size` bytes.
        """
        image = self.context.broker.image
        producer_id, epoch = producer or (-1, -1)
        records = batch(
            producer_id=producer_id,
            epoch=epoch,
            sequence=-1 if producer is None else 0,
            transactional=producer is not None,
        )
        named = []
        for name in topics:
            found = image.topic(name)
            by_id = version >= 13
            topic_id = found.topic_id if by_id and found is not None else None
            named.append((None if by_id else name, topic_id, [(0, bytes(records[:size]))]))
        frame = encode_produce_request(
            version,
            1,
            "c",
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=5000,
            topics=named,
        )
        await self.client.send(b"".join(frame))
        answer = await self.client.receive()
        if answer is None:
            return None
        _, offset = parse_response_header(ApiKey.PRODUCE, version, answer)
        response = parse_produce_response(answer, version, offset)
        return [ErrorCode(one.error) for topic in response.topics for one in topic.partitions]

    async def fetch(
        self,
        topics: Iterable[str] = (),
        *,
        session: tuple[int, int] = (0, -1),
        wait_ms: int = 0,
        min_bytes: int = 1,
        replica: tuple[int, int] = (-1, -1),
        offset: int = 0,
    ) -> FetchResponse:
        await self.send_fetch(
            topics,
            session=session,
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            replica=replica,
            offset=offset,
        )
        return await self.fetched()

    async def send_fetch(
        self,
        topics: Iterable[str],
        *,
        session: tuple[int, int],
        wait_ms: int,
        min_bytes: int,
        replica: tuple[int, int],
        offset: int = 0,
    ) -> None:
        image = self.context.broker.image
        named = []
        for name in topics:
            topic = image.topic(name)
            assert topic is not None
            asked = FetchPartition(0, offset, 2**20, 0)
            named.append(FetchTopic(None, topic.topic_id, [asked]))
        request = FetchRequest(
            wait_ms, min_bytes, 2**20, 0, *session, named, replica_id=replica[0]
        )._replace(replica_epoch=replica[1])
        frame = encode_fetch_request(17, 2, "c", request)
        await self.client.send(b"".join([frame] if isinstance(frame, bytes) else frame))

    async def fetched(self) -> FetchResponse:
        frame = await self.client.receive()
        assert frame is not None
        _, offset = parse_response_header(ApiKey.FETCH, 17, frame)
        return parse_fetch_response(frame, 17, offset)

    def told(self, response: FetchResponse) -> dict[str, Any]:
        """By topic the error, or the values that were read."""
        image = self.context.broker.image
        found = {}
        for topic in response.topics:
            named = image.topic_by_id(topic.topic_id)
            assert named is not None
            for each in topic.partitions:
                error = ErrorCode(each.error)
                found[named.name] = values(each.records) if error is NONE else error
        return found


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A broker with the topics a and b, a record in each."""
    async with running(tmp_path / "data") as context:
        topics = [TopicToCreate("a"), TopicToCreate("b")]
        await context.broker.controller.create_topics(topics)
        found = Guarded(context, await context.connect())
        found.allow("WRITE TOPIC a, WRITE TOPIC b")
        assert await found.produce(["a", "b"]) == [NONE, NONE]
        yield found


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
async def test_a_topic_that_may_not_be_written_is_refused_and_the_others_are_written(
    guarded: Guarded, version: int
) -> None:
    guarded.allow("WRITE TOPIC b")
    assert await guarded.produce(["a", "b"], version=version) == [DENIED, NONE]
    assert await guarded.produce(["b", "a"], version=version) == [NONE, DENIED]
    assert (guarded.end_of("a"), guarded.end_of("b")) == (1, 3)


async def test_whether_a_topic_exists_is_not_told_to_who_may_not_write_it(
    guarded: Guarded,
) -> None:
    guarded.allow("")
    assert await guarded.produce(["a", ABSENT]) == [DENIED, DENIED]
    guarded.allow(f"WRITE TOPIC {ABSENT}")
    assert await guarded.produce(["a", ABSENT]) == [DENIED, ErrorCode.unknown_topic_or_partition]
    assert await guarded.produce([ABSENT], version=13) == [ErrorCode.unknown_topic_id]


async def test_a_batch_of_a_transaction_needs_its_id_before_anything_is_looked_at(
    guarded: Guarded,
) -> None:
    refused = ErrorCode.transactional_id_authorization_failed
    guarded.allow("WRITE TOPIC a, WRITE TOPIC b")
    for id_ in ("t", None):
        found = await guarded.produce(["a", "b"], transactional_id=id_, producer=(1, 0))
        assert found == [refused, refused]
    assert guarded.end_of("a") == 1
    # An id alone is nothing: only batches of a transaction use it.
    assert await guarded.produce(["a"], transactional_id="t") == [NONE]


@pytest.mark.parametrize("size", [0, 22, 60])
async def test_less_than_a_batchs_header_is_no_batch_of_a_transaction(
    guarded: Guarded, size: int
) -> None:
    guarded.allow("WRITE TOPIC a")
    found = await guarded.produce(["a"], producer=(1, 0), size=size)
    assert found == [ErrorCode.invalid_record]


async def test_a_refused_topic_is_not_added_to_a_transaction(guarded: Guarded) -> None:
    guarded.allow("WRITE TRANSACTIONAL_ID t, DESCRIBE TRANSACTIONAL_ID t, WRITE TOPIC b")
    await guarded.client.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=("t",))
    made = await init_producer(guarded.client, "t", transaction_timeout_ms=60_000)
    producer = made.producer_id, made.producer_epoch
    found = await guarded.produce(["a", "b"], transactional_id="t", producer=producer)
    assert found == [DENIED, NONE]
    guarded.allow("DESCRIBE TRANSACTIONAL_ID t, DESCRIBE TOPIC a, DESCRIBE TOPIC b")
    described = await guarded.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=("t",))
    assert [topic.topic for topic in described.transaction_states[0].topics] == ["b"]


async def test_without_acks_a_refusal_closes_the_connection(guarded: Guarded) -> None:
    guarded.allow("WRITE TOPIC b")
    assert await guarded.produce(["a", "b"], acks=0) is None
    assert guarded.end_of("b") == 2


async def test_a_topic_that_may_not_be_read_is_refused_and_the_others_are_read(
    guarded: Guarded,
) -> None:
    guarded.allow("READ TOPIC b")
    assert guarded.told(await guarded.fetch(["a", "b"])) == {"a": DENIED, "b": [b"value"]}


async def test_a_fetch_waits_for_what_may_be_read_only(guarded: Guarded) -> None:
    guarded.allow("READ TOPIC b, WRITE TOPIC a, WRITE TOPIC b")
    sent = {"session": (0, -1), "replica": (-1, -1), "min_bytes": 100, "wait_ms": 60_000}
    await guarded.send_fetch(["a", "b"], **sent)  # type: ignore[arg-type]
    other = Guarded.__new__(Guarded)
    other.context, other.client = guarded.context, await guarded.context.connect()
    assert await other.produce(["a"]) == [NONE]
    assert await other.produce(["b"]) == [NONE]
    told = guarded.told(await guarded.fetched())
    assert told["a"] is DENIED
    assert len(told["b"]) == 2


async def test_a_fetch_of_which_nothing_may_be_read_does_not_wait(guarded: Guarded) -> None:
    guarded.allow("")
    found = await guarded.fetch(["a", "b"], wait_ms=60_000, min_bytes=1000)
    assert guarded.told(found) == {"a": DENIED, "b": DENIED}


async def test_a_session_lives_through_rights_that_come_and_go(guarded: Guarded) -> None:
    guarded.allow("READ TOPIC b")
    first = await guarded.fetch(["a", "b"], session=(0, 0))
    assert guarded.told(first) == {"a": DENIED, "b": [b"value"]}
    session = first.session_id
    assert session
    # An error is told as long as it lasts.
    assert guarded.told(await guarded.fetch(session=(session, 1)))["a"] is DENIED
    guarded.allow("READ TOPIC a, READ TOPIC b")
    assert guarded.told(await guarded.fetch(session=(session, 2)))["a"] == [b"value"]
    guarded.allow("READ TOPIC a")
    found = guarded.told(await guarded.fetch(session=(session, 3)))
    assert found == {"a": [b"value"], "b": DENIED}


async def test_rights_that_go_are_told_of_what_was_quiet_in_a_session(guarded: Guarded) -> None:
    """It was not read any more, as nothing happened there."""
    guarded.allow("READ TOPIC a, READ TOPIC b")
    first = await guarded.fetch(["a", "b"], session=(0, 0), offset=1)
    session = first.session_id
    for epoch in (1, 2):
        assert guarded.told(await guarded.fetch(session=(session, epoch))) == {}
    guarded.allow("READ TOPIC a")
    assert guarded.told(await guarded.fetch(session=(session, 3))) == {"b": DENIED}
    guarded.allow("READ TOPIC a, READ TOPIC b")
    assert guarded.told(await guarded.fetch(session=(session, 4))) == {"b": []}


async def test_who_is_no_broker_does_not_fetch_as_one(guarded: Guarded) -> None:
    broker = guarded.context.broker
    me = broker.broker_id, broker.image.brokers[broker.broker_id].broker_epoch
    guarded.allow("READ TOPIC a, READ TOPIC b")
    first = await guarded.fetch(["a", "b"], session=(0, 0), replica=me)
    assert guarded.told(first) == {"a": DENIED, "b": DENIED}
    again = await guarded.fetch(session=(first.session_id, 1), replica=me, wait_ms=60_000)
    assert guarded.told(again) == {"a": DENIED, "b": DENIED}
    guarded.allow("CLUSTER_ACTION CLUSTER")
    found = guarded.told(await guarded.fetch(session=(first.session_id, 2), replica=me))
    assert DENIED not in found.values()

"""Produce against a running broker: what is checked, what is answered, in which order."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.protocol.record import Record, build_batch
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import (
    error_of,
    fetch,
    produce,
    receive_fetch,
    receive_produce,
    send_fetch,
    send_produce,
    until,
)
from tests.unit.broker.raw import values as values_of
from tests.unit.broker.support import NOW_MS, assignment, batch

VERSIONS = range(3, 14)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        yield started


@pytest.mark.parametrize("acks", [-1, 1])
async def test_every_version_appends_and_answers_with_the_offset(
    context: Running, acks: int
) -> None:
    client = await context.connect()
    topic_id = context.broker.image.topics["t"].topic_id
    for turn, version in enumerate(VERSIONS):
        answer = await produce(client, version, batch(2), acks=acks, topic_id=topic_id)
        assert (error_of(answer), answer.base_offset) == (ErrorCode.none, 2 * turn)


async def test_acks_0_gets_no_reply_and_is_there_for_the_next_request(context: Running) -> None:
    client = await context.connect()
    await send_produce(client, 9, batch(3), acks=0)
    found = await fetch(client)
    assert len(values_of(found.records)) == 3


async def test_acks_0_with_an_error_closes_the_connection(context: Running) -> None:
    client = await context.connect()
    await send_produce(client, 9, batch(), acks=0, topic="nowhere")
    assert await client.receive() is None


@pytest.mark.parametrize("acks", [2, -2])
async def test_other_acks_are_invalid(context: Running, acks: int) -> None:
    client = await context.connect()
    answer = await produce(client, 9, batch(), acks=acks)
    assert error_of(answer) is ErrorCode.invalid_required_acks


async def test_an_unknown_topic_is_not_created_here(context: Running) -> None:
    client = await context.connect()
    answer = await produce(client, 9, batch(), topic="nowhere")
    assert error_of(answer) is ErrorCode.unknown_topic_or_partition
    assert context.broker.image.topic("nowhere") is None


async def test_an_unknown_topic_id_is_named_as_such(context: Running) -> None:
    client = await context.connect()
    answer = await produce(client, 13, batch(), topic_id=uuid.uuid4())
    assert error_of(answer) is ErrorCode.unknown_topic_id


async def test_internal_topics_are_closed_to_clients(context: Running) -> None:
    await context.broker.controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
    client = await context.connect()
    answer = await produce(client, 9, batch(), topic=CONSUMER_OFFSETS_TOPIC)
    assert error_of(answer) is ErrorCode.invalid_topic_exception


async def test_too_few_in_sync_replicas_refuse_acks_all_only(context: Running) -> None:
    await context.broker.controller.create_topics([TopicToCreate("strict")])
    partition = context.broker.partitions.get("strict", 0)
    assert partition is not None
    partition.assign(assignment((1,), (1, 2), min_isr=2), 0)
    client = await context.connect()
    refused = await produce(client, 9, batch(), topic="strict")
    assert error_of(refused) is ErrorCode.not_enough_replicas
    taken = await produce(client, 9, batch(), topic="strict", acks=1)
    assert error_of(taken) is ErrorCode.none


async def test_a_damaged_batch_is_refused_and_nothing_written(context: Running) -> None:
    client = await context.connect()
    damaged = batch()
    damaged[-1] ^= 0xFF
    answer = await produce(client, 9, damaged)
    assert error_of(answer) is ErrorCode.corrupt_message
    assert (await fetch(client)).high_watermark == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_at_fault_are_named(context: Running, version: int) -> None:
    """KIP-467, from version 8 on."""
    compacted = TopicToCreate("compacted", config={"cleanup.policy": "compact"})
    await context.broker.controller.create_topics([compacted])
    topic_id = context.broker.image.topics["compacted"].topic_id
    client = await context.connect()
    keys = [b"key" if number % 3 else None for number in range(8)]
    data = build_batch([Record(n, NOW_MS, key, b"v") for n, key in enumerate(keys)])
    answer = await produce(client, version, data, topic="compacted", topic_id=topic_id)
    assert error_of(answer) is ErrorCode.invalid_record
    named = [index for index, _ in answer.record_errors]
    assert named == ([0, 3, 6] if version >= 8 else [])
    assert ("3 of 8 records" in (answer.error_message or "")) == (version >= 8)


@pytest.mark.parametrize(
    ("records", "error", "log_start_offset"),
    [
        (batch(producer_id=7, epoch=0, sequence=5), ErrorCode.out_of_order_sequence_number, 2),
        (batch()[:-1] + b"?", ErrorCode.corrupt_message, -1),
    ],
)
async def test_a_refusal_has_the_start_of_the_log_where_kafkas_has(
    context: Running, records: bytes, error: ErrorCode, log_start_offset: int
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3, producer_id=7, epoch=0, sequence=0))
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.delete_records(2)
    answer = await produce(client, 9, records)
    assert (error_of(answer), answer.log_start_offset) == (error, log_start_offset)


async def test_no_records_at_all_is_refused(context: Running) -> None:
    client = await context.connect()
    assert error_of(await produce(client, 9, b"")) is ErrorCode.invalid_record


async def test_inv2_a_repeated_batch_is_acknowledged_with_its_first_offset(
    context: Running,
) -> None:
    client = await context.connect()
    for _ in range(2):
        answer = await produce(client, 9, batch(2, producer_id=9, epoch=0, sequence=0))
        assert (error_of(answer), answer.base_offset) == (ErrorCode.none, 0)
    gap = await produce(client, 9, batch(producer_id=9, epoch=0, sequence=5))
    assert error_of(gap) is ErrorCode.out_of_order_sequence_number


async def test_a_waiting_produce_lets_a_later_fetch_in_but_answers_first(
    context: Running,
) -> None:
    """D13: waiting for the high watermark holds back replies only."""
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.assign(assignment((1, 2)), 0)
    client, other = await context.connect(), await context.connect()
    await send_produce(client, 9, batch())
    await send_fetch(client)
    assert (await fetch(other)).high_watermark == 0
    partition.follower_fetched(2, 1, 0)
    frame = await client.receive()
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == 77
    # The fetch was carried out before the commit, and its reply waited.
    assert (await receive_fetch(client)).topics[0].partitions[0].high_watermark == 0


async def test_a_produce_that_waits_for_replicas_lets_go_of_its_frame(context: Running) -> None:
    """Else a client that sends ahead makes the broker hold each frame until it is replicated."""
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.assign(assignment((1, 2)), 0)
    client = await context.connect()
    await send_produce(client, 9, batch())
    (connection,) = context.broker.server.connections
    await until(lambda: bool(connection._waiting))
    assert [request.body for request in connection._waiting] == [b""]
    partition.follower_fetched(2, 1, 0)
    assert (await receive_produce(client, 9)).error == 0


async def test_one_producer_too_many_is_refused_and_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.broker.partitions.manager.PRODUCERS_COUNT_MAX", 2)
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        client = await context.connect()
        errors = []
        for producer_id, sequence in ((1, 0), (2, 0), (3, 0), (1, 1)):
            records = batch(producer_id=producer_id, epoch=0, sequence=sequence)
            answer = await produce(client, 9, records)
            errors.append(error_of(answer))
            if producer_id == 3:
                assert "remembers 2 producers" in (answer.error_message or "")
        refused = ErrorCode.policy_violation
        assert errors == [ErrorCode.none, ErrorCode.none, refused, ErrorCode.none]


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_what_is_no_batch_is_refused_alike_with_a_transactional_id(
    context: Running, transactional_id: str | None
) -> None:
    client = await context.connect()
    answer = await produce(client, 9, b"no batch", transactional_id=transactional_id)
    assert answer.error is ErrorCode.invalid_record
    good = await produce(client, 9, batch())
    assert good.error is ErrorCode.none

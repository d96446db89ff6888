"""What a consumer does about partitions that cannot be read: said, bounded, and one at a time."""

from __future__ import annotations

import logging

import pytest

from oncelog.client import FatalError, RetriableError, TopicPartition
from oncelog.client.machines.failures import TOLD_AFTER_MS, ReadFailures
from oncelog.core.crc import crc32c
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.support.logged import said_by
from tests.support.old_formats import LATER_MAGIC, fields, later_batch, message_set, stamped
from tests.unit.client.test_consumer import TP, batch, broker_with, consumer

OTHER = TopicPartition("t", 1)


def with_records_of_nothing(data: bytes) -> bytes:
    """The batch claims two records and has one; its CRC is right."""
    changed = bytearray(data)
    changed[57:61] = (2).to_bytes(4, "big")
    changed[23:27] = (1).to_bytes(4, "big")
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


BAD = {
    "magic": bytes(later_batch(2, crc_of_v2=True)),
    "length": batch(2, b"x")[:8] + b"\xff" * 4 + batch(2, b"x")[12:],
    "records": with_records_of_nothing(batch(2, b"x" * 20)),
    "old": bytes(message_set(1, 2, 1))[:-1] + b"?",
}


@pytest.mark.parametrize("bad", BAD)
async def test_sound_records_come_before_the_error_that_names_its_place(bad: str) -> None:
    sound = batch(0, b"a") + batch(1, b"b")
    rest = BAD[bad] + batch(4, b"c")
    at_2 = {"_2": rest, "_3": rest} if bad == "records" else {"_2": rest}
    broker = broker_with(_0=sound + rest, **at_2, _4=batch(4, b"c"))
    broker.end_offset = 5
    async with consumer(broker) as reading:
        reading.assign([TP])
        found = [record.value for record in await reading.poll()]
        assert found[:2] == [b"a", b"b"]
        assert found[2:] == ([b"x" * 20] if bad == "records" else [])
        offset = 3 if bad == "records" else 2
        assert await reading.position(TP) == offset
        for _ in range(2):
            with pytest.raises(
                FatalError, match=f"t-0 cannot be read at offset {offset}: "
            ) as told:
                await reading.poll()
            assert told.value.code is ErrorCode.corrupt_message
        reading.seek(TP, 4)
        assert [record.value for record in await reading.poll()] == [b"c"]


async def test_a_bad_partition_does_not_keep_the_others_from_being_read() -> None:
    broker = broker_with(_0=batch(0, b"a"), _1=batch(1, b"b"))
    broker.refused[0] = ErrorCode.corrupt_message
    async with consumer(broker) as reading:
        reading.assign([TP, OTHER])
        for value in (b"a", b"b"):
            assert [(r.partition, r.value) for r in await reading.poll()] == [(1, value)]
        with pytest.raises(FatalError, match="t-0 at offset 0") as told:
            await reading.poll()
        assert told.value.code is ErrorCode.corrupt_message
        with pytest.raises(FatalError, match="t-0 at offset 0"):
            await reading.fetch_batches(TP, 0)


async def test_a_partition_without_a_leader_does_not_keep_the_others_either() -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.leaderless.add(0)
    async with consumer(broker, retry_timeout_ms=20) as reading:
        reading.assign([TP, OTHER])
        assert [(r.partition, r.value) for r in await reading.poll()] == [(1, b"a")]
        with pytest.raises(RetriableError, match="t-0") as told:
            await reading.poll()
        assert told.value.code is ErrorCode.leader_not_available
        assert len(broker.apis(ApiKey.METADATA)) < 100
        broker.leaderless.clear()
        assert [(r.partition, r.value) for r in await reading.poll()] == [(0, b"a")]


@pytest.mark.parametrize("code", [ErrorCode.kafka_storage_error, ErrorCode.unknown_server_error])
async def test_an_answer_that_may_pass_is_retried_for_a_time(code: ErrorCode) -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.refused[0] = code
    async with consumer(broker, retry_timeout_ms=100) as reading:
        reading.assign([TP])
        with pytest.raises(RetriableError, match="t-0 at offset 0") as told:
            await reading.poll(60_000)
        assert told.value.code is code
        broker.on(ApiKey.FETCH, code, code)
        broker.refused.clear()
        assert [record.value for record in await reading.poll()] == [b"a"]


async def test_an_answer_to_lookups_that_does_not_pass_is_told_too() -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.on(ApiKey.LIST_OFFSETS, *[ErrorCode.kafka_storage_error] * 10_000)
    async with consumer(broker, retry_timeout_ms=20) as reading:
        reading.assign([TP])
        with pytest.raises(RetriableError, match="t-0"):
            await reading.poll(60_000)


def test_a_failing_partition_is_told_once_and_gives_up_once_per_timeout() -> None:
    failures = ReadFailures(60_000)
    error = RetriableError(ErrorCode.kafka_storage_error, "t-0")
    told = [failures.failed(TP, error, now_ms) for now_ms in range(0, 59_000, TOLD_AFTER_MS)]
    assert told == [False, True] + [False] * (len(told) - 2)
    assert failures.overdue(59_999) is None
    assert failures.overdue(60_000) is error
    assert not failures.failed(TP, error, 60_001)
    assert failures.overdue(120_000) is None
    failures.succeeded(TP)
    assert not failures.failed(TP, error, 200_000)
    assert failures.overdue(200_000) is None


def test_a_partition_that_fails_is_overdue_whatever_else_fails() -> None:
    failures = ReadFailures(60_000)
    error = RetriableError(ErrorCode.kafka_storage_error, "t-1")
    failures.failed(TP, FatalError(ErrorCode.topic_authorization_failed), 0)
    failures.failed(OTHER, error, 0)
    assert failures.overdue(60_000) is error


async def test_a_partition_that_fails_for_long_is_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.refused[0] = ErrorCode.kafka_storage_error
    async with consumer(broker) as reading:
        reading.assign([TP])
        began_ms = reading._cluster.clock.monotonic_ms() - TOLD_AFTER_MS
        reading._reading._failures.failed(TP, RetriableError(ErrorCode.none), began_ms)
        assert await reading.poll(50) == []
    (said,) = [each for each in said_by(caplog) if each.levelno == logging.WARNING]
    assert "t-0 cannot be read: " in said.getMessage()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
async def test_messages_from_before_kafka_0_11_are_read(magic: int, codec: str) -> None:
    """An old log goes on with batches of v2; a fetch begins within a wrapper, and cuts the last."""
    old = message_set(magic, 0, 4, codec)
    data = bytes(old) + batch(4, b"new")
    broker = broker_with(_0=data + bytes(message_set(1, 5, 3, "gzip"))[:-9], _2=data)
    broker.end_offset = 5
    async with consumer(broker) as reading:
        reading.assign([TP])
        found = await reading.poll()
        assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found[:4]] == [
            fields(offset, magic) for offset in range(4)
        ]
        assert [record.value for record in found[4:]] == [b"new"]
        assert await reading.position(TP) == 5
        reading.seek(TP, 2)
        assert [record.offset for record in await reading.poll()] == [2, 3, 4]
        fetched = await reading.fetch_batches(TP, 0)
        assert fetched.next_offset == 5


async def test_log_append_time_of_a_wrapper_is_that_of_its_records() -> None:
    broker = broker_with(_0=bytes(stamped(message_set(1, 0, 3, "gzip"), 77)))
    async with consumer(broker) as reading:
        reading.assign([TP])
        assert {(r.timestamp_ms, r.timestamp_type) for r in await reading.poll()} == {(77, 1)}


async def test_a_format_to_come_is_an_error_with_its_place() -> None:
    broker = broker_with(_0=bytes(later_batch(0)))
    async with consumer(broker) as reading:
        reading.assign([TP])
        with pytest.raises(FatalError, match=f"offset 0: unknown batch magic {LATER_MAGIC}"):
            await reading.poll()

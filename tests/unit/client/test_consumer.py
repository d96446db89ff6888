"""The consumer against a scripted broker: positions, resets, moved leaders, hidden records."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from oncelog.client import (
    Consumer,
    FatalError,
    IllegalStateError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    RetriableError,
    TopicPartition,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.runtime.clock import SystemClock
from tests.unit.client.scripted_broker import DROP, TOPIC_ID, ScriptedBroker

TP = TopicPartition("t", 0)


def batch(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    records = [Record(offset + i, 7, None, value, ()) for i, value in enumerate(values)]
    transactional = producer_id >= 0
    number = 0 if transactional else -1
    return bytes(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=number,
            base_sequence=number,
            transactional=transactional,
        )
    )


def abort_marker(offset: int, producer_id: int) -> bytes:
    made = control_batch(False, producer_id, 0, 0, 0)
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def broker_with(**at: bytes) -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.records = {int(offset[1:]): data for offset, data in at.items()}
    broker.end_offset = 3
    return broker


def consumer(broker: ScriptedBroker, **options: Any) -> Consumer:
    return Consumer("b:1", **{**broker.options(), **options})


async def test_records_are_read_from_the_start_and_the_position_follows() -> None:
    broker = broker_with(_0=batch(0, b"a", b"b", b"c"))
    async with consumer(broker) as reading:
        reading.assign([TP])
        assert await reading.position(TP) == 0
        assert [r.value for r in await reading.poll(1_000, max_records=2)] == [b"a", b"b"]
        assert await reading.position(TP) == 2, "the third was fetched but not handed out"
        assert [r.offset for r in await reading.poll(1_000)] == [2]
        assert await reading.position(TP) == 3
        assert await reading.poll(0) == []


async def test_a_poll_waits_no_longer_for_a_first_position_than_for_records() -> None:
    broker = broker_with(_0=batch(0, b"a"))
    async with consumer(broker) as reading:
        reading.assign([TP])
        clock = reading._cluster.clock
        began_ms = clock.monotonic_ms()
        broker.on(ApiKey.LIST_OFFSETS, *[ErrorCode.not_leader_or_follower] * 100_000)
        assert await asyncio.wait_for(reading.poll(100), 10) == []
        assert clock.monotonic_ms() - began_ms < 1_000
    broker = broker_with(_0=batch(0, b"a"))
    async with consumer(broker) as reading:
        reading.assign([TP])
        assert [r.value for r in await reading.poll(0)] == [b"a"]


def test_a_reset_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="auto_offset_reset 'first'"):
        Consumer("b:1", auto_offset_reset="first")  # type: ignore[arg-type]


async def test_a_position_below_0_is_refused() -> None:
    async with consumer(broker_with(_0=batch(0, b"a"))) as reading:
        reading.assign([TP])
        for below in (-1, OffsetAndMetadata(-1)):
            with pytest.raises(ValueError, match="offset -1 is below 0"):
                reading.seek(TP, below)
        assert [r.value for r in await reading.poll(1_000)] == [b"a"]


async def test_records_before_the_position_are_skipped() -> None:
    broker = broker_with(_1=batch(0, b"a", b"b", b"c"))
    async with consumer(broker) as reading:
        reading.assign([TP])
        reading.seek(TP, 1)
        assert [r.value for r in await reading.poll(1_000)] == [b"b", b"c"]


@pytest.mark.parametrize(
    ("isolation", "seen"), [("read_committed", [b"kept"]), ("read_uncommitted", [b"lost", b"kept"])]
)
async def test_the_isolation_level_decides_on_aborted_records(
    isolation: Any, seen: list[bytes]
) -> None:
    log = batch(0, b"lost", producer_id=5) + abort_marker(1, 5) + batch(2, b"kept")
    broker = broker_with(_0=log)
    broker.aborted = [(5, 0)]
    async with consumer(broker, isolation_level=isolation) as reading:
        reading.assign([TP])
        assert [r.value for r in await reading.poll(1_000)] == seen
    asked = broker.requests(ApiKey.FETCH)[0].isolation_level
    assert asked == (1 if isolation == "read_committed" else 0)


@pytest.mark.parametrize("failure", [DROP, ErrorCode.not_leader_or_follower])
async def test_a_moved_leader_is_looked_up_again(failure: object) -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.on(ApiKey.FETCH, failure)
    async with consumer(broker) as reading:
        fetched = await reading.fetch_batches(TP, 0)
    assert (fetched.next_offset, fetched.high_watermark) == (1, 3)
    assert len(broker.requests(ApiKey.METADATA)) == 2


async def test_a_topic_made_again_is_read_under_its_own_id_only() -> None:
    broker = broker_with(_0=batch(0, b"a"))
    async with consumer(broker) as reading:
        assert (await reading.fetch_batches(TP, 0, topic_id=TOPIC_ID)).next_offset == 1
        broker.topic_id = UUID(int=8)
        fetched = await reading.fetch_batches(TP, 0, topic_id=broker.topic_id)
        assert fetched.next_offset == 1, "the consumer asked for metadata before it refused"
        with pytest.raises(FatalError) as raised:
            await reading.fetch_batches(TP, 0, topic_id=TOPIC_ID)
    assert raised.value.code is ErrorCode.inconsistent_topic_id


async def test_an_offset_that_is_gone_is_reset_by_policy() -> None:
    broker = broker_with(_0=batch(0, b"a"))
    broker.on(ApiKey.FETCH, ErrorCode.offset_out_of_range)
    async with consumer(broker) as reading:
        reading.assign([TP])
        reading.seek(TP, 99)
        assert [r.offset for r in await reading.poll(1_000)] == [0]


async def test_without_a_policy_a_missing_offset_is_an_error() -> None:
    broker = broker_with()
    async with consumer(broker, auto_offset_reset="none") as reading:
        reading.assign([TP])
        with pytest.raises(OffsetOutOfRangeError):
            await reading.poll(1_000)


async def test_a_leader_that_never_settles_is_given_up_in_time() -> None:
    broker = broker_with()
    broker.on(ApiKey.FETCH, *[ErrorCode.not_leader_or_follower] * 100)
    async with consumer(broker, retry_timeout_ms=20) as reading:
        with pytest.raises(RetriableError) as raised:
            await reading.fetch_batches(TP, 0)
    assert raised.value.code is ErrorCode.not_leader_or_follower


async def test_bytes_that_are_no_batches_are_fatal() -> None:
    broker = broker_with(_0=b"\0" * 80)
    async with consumer(broker) as reading:
        with pytest.raises(FatalError):
            await reading.fetch_batches(TP, 0)


async def test_what_was_not_assigned_or_named_is_refused() -> None:
    broker = broker_with()
    async with consumer(broker) as reading:
        with pytest.raises(IllegalStateError):
            await reading.poll()
        with pytest.raises(IllegalStateError):
            reading.seek(TP, 1)
        with pytest.raises(IllegalStateError):
            await reading.commit()


def damaged(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


async def test_damaged_records_are_not_handed_out_and_a_seek_goes_past_them() -> None:
    broken = damaged(batch(1, b"b"))
    broker = broker_with(_0=batch(0, b"a") + broken + batch(2, b"c"), _1=broken, _2=batch(2, b"c"))
    async with consumer(broker) as reading:
        reading.assign([TP])
        assert [record.value for record in await reading.poll()] == [b"a"]
        for _ in range(2):
            with pytest.raises(FatalError) as raised:
                await reading.poll()
            assert raised.value.code is ErrorCode.corrupt_message
        with pytest.raises(FatalError):
            await reading.fetch_batches(TP, 1)
        reading.seek(TP, 2)
        assert [record.value for record in await reading.poll()] == [b"c"]


async def test_a_reader_may_take_damaged_records_as_they_are() -> None:
    broker = broker_with(_0=damaged(batch(0, b"a")))
    async with consumer(broker, check_crcs=False) as reading:
        fetched = await reading.fetch_batches(TP, 0)
    assert fetched.next_offset == 1


class CountingClock(SystemClock):
    """Real time; it counts the sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0

    async def sleep(self, ms: float) -> None:
        self.slept += 1
        await super().sleep(ms)


async def test_a_poll_of_paused_partitions_waits_instead_of_spinning() -> None:
    broker, clock = broker_with(_0=batch(0, b"a", b"b", b"c")), CountingClock()
    async with consumer(broker, clock=clock) as reading:
        reading.assign([TP])
        reading.pause([TP])
        assert await reading.poll(20) == []
        assert await reading.poll(20) == []
    assert 0 < clock.slept < 10

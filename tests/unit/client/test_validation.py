"""A consumer whose log loses its tail, against a scripted broker (KIP-320)."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.client import (
    Consumer,
    LogTruncationError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.unit.client.scripted_broker import DROP, ScriptedBroker
from tests.unit.client.test_consumer import TP, batch, broker_with, consumer

OLD, NEW = 0, 1


def of_epoch(epoch: int, data: bytes) -> bytes:
    """The batch as a leader of that epoch stores it; the CRC does not cover it."""
    return data[:12] + epoch.to_bytes(4, "big") + data[16:]


OLD_RECORDS = of_epoch(OLD, batch(0, b"a", b"b", b"lost", b"lost too"))


def lose_the_tail(broker: ScriptedBroker) -> None:
    """Records 2 and 3 are gone; others of the next epoch take their offsets, and 4."""
    broker.leader_epoch = NEW
    broker.records = {
        2: of_epoch(NEW, batch(2, b"c", b"d", b"e")),
        4: of_epoch(NEW, batch(4, b"e")),
    }
    broker.epoch_ends = {OLD: (OLD, 2), NEW: (NEW, 5)}


@asynccontextmanager
async def reader_at_4(
    broker: ScriptedBroker, auto_offset_reset: str = "earliest"
) -> AsyncIterator[Consumer]:
    """A consumer that has read four records of the old epoch."""
    async with consumer(broker, auto_offset_reset=auto_offset_reset) as reading:
        reading.assign([TP])
        reading.seek(TP, 0)
        assert len(await reading.poll(1_000)) == 4
        yield reading


async def read(reading: Consumer) -> list[tuple[int, bytes | None, int]]:
    records = await reading.poll(1_000)
    return [(r.offset, r.value, r.leader_epoch) for r in records]


NEW_RECORDS = [(2, b"c", NEW), (3, b"d", NEW), (4, b"e", NEW)]


async def test_fetches_carry_the_epochs_that_the_consumer_knows() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        await reading.poll(0)
    asked = [
        (p.fetch_offset, p.current_leader_epoch, p.last_fetched_epoch)
        for request in broker.requests(ApiKey.FETCH)
        for p in request.topics[0].partitions
    ]
    assert asked == [(0, 0, -1), (4, 0, 0)]


async def test_records_that_took_the_offsets_of_a_lost_tail_are_read() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        assert await read(reading) == NEW_RECORDS


async def test_a_lost_tail_is_noticed_after_metadata_told_the_new_epoch() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        broker.on(ApiKey.FETCH, DROP)
        assert await read(reading) == NEW_RECORDS


@pytest.mark.parametrize("failure", [DROP, ErrorCode.not_leader_or_follower])
async def test_the_leader_is_asked_again_when_it_does_not_tell_where_an_epoch_ended(
    failure: object,
) -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, failure)
        assert await read(reading) == NEW_RECORDS


async def test_a_fetch_that_is_told_of_another_epoch_goes_back() -> None:
    """The leader's epoch is the one that the consumer knows, and its log is another one."""
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        broker.leader_epoch = OLD
        assert await read(reading) == NEW_RECORDS


async def test_without_a_policy_a_lost_tail_is_an_error_until_a_seek() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker, "none") as reading:
        lose_the_tail(broker)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=r"up to offset 4.*offset 2") as raised:
                await reading.poll(1_000)
        error = raised.value
        assert (error.topic_partition, error.offset) == (TP, 4)
        assert isinstance(error, OffsetOutOfRangeError)
        assert error.diverging == OffsetAndMetadata(2, "", OLD)
        reading.seek(TP, error.diverging)
        assert await read(reading) == NEW_RECORDS


async def test_a_log_that_has_nothing_in_common_is_read_by_policy() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        broker.epoch_ends = {}
        broker.records[0] = of_epoch(NEW, batch(0, b"x"))
        assert await read(reading) == [(0, b"x", NEW)]


async def test_an_end_that_is_not_known_is_an_error_without_a_policy() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker, "none") as reading:
        lose_the_tail(broker)
        broker.epoch_ends = {}
        with pytest.raises(LogTruncationError) as raised:
            await reading.poll(1_000)
        assert raised.value.diverging is None


async def test_a_new_epoch_without_a_loss_changes_nothing() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker, "none") as reading:
        lose_the_tail(broker)
        broker.epoch_ends[OLD] = (OLD, 4)
        assert await read(reading) == [(4, b"e", NEW)]


async def test_a_broker_that_is_behind_is_asked_again() -> None:
    broker = broker_with(_0=OLD_RECORDS, _4=of_epoch(OLD, batch(4, b"e")))
    async with reader_at_4(broker) as reading:
        broker.on(ApiKey.FETCH, ErrorCode.unknown_leader_epoch)
        assert await read(reading) == [(4, b"e", OLD)]


async def test_a_topic_that_was_made_again_is_not_compared_with_the_former() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with reader_at_4(broker) as reading:
        lose_the_tail(broker)
        broker.topic_id = uuid.UUID(int=8)
        broker.on(ApiKey.FETCH, DROP)
        assert await read(reading) == [(4, b"e", NEW)]
    assert broker.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []


async def test_positions_and_commits_carry_the_epoch_of_what_was_handed_out() -> None:
    broker = broker_with(_0=OLD_RECORDS + of_epoch(NEW, batch(4, b"e")))
    async with consumer(broker, group_id="g") as reading:
        reading.assign([TP])
        reading.seek(TP, 0)
        await reading.poll(1_000, max_records=4)
        assert await reading.positions() == {TP: OffsetAndMetadata(4, "", OLD)}
        await reading.commit()
        await reading.poll(1_000)
        assert await reading.positions() == {TP: OffsetAndMetadata(5, "", NEW)}
    ((topic,),) = [request.topics for request in broker.requests(ApiKey.OFFSET_COMMIT)]
    assert [(p.committed_offset, p.committed_leader_epoch) for p in topic.partitions] == [(4, OLD)]


async def test_a_position_with_an_epoch_is_compared_before_the_first_fetch() -> None:
    broker = broker_with()
    lose_the_tail(broker)
    async with consumer(broker) as reading:
        reading.assign([TP])
        reading.seek(TP, OffsetAndMetadata(4, "", OLD))
        assert await read(reading) == NEW_RECORDS


async def test_whole_batches_are_not_read_behind_a_lost_tail() -> None:
    broker = broker_with(_0=OLD_RECORDS)
    async with consumer(broker) as reading:
        first = await reading.fetch_batches(TP, 0)
        assert (first.next_offset, first.leader_epoch) == (4, OLD)
        lose_the_tail(broker)
        for told in (OLD, NEW):
            broker.leader_epoch = told
            with pytest.raises(LogTruncationError) as raised:
                await reading.fetch_batches(TP, 4, leader_epoch=first.leader_epoch)
            assert raised.value.diverging == OffsetAndMetadata(2, "", OLD)
        anew = await reading.fetch_batches(TP, 2, leader_epoch=OLD)
        assert (anew.next_offset, anew.leader_epoch) == (5, NEW)


async def test_a_position_behind_what_was_left_out_names_no_older_epoch() -> None:
    left_out = of_epoch(NEW, batch(4, b"x", producer_id=5))
    broker = broker_with(_0=OLD_RECORDS + left_out + of_epoch(NEW, batch(5, b"e")))
    broker.aborted = [(5, 4)]
    async with consumer(broker) as reading:
        reading.assign([TP])
        reading.seek(TP, 0)
        await reading.poll(1_000, max_records=4)
        assert await reading.positions() == {TP: OffsetAndMetadata(5)}

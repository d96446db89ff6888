"""What a reader does about each answer to a Fetch request."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.record import Record, build_batch
from oncelog.simulation.history import Polled, Positioned, Value
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import PeerWire
from tests.unit.client.scripted_broker import DROP
from tests.unit.simulation.peers.scripted import AT, Stage


def batch(first: int, *values: Value | None, epoch: int = 0) -> bytes:
    records = [Record(0, 0, None, value.encode() if value else b"?") for value in values]
    return bytes(build_batch(records, base_offset=first, leader_epoch=epoch))


async def reader(stage: Stage, flavor: str = "java", position: int = 0) -> Fetcher:
    wire = PeerWire(stage.context, FLAVORS[flavor])
    await wire.refresh(["t"])
    fetcher = Fetcher(stage.context, wire, committed=True)
    fetcher.seek(AT, position, "test")
    return fetcher


async def test_what_was_read_moves_the_position_on() -> None:
    stage = Stage()
    stage.broker.records[0] = batch(0, Value("c", 0), Value("c", 1))
    stage.broker.end_offset = 2
    fetcher = await reader(stage)
    assert not fetcher.is_caught_up()
    await fetcher.poll(0)
    assert fetcher.positions == {AT: 2}
    assert fetcher.is_caught_up()
    (polled,) = stage.events(Polled)
    assert polled.records == ((0, Value("c", 0)), (1, Value("c", 1)))
    assert (polled.committed, polled.position) == (True, 2)
    await stage.close()


async def test_an_offset_that_is_gone_begins_at_the_earliest() -> None:
    stage = Stage()
    fetcher = await reader(stage, position=9)
    stage.broker.on(ApiKey.FETCH, ErrorCode.offset_out_of_range)
    await fetcher.poll(0)
    await fetcher.poll(0)
    assert fetcher.positions == {AT: 0}
    assert [event.reason for event in stage.events(Positioned)] == ["test", "reset to earliest"]
    await stage.close()


async def test_a_partition_that_moved_is_looked_for() -> None:
    stage = Stage()
    fetcher = await reader(stage)
    stage.broker.on(ApiKey.FETCH, ErrorCode.not_leader_or_follower)
    await fetcher.poll(0)
    await fetcher.poll(0)
    assert len(stage.broker.requests(ApiKey.METADATA)) == 2
    assert stage.stuck() == []
    await stage.close()


@pytest.mark.parametrize(
    ("flavor", "version", "session"), [("java", 18, 0), ("librdkafka", 16, -1), ("old", 4, -1)]
)
async def test_each_client_fetches_in_its_version(flavor: str, version: int, session: int) -> None:
    stage = Stage()
    fetcher = await reader(stage, flavor)
    stage.broker.on(ApiKey.FETCH, DROP)
    await fetcher.poll(0)
    await fetcher.poll(0)
    assert stage.broker.versions(ApiKey.FETCH) == {version}
    assert [r.session_epoch for r in stage.broker.requests(ApiKey.FETCH)] == [session] * 2
    await stage.close()


async def test_what_may_not_be_seen_yet_is_written_down() -> None:
    stage = Stage()
    stage.broker.records[0] = batch(0, Value("c", 0), Value("c", 1))
    stage.broker.end_offset = 1
    fetcher = await reader(stage)
    await fetcher.poll(0)
    assert stage.stuck() == ["stuck: t-0: read up to 2, beyond 1 (INV-7)"]
    await stage.close()


async def test_a_record_that_no_client_wrote_is_recorded() -> None:
    stage = Stage()
    stage.broker.records[0] = batch(0, None)
    fetcher = await reader(stage)
    await fetcher.poll(0)
    assert stage.stuck()[0].startswith("stuck: t-0@0: a record that nobody wrote")
    await stage.close()


async def test_damage_is_asked_for_again_and_given_up_in_the_end() -> None:
    stage = Stage()
    damaged = bytearray(batch(0, Value("c", 0)))
    damaged[-1] ^= 1
    stage.broker.records[0] = bytes(damaged)
    stage.broker.end_offset = 1
    fetcher = await reader(stage)
    for _ in range(20):
        assert not fetcher.is_caught_up()
        await fetcher.poll(0)
    assert stage.stuck() == ["corrupt: t-0@0"]
    assert fetcher.is_caught_up()
    await stage.close()


async def test_a_dropped_partition_is_read_no_more() -> None:
    stage = Stage()
    fetcher = await reader(stage)
    fetcher.seek(TopicPartition("t", 1), 0, "test")
    fetcher.drop(AT)
    await fetcher.poll(0)
    (request,) = stage.broker.requests(ApiKey.FETCH)
    assert [p.partition for topic in request.topics for p in topic.partitions] == [1]
    await stage.close()


async def read_past_a_lost_tail(stage: Stage, flavor: str) -> None:
    """Two records are read, the second is lost, and one of the next epoch takes its offset."""
    stage.broker.records = {0: batch(0, Value("c", 0), Value("c", 1))}
    stage.broker.end_offset = 2
    fetcher = await reader(stage, flavor)
    await fetcher.poll(0)
    stage.broker.leader_epoch = 1
    stage.broker.epoch_ends = {0: (0, 1)}
    stage.broker.records = {
        1: batch(1, Value("d", 0), Value("d", 1), epoch=1),
        2: batch(2, Value("d", 1), epoch=1),
    }
    stage.broker.end_offset = 3
    for _ in range(3):
        await fetcher.poll(0)
    await stage.close()


async def test_a_reader_behind_a_lost_tail_goes_back_to_the_end_of_its_epoch() -> None:
    stage = Stage()
    await read_past_a_lost_tail(stage, "java")
    assert [(e.offset, e.reason) for e in stage.events(Positioned)] == [
        (0, "test"),
        (1, "truncated"),
    ]
    assert [(e.position, e.leader_epoch) for e in stage.events(Polled)] == [(2, 0), (3, 1)]


async def test_an_old_client_compares_no_epochs() -> None:
    stage = Stage()
    await read_past_a_lost_tail(stage, "old")
    assert len(stage.events(Positioned)) == 1
    assert [(e.position, e.leader_epoch) for e in stage.events(Polled)] == [(2, -1), (3, -1)]

"""How long a follower of a compacted partition was away, and what it begins with then."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller.image import ImageDelta, TopicImage
from oncelog.core.ids import TopicPartition
from oncelog.replication.follower import FollowerState
from oncelog.storage.files import CAUGHT_UP_NAME
from tests.unit.broker.replication.scripted_leader import (
    BROKER_EPOCH,
    bench,
    following,
    given,
    records,
)
from tests.unit.broker.support import ME, apply

LABEL = TopicPartition("t", 0)
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "3600000"}
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("away_ms", "isr", "end"),
    [
        pytest.param(HOUR_MS + 60_000, (2,), 0, id="longer than deletions are kept"),
        pytest.param(None, (2,), 0, id="nothing tells"),
        pytest.param(HOUR_MS - 60_000, (2,), 3, id="not so long"),
        pytest.param(None, (2, ME), 3, id="in the ISR"),
    ],
)
async def test_a_compacted_log_that_was_away_too_long_begins_again(
    tmp_path: Path, away_ms: int | None, isr: tuple[int, ...], end: int
) -> None:
    """Over a restart: the time of its last contact is noted beside the high watermarks."""
    async with bench(tmp_path, topic=COMPACTED) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, records(0, 3), high_watermark=3))
        await broker.next()
    folder = broker.logs.folders[0]
    noted = folder.offsets.read_quietly(CAUGHT_UP_NAME)
    assert abs(noted[LABEL] - broker.clock.now_ms()) < HOUR_MS / 2
    changed = {} if away_ms is None else {LABEL: broker.clock.now_ms() - away_ms}
    folder.offsets.write(CAUGHT_UP_NAME, changed)
    async with bench(tmp_path, topic=COMPACTED) as broker:
        await broker.begin(following(isr=isr))
        asked = await broker.next()
        held = broker.partition().log
        assert asked.offsets[0] == end, "it says no end that it gives up"
        assert held.log_end_offset == 3, "its leader may be gone"
        asked.answer(given(0, high_watermark=3))
        await broker.next()
        assert (held.log_start_offset, held.log_end_offset) == (0, end)


async def test_one_whose_newest_record_is_young_was_not_away_for_long(tmp_path: Path) -> None:
    """Though it died before it noted anything: all that it lacks is newer still."""
    topic = {**COMPACTED, "message.timestamp.after.max.ms": "0"}
    async with bench(tmp_path, topic=topic) as broker:
        await broker.begin(following())
        asked = await broker.next()
        now_ms = broker.clock.now_ms()
        asked.answer(given(0, records(0, 3, timestamp_ms=now_ms - HOUR_MS + 60_000)))
        asked = await broker.next()
    broker.logs.folders[0].offsets.write(CAUGHT_UP_NAME, {})
    async with bench(tmp_path, topic=topic) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, high_watermark=9, start=2))
        await broker.next()
        assert broker.partition().log.log_start_offset == 2
        assert broker.partition().log.log_end_offset == 3


async def test_a_timestamp_of_the_future_does_not_shorten_an_absence(tmp_path: Path) -> None:
    """Producers choose it: by `message.timestamp.after.max.ms` above the time of the append."""
    topic = {**COMPACTED, "message.timestamp.after.max.ms": str(2 * HOUR_MS)}
    async with bench(tmp_path, topic=topic) as broker:
        await broker.begin(following())
        asked = await broker.next()
        now_ms = broker.clock.now_ms()
        asked.answer(given(0, records(0, 3, timestamp_ms=now_ms + HOUR_MS // 2)))
        asked = await broker.next()
    gone = {LABEL: broker.clock.now_ms() - HOUR_MS - 60_000}
    broker.logs.folders[0].offsets.write(CAUGHT_UP_NAME, gone)
    async with bench(tmp_path, topic=topic) as broker:
        await broker.begin(following())
        assert (await broker.next()).offsets == {0: 0}


async def test_only_compacted_logs_note_when_they_had_everything(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, records(0, 3), high_watermark=3))
        await broker.next()
    assert broker.logs.folders[0].offsets.read_quietly(CAUGHT_UP_NAME) == {}


async def test_a_copy_that_has_not_caught_up_notes_no_time(tmp_path: Path) -> None:
    async with bench(tmp_path, topic=COMPACTED) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, records(0, 3), high_watermark=9))
        await broker.next()
    assert broker.logs.folders[0].offsets.read_quietly(CAUGHT_UP_NAME) == {}


async def test_a_leader_of_others_notes_that_it_has_everything(tmp_path: Path) -> None:
    async with bench(tmp_path, topic=COMPACTED) as broker:
        await broker.begin(following(leader=ME))
    noted = broker.logs.folders[0].offsets.read_quietly(CAUGHT_UP_NAME)
    assert list(noted) == [LABEL]


async def test_every_partition_of_a_fetch_has_told_its_end(tmp_path: Path) -> None:
    """KIP-903: from then on a leader may count on it."""
    async with bench(tmp_path) as broker:
        await broker.begin(following(), following())
        other = TopicImage("u", UUID(int=2), (following(),))
        await apply(broker.partitions, ImageDelta(created=(other,)))
        await broker.next()
        found = [broker.partitions.get(*label) for label in (("t", 0), ("t", 1), ("u", 0))]
        states = [held.state for held in found if held is not None]
        told = [isinstance(each, FollowerState) and each.has_told(BROKER_EPOCH) for each in states]
        assert told == [True] * 3


async def test_in_a_new_life_of_the_broker_all_partitions_are_named_again(tmp_path: Path) -> None:
    """One that is not named would count as fetched in this life too, wherever it ends now."""
    async with bench(tmp_path) as broker:
        await broker.begin(following(), following())
        asked = await broker.next()
        broker.broker_epoch += 1
        asked.answer(given(0, records(0)))
        asked = await broker.next()
        assert (asked.request.replica_epoch, asked.request.session_epoch) == (BROKER_EPOCH + 1, 0)
        assert asked.offsets == {0: 1, 1: 0}


async def test_a_partition_without_a_leader_is_fetched_from_nobody(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following(leader=-1), following())
        assert (await broker.next()).offsets == {1: 0}
        assert len(broker.fetchers) == 1

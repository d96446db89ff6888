"""What a follower sends its leader, and what it does with the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest

from oncelog.controller.image import BrokerImage, ImageDelta, TopicImage
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import StorageFailure
from oncelog.storage.files import LEADER_EPOCHS_NAME
from oncelog.storage.log_manager import LogManager
from tests.unit.broker.replication.scripted_leader import (
    BROKER_EPOCH,
    LEADER,
    LONG_MS,
    OTHER,
    SESSION,
    Asked,
    Bench,
    bench,
    following,
    given,
    records,
)
from tests.unit.broker.support import ME, apply

LABEL = TopicPartition("t", 0)
LATER = {"replica.fetch.backoff.ms": LONG_MS}


async def test_the_first_fetch_says_who_asks_for_what(tmp_path: Path) -> None:
    config = {
        "replica.fetch.min.bytes": 3,
        "replica.fetch.wait.max.ms": 4000,
        "replica.fetch.max.bytes": 5000,
        "replica.fetch.response.max.bytes": 6000,
    }
    async with bench(tmp_path, config) as broker:
        await broker.begin(following(epoch=4))
        asked = await broker.next()
        request = asked.request
        assert (request.replica_id, request.replica_epoch) == (ME, BROKER_EPOCH)
        assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (3, 4000, 6000)
        assert (request.session_id, request.session_epoch) == (0, 0)
        wanted = asked.partitions[0]
        assert (wanted.fetch_offset, wanted.partition_max_bytes) == (0, 5000)
        assert (wanted.current_leader_epoch, wanted.last_fetched_epoch) == (4, -1)


async def test_records_are_appended_and_the_next_fetch_says_so(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following(), following())
        asked = await broker.next()
        asked.answer(given(0, records(0, 3), high_watermark=2), given(1))
        asked = await broker.next()
        assert (asked.request.session_id, asked.request.session_epoch) == (SESSION, 1)
        assert asked.offsets == {0: 3}
        assert asked.partitions[0].last_fetched_epoch == 0
        assert asked.partitions[0].high_watermark == 2
        held = broker.partition()
        assert (held.log.log_end_offset, held.state.high_watermark) == (3, 2)
        asked.answer(given(0, high_watermark=3))
        assert (await broker.next()).partitions[0].high_watermark == 3


async def test_the_log_start_travels_along(tmp_path: Path) -> None:
    """And stays below what this replica knows to be committed."""
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, records(0, 9), high_watermark=9, start=4))
        asked = await broker.next()
        assert broker.partition().log.log_start_offset == 4
        assert asked.partitions[0].log_start_offset == 4
        asked.answer(given(0, high_watermark=9, start=2))
        await broker.rest()
        assert broker.partition().log.log_start_offset == 4


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_out_of_range,
    ],
)
async def test_a_partition_that_erred_leaves_the_session(tmp_path: Path, error: ErrorCode) -> None:
    """Until its state changes: it never asks again and again by an old epoch (KIP-320)."""
    async with bench(tmp_path, LATER) as broker:
        await broker.begin(following(epoch=1), following(epoch=1))
        asked = await broker.next()
        asked.answer(given(0, error=error), given(1, records(0)))
        asked = await broker.next()
        assert asked.forgotten == {0}
        assert asked.offsets == {1: 1}
        asked.answer(given(1, records(1)))
        asked = await broker.next()
        assert asked.offsets == {1: 2}
        await broker.change(following(epoch=2), following(epoch=1))
        asked.answer(given(1, records(2)))
        asked = await broker.next()
        assert asked.offsets == {0: 0, 1: 3}
        assert asked.partitions[0].current_leader_epoch == 2


async def test_a_lone_partition_that_erred_asks_nothing_in_its_backoff(tmp_path: Path) -> None:
    async with bench(tmp_path, LATER) as broker:
        await broker.begin(following(epoch=1))
        asked = await broker.next()
        asked.answer(given(0, error=ErrorCode.fenced_leader_epoch))
        await broker.rest()
        assert broker.asked.empty()
        reads_count = broker.clock.reads_count
        await broker.rest()
        assert broker.clock.reads_count == reads_count, "it does not look all the time"
        await broker.change(following(epoch=1))
        await broker.rest()
        assert broker.asked.empty(), "the same state, told again"
        await broker.change(following(epoch=2))
        asked = await broker.next()
        assert asked.partitions[0].current_leader_epoch == 2
        assert asked.request.session_epoch == 1


async def test_a_partition_that_erred_comes_back_after_the_backoff(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, error=ErrorCode.not_leader_or_follower))
        asked = await broker.next()
        assert asked.request.session_epoch == 1
        assert asked.forgotten == set(), "the leader's session has it still, at the same offset"
        asked.answer(given(0, records(0)))
        assert (await broker.next()).offsets == {0: 1}


async def test_a_leader_that_has_not_heard_of_it_is_asked_again_soon(tmp_path: Path) -> None:
    async with bench(tmp_path, LATER) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, error=ErrorCode.unknown_leader_epoch))
        asked = await broker.next()
        asked.answer(given(0, records(0)))
        assert (await broker.next()).offsets == {0: 1}


async def with_two_epochs(broker: Bench) -> Asked:
    """Follow with two records of each of two epochs; return the fetch that says so."""
    await broker.begin(following(epoch=3))
    asked = await broker.next()
    broker.append(records(0, 2, epoch=1), records(2, 2, epoch=2))
    asked.answer(given(0))
    return await broker.next()


async def test_a_diverging_log_is_cut_and_asked_for_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        asked = await with_two_epochs(broker)
        assert asked.offsets == {0: 4}
        asked.answer(given(0, diverging=(1, 9)))
        asked = await broker.next()
        assert asked.offsets == {0: 2}
        assert asked.partitions[0].last_fetched_epoch == 1
        asked.answer(given(0, diverging=(1, 1)))
        asked = await broker.next()
        assert asked.offsets == {0: 0}, "the batch goes whole"
        assert asked.partitions[0].last_fetched_epoch == -1


async def test_no_checkpoint_names_a_high_watermark_that_is_being_cut_off(
    tmp_path: Path,
) -> None:
    """After a crash records that come in its place would count as committed."""
    async with bench(tmp_path) as broker:
        await broker.begin(following(epoch=2))
        asked = await broker.next()
        asked.answer(given(0, records(0, 2, 1) + records(2, 2, 2), high_watermark=4))
        await broker.next()
        await broker.change(following(epoch=3, leader=OTHER))
        asked = await broker.next()
        broker.disk_moves.clear()
        asked.answer(given(0, diverging=(1, 2)))
        await broker.rest()
        assert broker.partition().is_being_cut
        note = broker.partitions._upkeep.note_high_watermarks()
        broker.disk_moves.set()
        assert (await broker.next()).offsets == {0: 2}
        note()
        noted = broker.logs.folders[0].offsets.read_high_watermarks()
        assert noted.get(LABEL, 0) <= 2


async def test_a_log_below_its_leaders_start_begins_again_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        broker.append(records(0, 4))
        asked.answer(given(0))
        asked = await broker.next()
        asked.answer(given(0, error=ErrorCode.offset_out_of_range, start=50))
        asked = await broker.next()
        assert asked.offsets == {0: 50}
        assert asked.partitions[0].last_fetched_epoch == -1
        held = broker.partition()
        assert (held.log.log_start_offset, held.log.log_end_offset) == (50, 50)
        asked.answer(given(0, records(48, 4), high_watermark=52, start=50))
        await broker.next()
        assert (held.log.log_start_offset, held.log.log_end_offset) == (50, 52)


async def test_a_role_given_while_the_log_is_cut_is_taken_after(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        asked = await with_two_epochs(broker)
        broker.disk_moves.clear()
        led: list[int] = []
        broker.partitions.on_leading = lambda held: led.append(held.log.log_end_offset)
        asked.answer(given(0, diverging=(1, 2)))
        await broker.rest()
        changing = asyncio.create_task(broker.change(following(epoch=4, leader=ME)))
        await broker.rest()
        assert not broker.partition().state.is_leader
        assert not changing.done(), "it is named once it leads"
        assert led == []
        broker.disk_moves.set()
        await changing
        state = broker.partition().state
        assert state.is_leader
        assert (state.leader_epoch, state.log_end_offset) == (4, 2)
        assert led == [2]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_cut_that_fails_after_the_replica_was_given_up_fails_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    async with bench(tmp_path) as broker:
        asked = await with_two_epochs(broker)
        held = broker.partition()
        failure = StorageFailure("truncate", held.log.directory, "the disk fails")
        monkeypatch.setattr(LogManager, "note_truncation", Mock(side_effect=failure))
        broker.disk_moves.clear()
        asked.answer(given(0, diverging=(1, 2)))
        await broker.rest()
        assert held.is_being_cut
        held.resign(ErrorCode.not_leader_or_follower)
        noted: list[StorageFailure] = []
        monkeypatch.setattr(broker.partitions._following, "_folder_failed", noted.append)
        monkeypatch.setattr(type(held.log), "is_deleted", is_deleted)
        broker.disk_moves.set()
        await broker.rest()
        assert not broker.partition().is_being_cut
        assert noted == ([] if is_deleted else [failure])


async def test_an_answer_for_an_older_role_is_dropped(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following(epoch=1))
        old = await broker.next()
        await broker.change(following(epoch=2))
        old.answer(given(0, records(0, 2, epoch=1)))
        asked = await broker.next()
        assert asked.offsets == {0: 0}
        assert asked.partitions[0].current_leader_epoch == 2
        assert broker.partition().log.log_end_offset == 0


async def test_a_new_leader_is_asked_and_the_old_ones_answer_dropped(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following(epoch=1), following(epoch=1))
        old = await broker.next()
        await broker.change(following(epoch=2, leader=OTHER), following(epoch=1))
        asked = await broker.next()
        assert asked.offsets == {0: 0}
        asked.answer(given(0, records(0, 3, epoch=2)))
        asked = await broker.next()
        assert asked.offsets == {0: 3}
        old.answer(given(0, records(0, 2, epoch=1)), given(1, records(0, 1, epoch=1)))
        asked = await broker.next()
        assert asked.forgotten == {0}
        assert asked.offsets == {1: 1}
        assert broker.partition(0).log.log_end_offset == 3


async def test_who_leads_now_fetches_no_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following(epoch=1))
        asked = await broker.next()
        await broker.change(following(epoch=2, leader=ME))
        asked.answer(given(0, records(0, 2, epoch=1)))
        await broker.rest()
        assert broker.asked.empty()
        assert broker.partition().log.log_end_offset == 0
        assert broker.networks.transports[0].closed
        # Nor would it fetch from itself.
        assert len(broker.fetchers) == 0


async def test_an_epoch_in_which_it_led_and_wrote_nothing_is_not_asked(tmp_path: Path) -> None:
    """Else its leader, which never had that epoch, would send it back to where it is."""
    async with bench(tmp_path) as broker:
        await broker.begin(following(epoch=1))
        asked = await broker.next()
        asked.answer(given(0, records(0, 2, epoch=1)))
        asked = await broker.next()
        await broker.change(following(epoch=2, leader=ME))
        await broker.change(following(epoch=3))
        asked.answer()
        asked = await broker.next()
        assert asked.partitions[0].current_leader_epoch == 3
        assert asked.partitions[0].last_fetched_epoch == 1


async def test_a_forgotten_session_is_begun_again_with_all_partitions(tmp_path: Path) -> None:
    async with bench(tmp_path, LATER) as broker:
        await broker.begin(following(), following())
        asked = await broker.next()
        asked.answer(given(0, records(0)), given(1))
        asked = await broker.next()
        asked.answer(error=ErrorCode.fetch_session_id_not_found, session_id=0)
        asked = await broker.next()
        assert (asked.request.session_id, asked.request.session_epoch) == (0, 0)
        assert asked.offsets == {0: 1, 1: 0}
        asked.answer(error=ErrorCode.fetch_session_id_not_found, session_id=0)
        await broker.rest()
        assert broker.asked.empty(), "a leader that refuses every session is asked in a loop"


async def test_a_leader_that_dies_is_not_said_to_want_tls_or_sasl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a client says of a port that closes: between brokers there is neither."""
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        (await broker.next()).transport.cut()
        await broker.next()
    (said,) = [line for line in caplog.messages if line.startswith("no fetch from broker 2")]
    assert "closed by the peer" in said or "connection lost" in said
    assert "security.protocol" not in said


async def test_a_leader_that_closes_is_asked_again_from_the_start(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        asked.answer(given(0, records(0)))
        asked = await broker.next()
        asked.transport.cut()
        asked = await broker.next()
        assert asked.request.session_epoch == 0
        assert asked.offsets == {0: 1}
        assert asked.request.session_id == SESSION, "the leader is to end the old session"


async def test_a_silent_leader_is_given_up_after_the_socket_timeout(tmp_path: Path) -> None:
    config = {"replica.socket.timeout.ms": 30, "replica.fetch.wait.max.ms": 20}
    async with bench(tmp_path, config) as broker:
        await broker.begin(following())
        first = await broker.next()
        again = await broker.next()
        assert again.transport is not first.transport
        assert again.offsets == {0: 0}


async def test_a_leader_is_sought_where_it_is_registered_now(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        gone = broker.brokers.pop(2)
        await broker.begin(following())
        await broker.rest()
        assert broker.asked.empty()
        broker.brokers[2] = gone
        assert (await broker.next()).offsets == {0: 0}


async def test_a_leader_that_is_registered_elsewhere_is_asked_there_anew(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        before = await broker.next()
        broker.brokers[LEADER] = BrokerImage(LEADER, "elsewhere", 9092, broker_epoch=18)
        before.answer(given(0, records(0)))
        asked = await broker.next()
        assert before.transport.closed
        assert asked.transport is not before.transport
        assert (asked.request.session_epoch, asked.offsets) == (0, {0: 1})
        asked.answer(given(0, records(1)))
        assert (await broker.next()).transport is asked.transport


async def test_a_broken_batch_is_not_appended_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        broken = records(0)[:-1] + b"?"
        for _ in range(3):
            asked = await broker.next()
            asked.answer(given(0, broken))
        await broker.rest()
        assert broker.partition().log.log_end_offset == 0
    assert caplog.text.count("corrupt_message") == 1


async def test_a_failed_write_takes_the_log_directory_off_line(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        failed: list[StorageFailure] = []
        broker.partitions.folder_failed = failed.append  # type: ignore[assignment, method-assign]
        held = broker.partition()
        held.log.fail(StorageFailure("write", "x", "no space"))
        held.on_failure = failed.append
        asked = await broker.next()
        asked.answer(given(0, records(0)))
        await broker.rest()
        assert [str(each) for each in failed] == ["cannot write x: no space"]


@contextmanager
def obstructed(path: Path) -> Iterator[None]:
    """Have no write of this file succeed."""
    path.unlink(missing_ok=True)
    path.mkdir()
    yield
    path.rmdir()


@pytest.mark.damages
async def test_a_log_start_that_cannot_be_noted_takes_the_directory_off_line(
    tmp_path: Path,
) -> None:
    """D12: the broker goes on with its other log directories."""
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        failed: list[StorageFailure] = []
        held = broker.partition()
        held.on_failure = failed.append
        asked = await broker.next()
        asked.answer(given(0, records(0, 9), high_watermark=9))
        asked = await broker.next()
        with obstructed(Path(held.log.directory, LEADER_EPOCHS_NAME)):
            asked.answer(given(0, high_watermark=9, start=4))
            await broker.rest()
        assert len(failed) == 1


async def test_a_topic_made_again_under_its_name_is_not_taken_for_the_old(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        asked = await broker.next()
        again = TopicImage("t", UUID(int=9), (following(),))
        await apply(broker.partitions, ImageDelta(deleted=(broker.topic,), created=(again,)))
        asked.answer(given(0, records(0, 3)))
        asked = await broker.next()
        assert [topic.topic_id for topic in asked.request.topics] == [UUID(int=9)]
        assert asked.forgotten == {0}
        asked.answer(given(0, records(0, 3)))
        asked = await broker.next()
        assert broker.partition().log.log_end_offset == 0
        asked.answer(given(0, records(0, 2)), topic_id=UUID(int=9))
        assert (await broker.next()).offsets == {0: 2}


async def test_partitions_share_as_many_connections_as_configured(tmp_path: Path) -> None:
    async with bench(tmp_path, {"num.replica.fetchers": 2}) as broker:
        await broker.begin(*(following() for _ in range(8)))
        both = [await broker.next(), await broker.next()]
        assert len(broker.networks.transports) == 2
        numbers = [set(each.offsets) for each in both]
        assert set.union(*numbers) == set(range(8))
        assert not set.intersection(*numbers)
        for each in both:
            each.answer(*(given(number, records(0)) for number in each.offsets))
        assert {frozenset((await broker.next()).offsets) for _ in both} == set(
            map(frozenset, numbers)
        )


async def test_fetchers_end_with_the_partitions(tmp_path: Path) -> None:
    async with bench(tmp_path) as broker:
        await broker.begin(following())
        await broker.next()
    assert broker.networks.transports[0].closed
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert tasks == []

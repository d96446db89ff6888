"""What is known of the metadata, and what is shown of it while this broker cannot apply it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from oncelog.broker.membership.feed import FolderTask, MetadataFeed
from oncelog.controller import layout
from oncelog.controller.events import CreatePartitions
from oncelog.controller.image import BrokerImage, ImageDelta, TopicImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import UNMADE_RETRY_INTERVAL_MS
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Changes, Write
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.disk import StorageFailure
from tests.support.logged import said_by
from tests.unit.broker.controller.support import HandClock, Shell, TroubledStore, started
from tests.unit.broker.raw import until

T = TypeVar("T")
T0 = TopicPartition("t", 0)
FULL = StorageFailure("create", "/a/t-0", "no space is left")


async def create(shell: Shell, name: str) -> ErrorCode:
    (outcome,) = await shell.controller.create_topics([TopicToCreate(name)])
    return outcome.error


def made(shell: Shell, name: str) -> TopicImage:
    """A topic as the store says."""
    return shell.feed.known.image.topics[name]


def leader(shell: Shell, name: str = "t") -> int:
    return shell.feed.image.topics[name].partitions[0].leader


def seen_while_applying(
    shell: Shell, look: Callable[[Shell], T], monkeypatch: pytest.MonkeyPatch
) -> list[T]:
    """What is found as each step from now on begins to be applied."""
    found: list[T] = []
    apply = shell.feed._apply

    async def looking(delta: ImageDelta) -> FolderTask | None:
        found.append(look(shell))
        return await apply(delta)

    monkeypatch.setattr(shell.feed, "_apply", looking)
    return found


class HeldStore(TroubledStore):
    """Answers no question for changes while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_count = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        self.asked_count += 1
        await self.gate.wait()
        return await super().changes(after_revision, wait_ms=wait_ms)


async def test_a_revision_that_another_reader_brings_is_reached() -> None:
    store = HeldStore()
    shell = await started(store)
    await MemoryStore.write_all(store, [Write("/another", b"x", 0)])
    revision = (await store.changes(0)).revision
    store.gate.clear()
    reading = asyncio.create_task(shell.feed.read())
    await asyncio.sleep(0)
    reaching = asyncio.create_task(shell.feed.reach(revision))
    await asyncio.sleep(0)
    store.gate.set()
    assert await reading
    async with asyncio.timeout(5):
        await reaching


async def test_a_change_read_by_another_as_a_step_ends_is_applied() -> None:
    store = MemoryStore()
    reading: list[asyncio.Task[bool]] = []

    async def apply(_: ImageDelta) -> None:
        if feed.known.stored.revision == 1:
            await store.write_all([Write("/two", b"", 0)])
            reading.append(asyncio.create_task(feed.read()))

    feed = MetadataFeed(store, 1, apply, SystemClock(), random.Random(1))
    await feed.load("c")
    await feed.start(())
    await store.write_all([Write("/one", b"", 0)])
    following = asyncio.create_task(feed.run())
    await until(lambda: feed.image.revision == 2)
    assert await reading[0]
    following.cancel()


async def test_a_broker_names_itself_before_it_has_started() -> None:
    feed = (await started()).feed
    await feed.load("another")
    feed.announce(BrokerImage(5, "h", 9096, incarnation="i"))
    assert 5 in feed.image.brokers


async def test_a_start_applies_all_that_is_known_at_once_without_what_is_off_line() -> None:
    shell = await started()
    steps: list[tuple[ImageDelta, list[str]]] = []

    async def apply(delta: ImageDelta) -> None:
        steps.append((delta, list(feed.image.topics)))

    feed = MetadataFeed(shell.store, 1, apply, SystemClock(), random.Random(1))
    await feed.load("c")
    await create(shell, "t")
    await feed.read()
    await feed.start([T0])
    ((delta, shown),) = steps
    assert [topic.partitions[0].leader for topic in delta.created] == [-1]
    assert shown == ["t"]


async def test_a_topic_stays_though_its_partition_cannot_be_made_here() -> None:
    shell = await started()
    shell.unmade = {T0: FULL}
    assert await create(shell, "t") is ErrorCode.none
    shown = shell.feed.image.topics["t"].partitions[0]
    assert (shown.leader, shown.offline_replicas, shown.isr) == (-1, (1,), (1,))
    assert "/brokers/topics/t" in await shell.store.list("/brokers/topics/")


async def test_a_partition_without_room_has_no_leader_while_the_next_step_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = await started()
    shell.unmade = {T0: FULL}
    shell.gate.clear()
    making = asyncio.create_task(create(shell, "t"))
    await until(lambda: not shell.feed.is_settled)
    await MemoryStore.write_all(shell.store, [Write("/another", b"", 0)])
    await shell.feed.read()
    shown = seen_while_applying(shell, leader, monkeypatch)
    shell.gate.set()
    await making
    assert shown == [-1, -1]


async def test_while_a_partition_waits_for_room_new_topics_are_refused_unwritten() -> None:
    store = TroubledStore()
    shell = await started(store)
    shell.unmade = {T0: FULL}
    await create(shell, "t")
    written = len(store.written)
    (outcome,) = await shell.controller.create_topics([TopicToCreate("u")])
    assert (outcome.error, outcome.message) == (ErrorCode.kafka_storage_error, str(FULL))
    assert len(store.written) == written


async def test_a_partition_is_made_once_there_is_room() -> None:
    shell = await started()
    shell.unmade = {T0: FULL}
    await create(shell, "t")
    shell.unmade = {T0: FULL}
    await shell.feed.try_unmade()
    assert leader(shell) == -1
    retrying = asyncio.create_task(shell.feed.make_unmade())
    await until(lambda: leader(shell) == 1)
    assert not shell.feed.unmade
    assert await create(shell, "u") is ErrorCode.none
    retrying.cancel()


async def test_a_partition_without_room_is_left_alone_for_a_while() -> None:
    shell = await started()
    began_ms = shell.clock.ms
    retrying = asyncio.create_task(shell.feed.make_unmade())
    await asyncio.sleep(0.001)
    shell.unmade = {T0: FULL}
    await create(shell, "t")
    await until(lambda: leader(shell) == 1)
    assert shell.clock.ms == began_ms + UNMADE_RETRY_INTERVAL_MS
    retrying.cancel()


class TimedStore(TroubledStore):
    """Notes when it was asked in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_ms: list[float] = []
        self.clock = HandClock()

    def _fail_if_away(self) -> None:
        if self.is_away:
            self.asked_ms.append(self.clock.ms)
        super()._fail_if_away()


@pytest.mark.parametrize("who", ["feed", "office"])
async def test_a_store_that_fails_is_left_alone_between_two_questions(who: str) -> None:
    store = TimedStore()
    shell = await started(store)
    store.clock = shell.clock
    await shell.office.resign()
    store.is_away = True
    asking = asyncio.create_task(shell.feed.run() if who == "feed" else shell.office.run())
    await until(lambda: len(store.asked_ms) > 4)
    assert len(set(store.asked_ms)) == len(store.asked_ms)
    asking.cancel()


async def test_a_store_that_fails_is_noted_by_who_catches_up_and_then_left_alone() -> None:
    store = HeldStore()
    shell = await started(store)
    asked_count = store.asked_count
    store.gate.clear()
    store.is_away = True
    catching_up = [asyncio.create_task(shell.feed.catch_up()) for _ in range(2)]
    await until(lambda: store.asked_count > asked_count)
    store.gate.set()
    await asyncio.gather(*catching_up)
    # The second one shares no read that has failed.
    assert store.asked_count == asked_count + 2
    assert shell.feed.health.failure is not None
    await shell.feed.catch_up()
    assert store.asked_count == asked_count + 2


async def test_a_failed_directory_is_shown_until_the_next_start() -> None:
    shell = await started()
    await create(shell, "t")
    shell.feed.take_off_line([T0])
    assert leader(shell) == -1
    await create(shell, "u")
    assert (leader(shell), leader(shell, "u")) == (-1, 1)


async def test_the_feed_outlives_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    store = TroubledStore()
    shell = await started(store)
    store.is_away = True
    following = asyncio.create_task(shell.feed.run())
    await until(lambda: shell.clock.ms > 10_000)
    store.is_away = False
    await create(shell, "t")
    await until(lambda: "t" in shell.feed.image.topics)
    following.cancel()
    lines = [r.getMessage() for r in said_by(caplog) if r.levelno >= logging.WARNING]
    assert [line.split(":")[0] for line in lines[:1]] == [
        "no metadata can be read or changed until the store answers"
    ]
    assert len(lines) == 2


async def test_a_hung_disk_holds_up_no_later_step() -> None:
    shell = await started()
    shell.gate.clear()
    making = asyncio.create_task(create(shell, "t"))
    await until(lambda: any(delta.created for delta in shell.deltas))
    deleting = asyncio.create_task(shell.controller.delete_topic(made(shell, "t").topic_id))
    await until(lambda: any(delta.deleted for delta in shell.deltas))
    assert "t" not in shell.feed.image.topics
    assert not shell.feed.is_settled
    shell.gate.set()
    await making
    assert await deleting is ErrorCode.none
    assert "t" not in shell.feed.image.topics


async def test_what_is_deleted_is_named_no_more_while_that_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = await started()
    await create(shell, "t")
    named = seen_while_applying(shell, lambda shell: list(shell.feed.image.topics), monkeypatch)
    await shell.controller.delete_topic(made(shell, "t").topic_id)
    assert named[0] == []


async def test_a_growing_topic_is_shown_as_it_is_but_for_its_new_partitions() -> None:
    shell = await started()
    await create(shell, "t")
    shell.served["t"] = 1
    shell.gate.clear()
    growing = asyncio.create_task(shell.controller.submit(CreatePartitions("t", 3)))
    await until(lambda: len(made(shell, "t").partitions) == 3)
    shell.feed.take_off_line([T0])
    await until(lambda: leader(shell) == -1)
    assert len(shell.feed.image.topics["t"].partitions) == 1
    shell.gate.set()
    await growing
    assert [p.leader for p in shell.feed.image.topics["t"].partitions] == [-1, 1, 1]


async def test_a_partition_that_is_tried_again_has_no_leader_before_it_is_made() -> None:
    shell = await started()
    shell.unmade = {T0: FULL}
    await create(shell, "t")
    shell.gate.clear()
    trying = asyncio.create_task(shell.feed.try_unmade())
    await until(lambda: made(shell, "t").partitions[0].leader == 1)
    assert leader(shell) == -1
    shell.gate.set()
    await trying
    assert leader(shell) == 1


async def test_a_bug_in_the_folders_ends_the_broker() -> None:
    shell = await started()
    shell.bug = InvariantViolation("INV-9")
    with pytest.raises(InvariantViolation, match="INV-9"):
        await create(shell, "t")
    with pytest.raises(InvariantViolation, match="INV-9"):
        await shell.feed.watch()


async def test_a_growing_topic_that_is_told_again_keeps_its_new_partitions() -> None:
    """Its folders change by a move; what is held back is known to the broker all the same."""
    shell = await started()
    await create(shell, "t")
    shell.served["t"] = 1
    shell.gate.clear()
    growing = asyncio.create_task(shell.controller.submit(CreatePartitions("t", 3)))
    await until(lambda: len(made(shell, "t").partitions) == 3 and not shell.feed.is_settled)
    telling = asyncio.create_task(shell.feed.tell_again("t"))
    count = len(shell.deltas)
    await until(lambda: len(shell.deltas) > count)
    (again,) = shell.deltas[-1].changed
    assert len(again.topic.partitions) == len(again.partitions) == 3
    assert len(shell.feed.image.topics["t"].partitions) == 1
    shell.gate.set()
    await growing
    await telling
    assert [p.leader for p in shell.feed.image.topics["t"].partitions] == [1, 1, 1]


async def test_what_is_known_is_in_effect_once_the_folders_of_all_steps_are_made() -> None:
    shell = await started()
    gates = [asyncio.Event() for _ in range(8)]

    async def make(gate: asyncio.Event) -> dict[TopicPartition, StorageFailure]:
        await gate.wait()
        return {}

    for gate in gates:
        shell.feed._begin(FolderTask({}, partial(make, gate)))
    following = asyncio.create_task(shell.feed.follow_known())
    for left, gate in enumerate(gates, 1 - len(gates)):
        gate.set()
        await until(lambda left=left: len(shell.feed._tasks) == -left)  # type: ignore[misc]
        for _ in range(5):
            await asyncio.sleep(0)
        assert following.done() == (not left)
    await following


async def test_what_waits_for_the_disk_is_shown_as_it_was_just_before() -> None:
    """It led, gave that up, and leads again once its log is cut; a folder is made meanwhile."""
    shell = await started()
    await create(shell, "t")
    shell.served["t"] = 1
    shell.gate.clear()
    growing = asyncio.create_task(shell.controller.submit(CreatePartitions("t", 3)))
    await until(lambda: not shell.feed.is_settled)
    for version, (led_by, shown) in enumerate([(2, 2), (1, 2)], 1):
        state = replace(made(shell, "t").partitions[0], leader=led_by, leader_epoch=version)
        shell.served["t"] = led_by - 1
        count = len(shell.deltas)
        path = layout.state_path("t", 0)
        await MemoryStore.write_all(shell.store, [Write(path, layout.encode_state(state), version)])
        await shell.feed.read()
        following = asyncio.create_task(shell.feed.follow_known())
        await until(lambda count=count: len(shell.deltas) > count)  # type: ignore[misc]
        await asyncio.sleep(0)
        assert leader(shell) == shown
    shell.gate.set()
    await growing
    await following
    assert leader(shell) == 1

"""Events are decided on in order, written in one step each, and answered once they are applied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ChangeOutcome
from oncelog.controller.events import AlterGroupConfigs, CreateTopics
from oncelog.controller.image import TopicImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CONTROLLER_EVENTS_COUNT_MAX, METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Changes, Check, StoreFailure, Write
from tests.support.logged import said_by
from tests.unit.broker.controller.support import Shell, TroubledStore, started
from tests.unit.broker.raw import until

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
NONE = ErrorCode.none


def alter(**configs: str) -> AlterGroupConfigs:
    names = {"session": SESSION, "heartbeat": HEARTBEAT}
    changes = [ConfigChange(names[k], ConfigOperation.SET, v) for k, v in configs.items()]
    return AlterGroupConfigs("g", tuple(changes))


async def create(shell: Shell, *names: str) -> list[ErrorCode]:
    outcomes = await shell.controller.create_topics([TopicToCreate(name) for name in names])
    return [outcome.error for outcome in outcomes]


async def test_an_event_is_decided_again_when_another_writer_was_faster() -> None:
    store = TroubledStore()
    shell = await started(store)
    path = layout.group_config_path("g")
    store.rivals = [Write(path, layout.encode_config({SESSION: "50000"}), 0)]
    assert await shell.controller.submit(alter(heartbeat="6000")) == ChangeOutcome()
    assert shell.feed.image.group_configs == {"g": {SESSION: "50000", HEARTBEAT: "6000"}}


async def test_a_topic_that_another_writer_made_refuses_only_itself() -> None:
    store = TroubledStore()
    shell = await started(store)
    made = TopicImage("b", UUID(int=1), ())
    store.rivals = [Write(layout.topic_path("b"), layout.encode_topic(made), 0)]
    assert await create(shell, "a", "b", "c") == [NONE, ErrorCode.topic_already_exists, NONE]
    assert set(shell.feed.image.topics) == {"a", "b", "c"}


async def test_rivals_without_end_leave_the_event_to_a_retry() -> None:
    store = TroubledStore()
    shell = await started(store)
    path = layout.group_config_path("g")
    store.rivals = [
        Write(path, layout.encode_config({SESSION: str(50_000 + version)}), version)
        for version in range(METADATA_WRITE_ATTEMPTS_MAX)
    ]
    outcome = await shell.controller.submit(alter(heartbeat="6000"))
    assert outcome == (ErrorCode.request_timed_out, "Too many brokers change this at once.")
    assert HEARTBEAT not in shell.feed.known.image.group_configs["g"]


async def test_a_replaced_controller_changes_nothing() -> None:
    store = TroubledStore()
    shell = await started(store)
    written = len(store.written)
    # The claim of another broker, which is gone again.
    store.rivals = [Write(layout.CONTROLLER_EPOCH_PATH, b"2", 1)]
    assert await create(shell, "t", "a b") == [
        ErrorCode.request_timed_out,
        ErrorCode.invalid_topic_exception,
    ]
    assert len(store.written) == written
    assert not shell.office.is_held


async def test_events_take_effect_in_the_order_in_which_they_came() -> None:
    store = TroubledStore()
    shell = await started(store)
    before = len(store.written)
    answers = await asyncio.gather(
        *(create(shell, name) for name in ("a.b", "a_b", "c")), create(shell, "c")
    )
    assert answers == [
        [NONE],
        [ErrorCode.invalid_topic_exception],
        [NONE],
        [ErrorCode.topic_already_exists],
    ]
    assert store.written[before:] == [
        [layout.state_path("a.b", 0), layout.topic_path("a.b")],
        [layout.state_path("c", 0), layout.topic_path("c")],
    ]


async def test_an_event_is_answered_once_it_is_in_effect() -> None:
    shell = await started()
    shell.gate.clear()
    making = asyncio.create_task(create(shell, "t"))
    other = asyncio.create_task(shell.controller.submit(alter(session="50000")))
    await until(lambda: "g" in shell.feed.known.image.group_configs)
    # A disk that hangs holds up the answers, not the decisions.
    assert not making.done()
    assert not other.done()
    assert "t" not in shell.feed.image.topics
    shell.gate.set()
    assert await making == [NONE]
    assert await other == ChangeOutcome()


async def test_a_cancelled_request_does_not_cut_its_event() -> None:
    shell = await started()
    making = asyncio.create_task(create(shell, "t"))
    await asyncio.sleep(0)
    making.cancel()
    await asyncio.wait(shell.controller._changes)
    assert "t" in shell.feed.image.topics


async def test_events_beyond_the_limit_are_refused_at_once() -> None:
    shell = await started()
    event = CreateTopics((TopicToCreate("t"),), validate_only=True)
    waiting = [
        asyncio.create_task(shell.controller.submit(event))
        for _ in range(CONTROLLER_EVENTS_COUNT_MAX)
    ]
    await asyncio.sleep(0)
    (refused,) = await shell.controller.submit(event)
    assert refused.error is ErrorCode.request_timed_out
    assert all(outcome.error is NONE for (outcome,) in await asyncio.gather(*waiting))


async def test_a_store_that_fails_is_said_once_and_refuses_changes_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = TroubledStore()
    shell = await started(store)
    store.is_away = True
    assert await create(shell, "t", "a b") == [
        ErrorCode.request_timed_out,
        ErrorCode.invalid_topic_exception,
    ]
    outcome = await shell.controller.submit(alter(session="50000"))
    assert outcome == (ErrorCode.request_timed_out, "no route to the store")
    assert ErrorCode.request_timed_out.retriable
    store.is_away = False
    # It is left alone for a while.
    assert await create(shell, "t") == [ErrorCode.request_timed_out]
    await shell.clock.sleep(shell.feed.health.pause_ms)
    assert await create(shell, "t") == [NONE]
    lines = [r.getMessage() for r in said_by(caplog) if r.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert lines[0].endswith("until the store answers: no route to the store")
    assert lines[1].startswith("the metadata store answers again, after ")


async def test_a_write_whose_answer_is_lost_is_found_by_the_retry() -> None:
    store = TroubledStore()
    shell = await started(store)
    store.answer_is_lost = True
    assert await create(shell, "t") == [ErrorCode.request_timed_out]
    await shell.feed.read()
    assert await create(shell, "t") == [ErrorCode.topic_already_exists]
    assert "t" in shell.feed.image.topics


class ToldLateStore(TroubledStore):
    """Lets something happen before a lost answer is known, and holds up what reads changes."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        try:
            await super().write_all(writes, checks=checks, fence=fence)
        except StoreFailure:
            if self.meanwhile is not None:
                await self.meanwhile()
            raise

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        await self.gate.wait()
        return await super().changes(after_revision, wait_ms=wait_ms)


async def test_who_made_a_topic_is_not_told_that_it_existed() -> None:
    store = ToldLateStore()
    shell = await started(store)
    store.answer_is_lost, store.meanwhile = True, shell.feed.read
    assert await create(shell, "t", "a b") == [
        ErrorCode.request_timed_out,
        ErrorCode.invalid_topic_exception,
    ]
    made = shell.feed.image.topics["t"].topic_id
    await shell.clock.sleep(shell.feed.health.pause_ms)
    store.answer_is_lost = True
    assert await shell.controller.delete_topic(made) is ErrorCode.request_timed_out
    assert not shell.feed.image.topics


async def test_a_refusal_rests_on_what_another_reader_brings_too() -> None:
    store = ToldLateStore()
    shell = await started(store)
    await create(shell, "t")
    paths = layout.topic_path("t"), layout.state_path("t", 0)
    await MemoryStore.write_all(store, [Write(path, None, 1) for path in paths])
    store.gate.clear()
    following = asyncio.create_task(shell.feed.read())
    await asyncio.sleep(0)
    making = asyncio.create_task(create(shell, "t"))
    for _ in range(5):
        await asyncio.sleep(0)
    store.gate.set()
    assert await making == [NONE]
    assert await following

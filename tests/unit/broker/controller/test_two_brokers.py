"""Two brokers of one store: each leads its own topics, and the first one is the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from oncelog.broker.controller.balance import balance_leaders
from oncelog.controller import layout
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import BrokerRegistered, BrokersChanged, BrokerShuttingDown
from oncelog.controller.image import BrokerImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Check, SessionId, Write
from tests.unit.broker.controller.support import Shell, TroubledStore, registration, started
from tests.unit.broker.raw import until


async def two() -> tuple[Shell, Shell]:
    """Two brokers that know each other."""
    store = TroubledStore()
    first = await started(store, 1)
    second = await started(store, 2, first.others)
    await followed(first, second)
    return first, second


async def followed(*shells: Shell) -> None:
    for shell in shells:
        await shell.feed.read()
        await shell.feed.follow_known()


def leaders(shell: Shell) -> list[int]:
    return [each.leader for each in shell.feed.image.topics["t"].partitions]


async def test_brokers_of_one_store_name_each_other() -> None:
    named = {
        1: BrokerImage(1, "h", 9092, broker_epoch=1, incarnation="i"),
        2: BrokerImage(2, "h", 9093, broker_epoch=1, incarnation="i"),
    }
    for shell in await two():
        assert shell.feed.image.brokers == named


async def test_a_broker_names_itself_while_its_session_is_over() -> None:
    first, second = await two()
    assert isinstance(first.store, TroubledStore)
    session = first.membership.session_id
    assert session is not None
    first.store.expire(session)
    await followed(first, second)
    assert [sorted(shell.feed.image.brokers) for shell in (first, second)] == [[1, 2], [2]]
    # Nothing that is shown is decided on.
    assert sorted(first.feed.known.stored.brokers) == [2]


async def test_the_first_broker_is_the_controller_and_the_other_one_asks_it() -> None:
    first, second = await two()
    for shell, name in ((first, "t"), (second, "u")):
        assert shell.feed.image.controller_id == 1
        (created,) = await shell.controller.create_topics([TopicToCreate(name)])
        assert created.error is ErrorCode.none
        # Whoever asked sees it at once.
        assert name in shell.feed.image.topics
    assert second.feed.image.controller_epoch == 1


async def test_partitions_are_led_by_both_brokers() -> None:
    first, second = await two()
    await second.controller.create_topics([TopicToCreate("t", 4)])
    await followed(first)
    for shell in (first, second):
        assert leaders(shell) == [1, 2, 1, 2]


async def test_a_life_that_is_over_has_nothing_decided() -> None:
    first, second = await two()
    verdict = await first.controller.take(2, 2, BrokersChanged())
    assert verdict.error is ErrorCode.stale_broker_epoch
    verdict = await second.controller.take(1, 1, BrokersChanged())
    assert verdict.error is ErrorCode.not_controller


class SlowStore(TroubledStore):
    """Does something before the next write takes effect."""

    before: Callable[[], Awaitable[None]] | None = None

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        before, self.before = self.before, None
        if before is not None:
            await before()
        await super().write_all(writes, checks=checks, fence=fence)


@pytest.mark.parametrize(
    "event", [BrokerShuttingDown(2, 1), replace(registration(2), is_clean=False)]
)
async def test_a_late_write_about_a_life_leaves_the_next_one_alone(
    event: BrokerShuttingDown | BrokerRegistered,
) -> None:
    """The version of a registration begins anew with each life that begins without one."""
    store = SlowStore()
    first = await started(store, 1)
    second = await started(store, 2, first.others)
    unclean = replace(second.feed.known.stored.brokers[2], is_clean=False)
    session_id = second.membership.session_id

    async def register(epoch: int) -> None:
        """Begin a life at once after the end of the one before."""
        nonlocal session_id
        store.expire(session_id or SessionId(""))
        session_id = (await store.open_session(9000)).session_id
        path, epoch_path = layout.broker_path(2), layout.broker_epoch_path(2)
        value = layout.encode_broker(replace(unclean, broker_epoch=epoch))
        number = layout.encode_number(epoch)
        await store.write_all(
            [Write(path, value, 0, session_id), Write(epoch_path, number, epoch - 1)]
        )

    await register(2)
    await first.feed.read()

    store.before = partial(register, 3)
    late: ControllerEvent[Any] = replace(event, broker_epoch=2)
    verdict = await first.controller.take(2, 2, late)
    assert verdict.reply is not None
    assert verdict.reply.error is ErrorCode.stale_broker_epoch
    (found,) = (await store.list(layout.broker_path(2))).values()
    broker = layout.decode_broker(layout.broker_path(2), found.value)
    assert broker == replace(unclean, broker_epoch=3)


async def test_what_a_replaced_controller_may_not_write_the_next_one_decides() -> None:
    store = SlowStore()
    first = await started(store, 1)
    second = await started(store, 2, first.others)

    async def replace_controller() -> None:
        office = await store.get(layout.CONTROLLER_PATH)
        assert office is not None
        await store.write_all([Write(layout.CONTROLLER_PATH, None, office.version)])
        await followed(second)
        await second.office.look()

    store.before = replace_controller
    (created,) = await first.controller.create_topics([TopicToCreate("t")])
    assert created.error is ErrorCode.none
    assert first.feed.image.controller_id == 2


async def test_an_election_is_counted_with_the_time_that_it_took() -> None:
    store = SlowStore()
    first = await started(store, 1)
    await started(store, 2, first.others)
    await first.feed.read()
    await first.controller.create_topics([TopicToCreate("t", assignment={0: (2, 1)})])

    async def take_long() -> None:
        first.clock.ms += 5

    store.before = take_long
    await first.controller.submit(BrokerShuttingDown(2, 1))
    assert leaders(first) == [1]
    assert first.office.elections.time_ms == 5


async def test_a_broker_that_registers_gives_the_controller_nothing_to_bring_in_order() -> None:
    first, _ = await two()
    await started(first.store, 3, first.others)
    await followed(first)
    assert isinstance(first.store, TroubledStore)
    first.store.is_away = True
    await first.office.look()


async def test_only_the_controller_brings_leaderships_back() -> None:
    first, second = await two()
    await first.controller.create_topics([TopicToCreate("t", assignment={0: (2, 1)})])
    led = replace(first.feed.image.topics["t"].partitions[0], leader=1, leader_epoch=1)
    await first.store.write_all([Write(layout.state_path("t", 0), layout.encode_state(led), 1)])
    await followed(first, second)
    for shell, leader in ((second, 1), (first, 2)):
        looking = asyncio.create_task(
            balance_leaders(
                shell.broker_id, BrokerConfig({}), shell.feed, shell.controller, shell.clock
            )
        )
        began_ms = shell.clock.ms
        await until(lambda shell=shell, ms=began_ms: shell.clock.ms > ms + 1_000_000)  # type: ignore[misc]
        looking.cancel()
        await followed(first)
        assert leaders(first) == [leader]


async def test_a_broker_that_starts_while_another_does_is_registered() -> None:
    store = TroubledStore()
    # Another one has claimed the office since this one looked, and is gone again.
    store.rivals = [Write(layout.CONTROLLER_EPOCH_PATH, b"1", 0)]
    shell = await started(store)
    (created,) = await shell.controller.create_topics([TopicToCreate("t")])
    assert not store.rivals
    assert created.error is ErrorCode.none
    assert shell.feed.image.controller_epoch == 2


async def test_one_of_two_claims_at_once_wins() -> None:
    store = TroubledStore()
    first = await started(store, 1)
    others = first.others
    second, third = await started(store, 2, others), await started(store, 3, others)
    session = first.membership.session_id
    assert session is not None
    store.expire(session)
    await followed(second, third)
    for shell in (second, third):
        sessions = shell.membership.session_id
        assert sessions is not None
        assert shell.office.claim(sessions)
    await second.office.look()
    await third.office.look()
    assert (second.office.is_held, third.office.is_held) == (True, False)
    assert third.feed.known.stored.controller_epoch == 2

"""Two brokers of one store: each leads its own topics, and one of them is the controller."""

from __future__ import annotations

from oncelog.broker.membership.registration import register_address
from oncelog.controller import layout
from oncelog.controller.image import BrokerImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Write
from tests.unit.broker.controller.support import Shell, TroubledStore, registration, started


async def two() -> tuple[Shell, Shell]:
    """Two brokers that know each other; the second one started last."""
    store = TroubledStore()
    first, second = await started(store, 1), await started(store, 2)
    for shell in (first, second):
        await register_address(store, shell.feed.image.brokers[shell.broker_id])
    await followed(first, second)
    return first, second


async def followed(*shells: Shell) -> None:
    for shell in shells:
        await shell.feed.read()
        await shell.feed.follow_known()


async def test_brokers_of_one_store_name_each_other() -> None:
    named = {1: BrokerImage(1, "h", 9092), 2: BrokerImage(2, "h", 9093)}
    for shell in await two():
        assert shell.feed.image.brokers == named


async def test_an_address_that_is_known_is_not_written_again() -> None:
    first, _ = await two()
    assert isinstance(first.store, TroubledStore)
    count = len(first.store.written)
    await register_address(first.store, BrokerImage(1, "h", 9092))
    assert len(first.store.written) == count
    await register_address(first.store, BrokerImage(1, "h", 9999, "rack"))
    assert first.store.written[count:] == [["/brokers/ids/1"]]


async def test_a_broker_is_where_it_listens_now_to_itself() -> None:
    first, second = await two()
    first.feed.announce(BrokerImage(1, "h", 9999))
    await followed(second)
    ports = [shell.feed.image.brokers[1].port for shell in (first, second)]
    assert ports == [9999, 9092]


async def test_the_broker_that_started_last_is_the_controller() -> None:
    first, second = await two()
    for shell in (first, second):
        assert shell.feed.image.controller_id == 2
    (refused,) = await first.controller.create_topics([TopicToCreate("t")])
    assert refused.error is ErrorCode.not_controller
    (created,) = await second.controller.create_topics([TopicToCreate("t")])
    assert created.error is ErrorCode.none


async def test_partitions_are_led_by_both_brokers() -> None:
    first, second = await two()
    await second.controller.create_topics([TopicToCreate("t", 4)])
    await followed(first)
    for shell in (first, second):
        assert [each.leader for each in shell.feed.image.topics["t"].partitions] == [1, 2, 1, 2]


async def test_a_broker_that_starts_while_another_does_is_registered() -> None:
    store = TroubledStore()
    store.rivals = [
        Write("/another", b"", 0),
        # Between the claim and the registration.
        Write(layout.CONTROLLER_EPOCH_PATH, b"2", 1),
    ]
    shell = Shell(store)
    await shell.feed.load("c")
    await shell.controller.start(registration(1))
    await shell.feed.start(())
    (created,) = await shell.controller.create_topics([TopicToCreate("t")])
    assert not store.rivals
    assert created.error is not ErrorCode.not_controller

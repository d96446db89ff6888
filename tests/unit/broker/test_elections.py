"""The controller's office passes from broker to broker, and no event is lost or decided twice."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count

import pytest

from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.events import AlterTopicConfigs, BrokersChanged
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.support.members import Cluster, Member, members

NONE = ErrorCode.none


def controllers(cluster: Cluster) -> list[int]:
    """Who is the controller, as each broker that runs shows it."""
    return [member.broker.image.controller_id for member in cluster]


async def create(member: Member, name: str) -> ErrorCode:
    (outcome,) = await member.broker.controller.create_topics([TopicToCreate(name)])
    return outcome.error


async def elected(cluster: Cluster, epoch: int = 1) -> int:
    """Return the controller of an epoch, once all brokers that run show it."""

    def is_agreed() -> bool:
        images = [member.broker.image for member in cluster]
        found = {image.controller_id for image in images}
        return {image.controller_epoch for image in images} == {epoch} and len(found) == 1

    await cluster.until(is_agreed)
    assert -1 not in controllers(cluster)
    return controllers(cluster)[0]


async def test_the_first_broker_is_the_controller_and_each_creates_topics() -> None:
    async with members(3) as cluster:
        assert await elected(cluster) == 1
        for member in cluster:
            name = f"t{member.broker_id}"
            assert await create(member, name) is NONE
            # Whoever asked can use it at once.
            assert name in member.broker.image.topics
        assert len(cluster[2].link.writes) == len(cluster[3].link.writes) == 1


@pytest.mark.parametrize("is_dead", [True, False])
async def test_another_broker_is_elected_when_a_session_ends(is_dead: bool) -> None:
    async with members(3) as cluster:
        if is_dead:
            await cluster.kill(1)
        cluster.expire(1)
        # One that lives may win it again, in its next life.
        assert await elected(cluster, 2) in ((2, 3) if is_dead else (1, 2, 3))
        for member in cluster:
            assert await create(member, f"t{member.broker_id}") is NONE


async def test_a_broker_whose_session_ended_registers_anew_and_asks_the_next() -> None:
    async with members(2) as cluster:
        cluster.expire(1)
        await elected(cluster, 2)
        await cluster.until(lambda: cluster[1].broker.membership.broker_epoch == 2)
        await cluster.agreed()
        assert sorted(cluster[2].broker.image.brokers) == [1, 2]
        assert await create(cluster[1], "t") is NONE


async def test_a_paused_controller_that_wakes_up_changes_nothing() -> None:
    async with members(3) as cluster:
        paused = cluster[1]
        paused.link.is_open.clear()
        # It has decided, and its write has not reached the store.
        making = asyncio.create_task(create(paused, "t"))
        cluster.expire(1)
        await elected_without(cluster, 1)
        assert await create(cluster[2], "u") is NONE
        written = len(paused.link.writes)
        paused.link.is_open.set()
        # What it had decided was refused by the store, and is decided by its successor.
        assert await making is NONE
        await cluster.agreed()
        assert [path for writes in paused.link.writes[written:] for path in _topics(writes)] == []
        for member in cluster:
            assert set(member.broker.image.topics) == {"t", "u"}


def _topics(writes: object) -> list[str]:
    assert isinstance(writes, list | tuple)
    return [one.path for one in writes if one.path.startswith("/brokers/topics/")]


async def elected_without(cluster: Cluster, paused: int) -> None:
    """Return once the others agree on a controller."""
    others = [member for member in cluster if member.broker_id != paused]
    await cluster.until(lambda: {one.broker.image.controller_id for one in others} in ({2}, {3}))


async def test_events_wait_while_no_broker_is_the_controller() -> None:
    async with members(3) as cluster:
        await cluster.kill(1)
        making = [asyncio.create_task(create(cluster[n], f"t{n}")) for n in (2, 3)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in making)
        cluster.expire(1)
        assert await asyncio.gather(*making) == [NONE, NONE]


async def test_an_event_whose_answer_is_lost_is_not_sent_again() -> None:
    async with members(3) as cluster:
        await elected(cluster)
        cluster[1].link.is_open.clear()
        making = asyncio.create_task(create(cluster[2], "t"))
        controller = cluster[1].broker
        await cluster.until(lambda: len(controller.server.connections) > 0)
        # The controller has the event, and its death may be before or after its write.
        await cluster.kill(1)
        assert await making is ErrorCode.request_timed_out
        cluster.expire(1)
        await elected(cluster, 2)
        assert await create(cluster[2], "t") is NONE


async def test_a_cancelled_caller_does_not_cut_what_it_asked_for() -> None:
    async with members(2) as cluster:
        making = asyncio.create_task(create(cluster[2], "t"))
        await asyncio.sleep(0)
        making.cancel()
        await cluster.until(lambda: "t" in cluster[2].broker.image.topics)


async def test_brokers_that_ask_at_once_are_all_answered() -> None:
    async with members(3) as cluster:
        names = count()
        outcomes = await asyncio.gather(
            *(create(member, f"t{next(names)}") for _ in range(5) for member in cluster),
            *(create(member, "shared") for member in cluster),
        )
        assert outcomes[:15] == [NONE] * 15
        assert sorted(outcomes[15:]) == [NONE, *[ErrorCode.topic_already_exists] * 2]


async def test_what_another_broker_made_can_be_changed_from_each() -> None:
    async with members(3) as cluster:
        assert await create(cluster[2], "t") is NONE
        for member, value in zip(cluster, ("10", "20", "30"), strict=True):
            change = ConfigChange("retention.ms", ConfigOperation.SET, value)
            outcome = await member.broker.controller.submit(AlterTopicConfigs("t", (change,)))
            assert outcome.error is NONE
            assert member.broker.image.topics["t"].config == {"retention.ms": value}


async def test_a_report_is_repeated_until_it_is_decided() -> None:
    async with members(2) as cluster:
        await cluster.kill(1)
        reporting = cluster[2].broker.controller.report(BrokersChanged())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not reporting.done()
        cluster.expire(1)
        assert (await reporting).error is NONE


async def test_who_registered_after_the_controller_was_elected_is_missed_when_it_goes() -> None:
    """Found by a leader that was cut off: what it led had no other leader for ever."""
    async with members(3) as cluster:
        topic = TopicToCreate("t", assignment={0: (2, 3, 1)})
        await cluster[1].broker.controller.create_topics([topic])
        await cluster.agreed()
        cluster[2].link.cut()
        cluster.expire(2)
        await cluster.until(lambda: cluster.leader_of("t", 0) == 3)
        cluster[2].link.heal()
        await cluster.until(lambda: 2 in cluster[1].broker.image.brokers)
        cluster[3].link.cut()
        cluster.expire(3)
        await cluster.until(lambda: cluster.leader_of("t", 0) in (1, 2))
        cluster[3].link.heal()
        await cluster.until(lambda: 3 in cluster[1].broker.image.brokers)
        assert controllers(cluster) == [1, 1, 1]


async def test_a_broker_whose_id_another_process_has_taken_stops() -> None:
    async with members(2) as cluster:
        await elected(cluster)
        paused, link = cluster[2].broker, cluster[2].link
        stopping = asyncio.create_task(paused.wait_until_stop_is_requested())
        link.is_open.clear()
        link.expire()
        with tempfile.TemporaryDirectory() as folder:
            # Another process, with a folder of its own and the same node.id.
            twin = Member(2, folder, cluster.store, {})
            await twin.start()
            link.is_open.set()
            async with asyncio.timeout(20):
                await stopping
            assert str(paused.stopped_because) == (
                "another process is registered as broker 2 (epoch 2): each broker needs a node.id "
                "of its own"
            )
            assert twin.broker.membership.is_alive
            await twin.stop()

"""Replicas that move between brokers, also while controllers and brokers die (KIP-455)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Consumer, Producer
from oncelog.controller import layout
from oncelog.controller.events import AlterReassignments, ForgetBroker, Reassignment
from oncelog.controller.image import PartitionImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import Write
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
)
from tests.support.members import Cluster, members
from tests.unit.broker.test_several_brokers import asked, create, partition_of

T0 = TopicPartition("t", 0)
RECORDS_COUNT = 20


def state_of(cluster: Cluster, name: str = "t") -> PartitionImage:
    """The state as the first broker that runs has applied it."""
    return next(iter(cluster)).broker.image.topics[name].partitions[0]


def folder(cluster: Cluster, broker_id: int) -> bool:
    """Whether a broker has a folder of the partition."""
    return Path(cluster[broker_id].folder, "t-0").exists()


def strays(cluster: Cluster, broker_id: int) -> int:
    """How many folders of the partition are kept aside."""
    return len([*Path(cluster[broker_id].folder).glob("t-0.*-stray")])


async def produce(cluster: Cluster) -> None:
    async with Producer(addresses(cluster)) as producer:
        for number in range(RECORDS_COUNT):
            await producer.send("t", b"%d" % number)
        await producer.flush()


async def consumed(cluster: Cluster, count: int = RECORDS_COUNT) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(addresses(cluster)) as consumer:
        consumer.assign([T0])
        while len(found) < count:
            found += [record.value for record in await consumer.poll()]
    return found


def addresses(cluster: Cluster) -> str:
    return ",".join(one.broker.bootstrap_servers for one in cluster)


async def reassign(cluster: Cluster, *replicas: int, by: int = 1) -> tuple[ErrorCode, str | None]:
    """Ask one broker by the wire; without replicas to cancel."""
    async with asked(cluster, by) as client:
        wanted = ReassignablePartition(partition_index=0, replicas=replicas or None)
        topics = (ReassignableTopic(name="t", partitions=(wanted,)),)
        answer = await client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=topics)
    assert answer.error_code is ErrorCode.none
    ((outcome,),) = [topic.partitions for topic in answer.responses]
    return outcome.error_code, outcome.error_message


async def moved(cluster: Cluster, *replicas: int) -> None:
    """Return once these are the replicas, and in sync."""

    def is_done() -> bool:
        state = state_of(cluster)
        return state.replicas == replicas and {*state.isr} == {*replicas} and not state.adding

    await cluster.until(is_done)


async def ongoing(cluster: Cluster, by: int, *topics: str) -> list[Any]:
    """What a broker says is under way: (replicas, adding, removing) of each partition."""
    wanted = tuple(
        ListPartitionReassignmentsTopics(name=n, partition_indexes=(0, 9)) for n in topics
    )
    async with asked(cluster, by) as client:
        answer = await client.ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=wanted if topics else None
        )
    assert answer.error_code is ErrorCode.none
    return [
        (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    ]


async def test_replicas_move_with_all_records_and_old_folders_go() -> None:
    async with members(4) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await produce(cluster)
        assert await reassign(cluster, 3, 4, by=2) == (ErrorCode.none, None)
        await moved(cluster, 3, 4)
        await cluster.agreed()
        state = state_of(cluster)
        assert (state.leader, set(state.isr), state.adding, state.removing) == (3, {3, 4}, (), ())
        assert (folder(cluster, 1), folder(cluster, 2)) == (False, False)
        assert cluster[1].broker.partitions.get("t", 0) is None
        values = await consumed(cluster)
        assert values == [b"%d" % number for number in range(RECORDS_COUNT)]
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.until(lambda: state_of(cluster).leader == 4)
        assert await consumed(cluster) == values


async def test_metadata_shows_what_is_added_and_every_broker_lists_it() -> None:
    async with members(4) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await cluster.kill(4)
        cluster.expire(4)
        assert (await reassign(cluster, 1, 2, 4))[0] is ErrorCode.none
        for broker_id in (1, 2, 3):
            wanted = [("t", 0, (1, 2, 4, 3), (4,), (3,))]
            assert await ongoing(cluster, broker_id) == wanted
            assert await ongoing(cluster, broker_id, "t", "none") == wanted
            assert await ongoing(cluster, broker_id, "none") == []
        shown = await partition_of(cluster, "t")
        assert (shown.replica_nodes, set(shown.isr_nodes)) == ((1, 2, 4, 3), {1, 2, 3})
        assert shown.offline_replicas == (4,)
        assert (await reassign(cluster, by=3))[0] is ErrorCode.none
        assert await ongoing(cluster, 2) == []
        assert (await partition_of(cluster, "t")).replica_nodes == (1, 2, 3)
        assert (await reassign(cluster))[0] is ErrorCode.no_reassignment_in_progress


async def test_a_removed_replica_is_noted_until_its_broker_has_been_back() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await produce(cluster)
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.until(lambda: 3 not in state_of(cluster).isr)
        await reassign(cluster, 1, 2)
        await cluster.agreed()
        assert (state_of(cluster).removed, folder(cluster, 3)) == ((3,), True)
        await cluster.start(3)
        assert not folder(cluster, 3)
        await cluster.until(lambda: state_of(cluster).removed == ())


async def test_a_folder_that_no_note_names_is_kept_aside() -> None:
    """Its broker was forgotten, and returns: absence is no deletion (D14)."""
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.until(lambda: 3 not in state_of(cluster).isr)
        await reassign(cluster, 1, 2)
        await cluster[1].broker.controller.submit(ForgetBroker(3))
        await cluster.agreed()
        assert state_of(cluster).removed == ()
        await cluster.start(3)
        assert (folder(cluster, 3), strays(cluster, 3)) == (False, 1)


async def test_a_broker_that_runs_confirms_what_it_removed() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await reassign(cluster, 1, 2)
        await cluster.agreed()
        assert (state_of(cluster).removed, folder(cluster, 3)) == ((3,), False)
        confirming = asyncio.create_task(cluster[3].broker.deletions.run())
        await cluster.until(lambda: state_of(cluster).removed == ())
        confirming.cancel()


async def test_a_replica_that_is_added_again_begins_anew() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await produce(cluster)
        for replicas in ((1, 2), (1, 2, 3), (2, 3), (3, 1), (1, 2, 3)):
            assert (await reassign(cluster, *replicas))[0] is ErrorCode.none
            await moved(cluster, *replicas)
        await cluster.agreed()
        assert (set(state_of(cluster).isr), state_of(cluster).removed) == ({1, 2, 3}, ())
        assert len(await consumed(cluster)) == RECORDS_COUNT


async def test_a_lone_replica_grows_while_it_takes_records() -> None:
    """`min.insync.replicas` is of the replicas that were there until the new ones are."""
    async with members(3, {"min.insync.replicas": 2}) as cluster:
        await create(cluster, "t", (1,))
        for broker_id in (2, 3):
            await cluster.kill(broker_id)
            cluster.expire(broker_id)
        await reassign(cluster, 1, 2, 3)
        await cluster.agreed()
        await produce(cluster)
        await cluster.start(2, 3)
        await cluster.until(lambda: set(state_of(cluster).isr) == {1, 2, 3})
        assert state_of(cluster).adding == ()
        await reassign(cluster, 2)
        await cluster.until(lambda: state_of(cluster).replicas == (2,))
        await produce(cluster)
        assert len(await consumed(cluster, 2 * RECORDS_COUNT)) == 2 * RECORDS_COUNT


class Death:
    """Ends the controller at one of its writes about the topic, before or after it."""

    def __init__(self, cluster: Cluster, number: int, *, is_after: bool) -> None:
        self._cluster = cluster
        self._left = number
        self._is_after = is_after
        self.victim: int | None = None
        for member in cluster:
            member.link.around_write = self._at(member.broker_id)

    def _at(self, broker_id: int) -> Any:
        async def around(writes: Sequence[Write], is_done: bool) -> None:
            concerns = any(one.path == layout.state_path("t", 0) for one in writes)
            if not concerns or self.victim is not None or is_done != self._is_after:
                return
            self._left -= 1
            if self._left < 0:
                self.victim = broker_id
                self._cluster[broker_id].link.cut()
                await asyncio.Event().wait()

        return around

    async def follow(self) -> None:
        """Kill whom it has hit, and begin the next life at once."""
        await self._cluster.until(lambda: self.victim is not None)
        assert self.victim is not None
        await self._cluster.kill(self.victim)
        self._cluster.expire(self.victim)
        await self._cluster.start(self.victim)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(3))
async def test_a_controller_may_die_at_each_step(step: int, is_after: bool) -> None:
    """The steps: it begins, 3 is in the ISR, 4 is and it is done."""
    async with members(4) as cluster:
        await create(cluster, "t", (1, 2))
        await produce(cluster)
        await cluster.agreed()
        death = Death(cluster, step, is_after=is_after)
        event = AlterReassignments((Reassignment(T0, (3, 4)),))
        asking = asyncio.create_task(cluster[2].broker.controller.submit(event))
        await death.follow()
        (outcome,) = await asking
        if outcome.error is not ErrorCode.none:
            # It may have begun: an operator asks again.
            assert outcome.error is ErrorCode.request_timed_out
            (outcome,) = await next(iter(cluster)).broker.controller.submit(event)
            assert outcome.error is ErrorCode.none
        await moved(cluster, 3, 4)
        await cluster.agreed()
        state = state_of(cluster)
        assert (set(state.isr), state.adding, state.removing) == ({3, 4}, (), ())
        assert len(await consumed(cluster)) == RECORDS_COUNT


async def test_every_broker_dies_once_while_replicas_move() -> None:
    async with members(4) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await produce(cluster)
        wanted = itertools.cycle([(2, 3, 4), (1, 2, 3)])
        for broker_id in (1, 2, 3, 4):
            by = broker_id % 4 + 1
            replicas = next(wanted)
            assert (await reassign(cluster, *replicas, by=by))[0] is ErrorCode.none
            await cluster.kill(broker_id)
            cluster.expire(broker_id)
            await cluster.start(broker_id)
            await moved(cluster, *replicas)
        assert len(await consumed(cluster)) == RECORDS_COUNT


async def grow(
    cluster: Cluster, count: int, assignments: Sequence[tuple[int, ...]] | None
) -> ErrorCode:
    placed = None
    if assignments is not None:
        placed = tuple(CreatePartitionsAssignment(broker_ids=one) for one in assignments)
    topic = CreatePartitionsTopic(name="t", count=count, assignments=placed)
    async with asked(cluster, 1) as client:
        answer = await client.ask(ApiKey.CREATE_PARTITIONS, topics=(topic,), timeout_ms=5000)
    (error,) = [result.error_code for result in answer.results]
    assert isinstance(error, ErrorCode)
    return error


async def test_partitions_are_added_where_an_assignment_says() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2))
        assert await grow(cluster, 3, [(2, 3), (3, 1)]) is ErrorCode.none
        states = cluster[1].broker.image.topics["t"].partitions
        assert [state.replicas for state in states] == [(1, 2), (2, 3), (3, 1)]
        for wrong in ([(2, 3), (3, 1)], [(2,)], [(2, 2)], [(2, 9)], [()]):
            assert await grow(cluster, 4, wrong) is ErrorCode.invalid_replica_assignment


async def test_topics_and_partitions_are_made_while_a_broker_is_away() -> None:
    """What has a replica on it is led by others, and filled there when it is back."""
    async with members(3) as cluster:
        await create(cluster, "t", (1, 2, 3))
        await cluster.kill(3)
        cluster.expire(3)
        await cluster.until(lambda: 3 not in cluster[1].broker.image.brokers)
        assert await grow(cluster, 2, [(3, 1, 2)]) is ErrorCode.none
        assert await grow(cluster, 3, None) is ErrorCode.none
        (outcome,) = await cluster[1].broker.controller.create_topics([TopicToCreate("u", 3, 3)])
        assert outcome.error is ErrorCode.none
        await cluster.agreed()
        image = cluster[1].broker.image
        states = [*image.topics["t"].partitions, *image.topics["u"].partitions]
        assert all(state.leader in (1, 2) and set(state.isr) == {1, 2} for state in states)
        assert all(set(state.replicas) == {1, 2, 3} for state in states)
        await cluster.start(3)

        def is_whole() -> bool:
            topics = cluster[1].broker.image.topics.values()
            return all(len(state.isr) == 3 for topic in topics for state in topic.partitions)

        await cluster.until(is_whole)

"""What the history is told of states that controllers write."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.image import BrokerImage, PartitionImage, TopicImage
from oncelog.metadata import Write
from oncelog.simulation.history_cluster import PartitionChanged
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import StoreConnection
from oncelog.simulation.trace import Trace
from oncelog.simulation.watched_store import WatchedStore

BEFORE = PartitionImage(0, 0, (0, 1, 2), (0, 1, 2))
AFTER = PartitionImage(1, 1, (1, 2), (0, 1, 2), partition_epoch=1)
STATE = layout.state_path("t", 0)
ELECTION = Write(STATE, layout.encode_state(AFTER), 1)


def registered(broker: int, *, stops: bool = False) -> bytes:
    return layout.encode_broker(BrokerImage(broker, "h", 1, None, is_shutting_down=stops))


class Context:
    """Three brokers are registered; the controller has read that, and any other process writes."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.told: list[PartitionChanged] = []
        trace = Trace(lambda: self.scheduler.now_s)
        self.store = WatchedStore(
            random.Random(1), trace, lambda: self.scheduler.now_s, self.told.append
        )
        self.controller, self.other = self.process("controller"), self.process("other")
        topic = TopicImage("t", UUID(int=1), (BEFORE,))
        self.write(
            self.other,
            Write(layout.topic_path("t"), layout.encode_topic(topic), 0),
            Write(STATE, layout.encode_state(BEFORE), 0),
            *(Write(layout.broker_path(each), registered(each), 0) for each in (0, 1, 2)),
        )
        self.read()

    def process(self, name: str) -> Process:
        return Process(self.scheduler, name, "10.0.0.1", random.Random(name))

    def of(self, process: Process) -> StoreConnection:
        return self.store.of(process)

    def write(self, process: Process, *writes: Write) -> None:
        async def written() -> None:
            await self.of(process).write_all(writes)

        process.spawn(written())
        self.let_pass()

    def read(self) -> None:
        async def read() -> None:
            await self.of(self.controller).changes(0)

        self.controller.spawn(read())
        self.let_pass()

    def let_pass(self) -> None:
        self.scheduler.run_until(self.scheduler.now_s + 1)

    def elect(self, *beside: Write) -> Sequence[int]:
        """Have the controller elect broker 1; return who was excluded."""
        self.write(self.controller, ELECTION, *beside)
        return self.told[-1].excluded


@pytest.mark.parametrize("value", [None, registered(1, stops=True)])
def test_a_controller_is_judged_by_the_registrations_it_has_read(value: bytes | None) -> None:
    context = Context()
    context.write(context.other, Write(layout.broker_path(1), value, 1))
    assert context.elect() == ()


@pytest.mark.parametrize("value", [None, registered(1, stops=True)])
def test_who_was_read_to_be_gone_is_excluded(value: bytes | None) -> None:
    context = Context()
    context.write(context.other, Write(layout.broker_path(1), value, 1))
    context.read()
    assert context.elect() == (1,)


def test_who_waited_for_a_change_has_not_read_it() -> None:
    context = Context()

    async def wait() -> None:
        await context.of(context.controller).changes(1, wait_ms=10_000)

    context.controller.spawn(wait())
    context.write(context.other, Write(layout.broker_path(1), None, 1))
    assert context.elect() == ()


def test_what_the_controller_writes_beside_a_state_counts() -> None:
    context = Context()
    stops = Write(layout.broker_path(2), registered(2, stops=True), 1)
    assert context.elect(stops) == (2,)


def test_what_is_read_while_a_write_is_on_its_way_does_not_count() -> None:
    context = Context()
    context.write(context.other, Write(layout.broker_path(1), None, 1))

    async def elect() -> None:
        await context.of(context.controller).write_all([ELECTION])

    context.store.extra_s = 2
    context.controller.spawn(elect())
    context.scheduler.run_until(context.scheduler.now_s + 0.1)
    context.store.extra_s = 0
    context.read()
    assert not any(each.leader == 1 for each in context.told)
    context.let_pass()
    assert context.told[-1].leader == 1
    assert context.told[-1].excluded == ()


def test_the_logs_of_all_suspects_are_told_with_the_election_of_one() -> None:
    """The last of them comes back in the write that elects."""
    context = Context()
    context.store.read_log = lambda label, broker: (3, 10 + broker)
    waiting = PartitionImage(
        -1, 1, (2,), (0, 1, 2), partition_epoch=1, suspects={0: (3, 10), 1: None}
    )
    unclean = layout.encode_broker(BrokerImage(2, "h", 1, None, is_clean=False))
    context.write(context.other, Write(STATE, layout.encode_state(waiting), 1))
    context.write(context.other, Write(layout.broker_path(2), unclean, 1))
    elected = PartitionImage(2, 2, (2,), (0, 1, 2), partition_epoch=2)
    back = Write(layout.broker_path(2), registered(2), 2)
    context.write(context.other, Write(STATE, layout.encode_state(elected), 2), back)
    told = context.told[-1]
    assert told.doubted == (2,)
    assert told.logs == ((0, (3, 10)), (1, (3, 11)), (2, (3, 12)))


def test_no_logs_are_told_with_the_election_of_one_that_has_all() -> None:
    context = Context()
    context.elect()
    assert context.told[-1].logs == ()


def test_the_first_state_of_one_replica_is_told_once_it_has_others() -> None:
    context = Context()
    alone = PartitionImage(0, 0, (0,), (0,))
    more = PartitionImage(0, 1, (0,), (0, 1), partition_epoch=1, adding=(1,))
    path, topic = layout.state_path("u", 0), TopicImage("u", UUID(int=2), (alone,))
    context.write(
        context.other,
        Write(layout.topic_path("u"), layout.encode_topic(topic), 0),
        Write(path, layout.encode_state(alone), 0),
    )
    assert {one.topic_partition.topic for one in context.told} == {"t"}
    made_s = context.scheduler.now_s
    context.write(context.other, Write(path, layout.encode_state(more), 1))
    told = [one for one in context.told if one.topic_partition.topic == "u"]
    assert [one.replicas for one in told] == [(0,), (0, 1)]
    assert told[0].at_s < made_s < told[1].at_s
    assert told[1].adding == (1,)


def test_a_replica_that_was_removed_is_counted() -> None:
    context = Context()
    label, topic_id = context.told[-1].topic_partition, context.told[-1].topic_id
    fewer = PartitionImage(0, 1, (0, 1), (0, 1), partition_epoch=1, removed=(2,))
    context.write(context.other, Write(STATE, layout.encode_state(fewer), 1))
    assert context.store.replica_of(label, topic_id, 2) == (1, False)
    assert context.store.replica_of(label, topic_id, 1) == (0, True)

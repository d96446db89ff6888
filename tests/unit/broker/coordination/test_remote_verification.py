"""Asking the coordinators of other brokers, which answer when told to; under virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, NamedTuple

import pytest

from oncelog.broker.coordination.remote_verification import ClusterCoordinators
from oncelog.broker.peers.connections import PeerUnreachable
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.cluster_limits import (
    VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX,
    VERIFICATION_WAIT_MS_MAX,
    VERIFICATIONS_TOGETHER_COUNT_MAX,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import (
    TRANSACTION_STATE_TOPIC,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import add_partitions_to_txn as schema
from oncelog.runtime.clock import SteadyClock
from oncelog.runtime.framed import DisconnectedError
from oncelog.transaction.events import AddPartitions, AddPartitionsReply
from tests.fuzz.virtual import VirtualClock, VirtualLoop
from tests.support.logged import said_by
from tests.unit.broker.support import ME, TOPIC_ID

SECOND, THIRD = 2, 3
PRODUCER, EPOCH = ProducerId(5), ProducerEpoch(1)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
E = ErrorCode

Transaction = schema.AddPartitionsToTxnTransaction


class Asked(NamedTuple):
    """A request that a broker was sent, and its answer."""

    broker_id: int
    transactions: tuple[Transaction, ...]
    answer: asyncio.Future[schema.AddPartitionsToTxnResponse]

    @property
    def ids(self) -> list[str]:
        return [each.transactional_id for each in self.transactions]

    def reply(
        self, error: ErrorCode = E.none, epoch: int = 7, only: TopicPartition | None = None
    ) -> None:
        """Answer for every transaction."""
        results = tuple(
            schema.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=tuple(
                    schema.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            schema.AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=error
                                if only in (None, TopicPartition(topic.name, index))
                                else E.none,
                            )
                            for index in topic.partitions
                        ),
                    )
                    for topic in each.topics
                ),
                coordinator_epoch=epoch,
            )
            for each in self.transactions
        )
        self.answer.set_result(schema.AddPartitionsToTxnResponse(results_by_transaction=results))


class Peers:
    """The other brokers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def ask(self, broker_id: int, api: ApiKey, version: int, request: Any) -> Any:
        assert api is ApiKey.ADD_PARTITIONS_TO_TXN
        assert version >= 4
        answer = asyncio.get_running_loop().create_future()
        self.asked.append(Asked(broker_id, request.transactions, answer))
        return await answer


class Here:
    """The coordinators of this broker: each id is of the partition that it ends with."""

    def __init__(self, clock: SteadyClock) -> None:
        self.clock = clock
        self.looked: AddPartitionsReply | None = AddPartitionsReply(E.none, ((T0, E.none),), 3)
        self.asked: list[AddPartitions] = []

    def partition_of(self, id_: str) -> int:
        return int(id_[-1])

    def look(self, _: str, event: AddPartitions) -> AddPartitionsReply | None:
        assert event.verify_only
        return self.looked

    def ask(self, _: str, event: AddPartitions, convert: Any, refuse: Any) -> Any:
        self.asked.append(event)
        return convert(AddPartitionsReply(E.none, ((T0, E.none),), 3))


class Bench:
    """This broker leads partition 1 of the transactions' log, others 2 and 3; 0 has no leader."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.bugs: list[BaseException] = []
        self.peers = Peers()
        self.here = Here(SteadyClock(VirtualClock(loop)))
        self.leaders = [-1, ME, SECOND, THIRD]
        here: Any = self.here
        self.coordinators = ClusterCoordinators(
            ME, here, self.image, self.peers, lambda a, b: (a + b) / 2, self.bugs.append
        )

    def image(self) -> MetadataImage:
        each = tuple(PartitionImage(leader, 0, (ME,), (ME,)) for leader in self.leaders)
        topic = TopicImage(TRANSACTION_STATE_TOPIC, TOPIC_ID, each)
        return MetadataImage(cluster_id="c", topics=[topic])

    def ask(
        self, id_: str, *partitions: TopicPartition, verify_only: bool = False
    ) -> AddPartitionsReply | ErrorCode | Pending[AddPartitionsReply | ErrorCode]:
        event = AddPartitions(
            id_, PRODUCER, EPOCH, partitions or (T0,), verify_only, transaction_version=2
        )
        return self.coordinators.add_partitions(event, lambda reply: reply, lambda error: error)

    def wait(
        self, id_: str, *partitions: TopicPartition
    ) -> Pending[AddPartitionsReply | ErrorCode]:
        pending = self.ask(id_, *partitions)
        assert isinstance(pending, Pending)
        assert not pending.done, "the verification begins after the question was asked"
        return pending

    def move(self, index: int, leader: int) -> None:
        """Another broker leads a partition of the log."""
        self.leaders[index] = leader
        self.coordinators.apply()

    async def turn(self, ms: float = 0) -> None:
        """Let so much time pass, and what is due happen."""
        await asyncio.sleep(ms / 1000)
        for _ in range(5):
            await asyncio.sleep(0)


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def on_virtual_time(test: Test) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        loop = VirtualLoop()

        async def main() -> None:
            bench = Bench(loop)
            await test(bench)
            await bench.coordinators.close()
            assert bench.bugs == []

        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    del run.__wrapped__  # Else pytest looks for a fixture.
    return run


def done(*partitions: TopicPartition, epoch: int = 7) -> AddPartitionsReply:
    return AddPartitionsReply(E.none, tuple((each, E.none) for each in partitions), epoch)


@on_virtual_time
async def test_what_is_asked_in_one_turn_of_the_loop_goes_in_one_request(bench: Bench) -> None:
    """By coordinator: each broker is told of its own ids only."""
    waiting = [bench.wait("a2", T0, T1, U0), bench.wait("b2"), bench.wait("c3")]
    await bench.turn()
    assert [(each.broker_id, each.ids) for each in bench.peers.asked] == [
        (SECOND, ["a2", "b2"]),
        (THIRD, ["c3"]),
    ]
    wanted = bench.peers.asked[0].transactions[0]
    assert (wanted.producer_id, wanted.producer_epoch, wanted.verify_only) == (5, 1, False)
    assert [(topic.name, topic.partitions) for topic in wanted.topics] == [
        ("t", (0, 1)),
        ("u", (0,)),
    ]
    for asked in bench.peers.asked:
        asked.reply()
    await bench.turn()
    answers = [each.response() for each in waiting]
    assert answers == [done(T0, T1, U0), done(T0), done(T0)]


@on_virtual_time
async def test_each_partition_has_its_own_answer(bench: Bench) -> None:
    waiting = bench.wait("a2", T0, T1)
    await bench.turn()
    bench.peers.asked[0].reply(E.transaction_abortable, only=T1)
    await bench.turn()
    assert waiting.response() == AddPartitionsReply(
        E.none, ((T0, E.none), (T1, E.transaction_abortable)), 7
    )


@on_virtual_time
async def test_the_coordinator_of_this_broker_is_asked_at_once(bench: Bench) -> None:
    bench.here.looked = None
    assert bench.ask("a1") == done(T0, epoch=3)
    assert len(bench.here.asked) == 1


@on_virtual_time
async def test_only_that_a_partition_is_there_is_said_unconfirmed(bench: Bench) -> None:
    """The coordinator epoch shows whether it still counts; a refusal has nothing like it."""
    assert bench.ask("a1", verify_only=True) == done(T0, epoch=3)
    assert bench.ask("a1") == done(T0, epoch=3)
    assert bench.here.asked == []
    some = AddPartitionsReply(E.none, ((T0, E.none), (T1, E.transaction_abortable)), 3)
    none = AddPartitionsReply(E.producer_fenced, ((T0, E.producer_fenced),), 3)
    for count, bench.here.looked in enumerate((some, none), start=1):
        assert bench.ask("a1", verify_only=True) == done(T0, epoch=3)
        assert len(bench.here.asked) == count


@on_virtual_time
async def test_a_coordinator_that_nobody_is_cannot_be_asked(bench: Bench) -> None:
    assert bench.ask("a0") is E.coordinator_not_available


@pytest.mark.parametrize("error", [PeerUnreachable("no"), DisconnectedError("no")])
def test_a_lost_connection_is_told_to_all_that_it_was_asked_for(error: Exception) -> None:
    @on_virtual_time
    async def story(bench: Bench) -> None:
        waiting = [bench.wait("a2"), bench.wait("b2")]
        await bench.turn()
        bench.peers.asked[0].answer.set_exception(error)
        await bench.turn()
        assert [each.response() for each in waiting] == [E.network_exception] * 2

    story()


@on_virtual_time
async def test_a_coordinator_that_moves_is_waited_for_no_more(bench: Bench) -> None:
    """Its broker may be paused, and answer never; what it answers late says nothing."""
    waiting, other = bench.wait("a2"), bench.wait("b2")
    await bench.turn()
    bench.leaders.append(SECOND)
    moved = bench.wait("a4")
    bench.move(2, THIRD)
    assert [each.response() for each in (waiting, other)] == [E.not_coordinator] * 2
    assert not moved.done
    bench.peers.asked[0].reply()
    await bench.turn()
    bench.peers.asked[1].reply()
    await bench.turn()
    assert moved.response() == done(T0)


@on_virtual_time
async def test_coordinators_that_move_off_several_brokers_at_once_are_waited_for_no_more(
    bench: Bench,
) -> None:
    waiting = [bench.wait("a2"), bench.wait("b3")]
    await bench.turn()
    bench.leaders = [-1, ME, ME, ME]
    bench.coordinators.apply()
    assert [each.response() for each in waiting] == [E.not_coordinator] * 2


@on_virtual_time
async def test_an_add_waits_for_the_transaction_before_to_end(bench: Bench) -> None:
    """D7: it is asked again, and only the first time may the coordinator keep it waiting."""
    waiting, other = bench.wait("a2"), bench.wait("b2")
    await bench.turn()
    bench.peers.asked[0].reply()
    again = bench.wait("c2")
    await bench.turn()
    assert (waiting.done, other.done) == (True, True)
    for _ in range(3):
        assert not again.done
        bench.peers.asked[-1].reply(E.concurrent_transactions)
        await bench.turn(300)
    bench.peers.asked[-1].reply()
    await bench.turn()
    assert again.response() == done(T0)
    waits = [each.transactions[0].wait_ms for each in bench.peers.asked[1:]]
    assert waits == [VERIFICATION_WAIT_MS_MAX, 0, 0, 0]


@on_virtual_time
async def test_an_add_that_has_waited_for_long_is_refused(bench: Bench) -> None:
    waiting = bench.wait("a2")
    await bench.turn()
    while not waiting.done:
        bench.peers.asked[-1].reply(E.concurrent_transactions)
        await bench.turn(300)
    reply = waiting.response()
    assert isinstance(reply, AddPartitionsReply)
    assert reply.partitions == ((T0, E.concurrent_transactions),)
    waited_ms = asyncio.get_running_loop().time() * 1000
    assert waited_ms == pytest.approx(PARKED_REQUEST_WAIT_MS_MAX, abs=600)
    assert len(bench.peers.asked) < 40


@on_virtual_time
async def test_an_add_that_is_asked_again_goes_to_the_next_coordinator(bench: Bench) -> None:
    waiting = bench.wait("a2")
    await bench.turn()
    bench.leaders[2] = THIRD  # The image is one step ahead of what `apply` was told of.
    bench.peers.asked[0].reply(E.concurrent_transactions)
    await bench.turn(300)
    assert bench.peers.asked[1].broker_id == THIRD
    bench.peers.asked[1].reply(epoch=8)
    await bench.turn()
    assert waiting.response() == done(T0, epoch=8)


@on_virtual_time
async def test_a_verification_without_an_add_is_not_asked_again(bench: Bench) -> None:
    """The producer of an older version sends its batch again."""
    pending = bench.ask("a2", verify_only=True)
    assert isinstance(pending, Pending)
    await bench.turn()
    bench.peers.asked[0].reply(E.concurrent_transactions)
    await bench.turn()
    reply = pending.response()
    assert isinstance(reply, AddPartitionsReply)
    assert reply.partitions == ((T0, E.concurrent_transactions),)


@pytest.mark.parametrize("error", [E.unknown_topic_or_partition, E.operation_not_attempted])
def test_a_coordinator_that_lags_behind_the_metadata_is_asked_later(error: ErrorCode) -> None:
    """This broker leads the partition: the producer is not told that there is none."""

    @on_virtual_time
    async def story(bench: Bench) -> None:
        waiting = bench.wait("a2", T0, T1)
        await bench.turn()
        bench.peers.asked[0].reply(error)
        await bench.turn()
        assert waiting.response() is E.coordinator_not_available

    story()


@on_virtual_time
async def test_a_question_that_nobody_waits_for_is_not_asked(bench: Bench) -> None:
    bench.wait("a2").drop()
    kept = bench.wait("b2")
    await bench.turn()
    kept.drop()
    assert [each.ids for each in bench.peers.asked] == [["b2"]]
    bench.peers.asked[0].reply(E.concurrent_transactions)
    await bench.turn(1000)
    assert len(bench.peers.asked) == 1


@on_virtual_time
async def test_nothing_is_kept_in_memory_of_questions_that_were_answered(bench: Bench) -> None:
    for _ in range(2):
        bench.wait("a2")
        await bench.turn()
        bench.peers.asked[-1].reply()
        await bench.turn()
    assert [len(line.open) for line in bench.coordinators._lines.values()] == [0]


@on_virtual_time
async def test_a_request_names_an_id_once(bench: Bench) -> None:
    """Kafka answers by id; the other question goes with the next request."""
    waiting = [bench.wait("a2", T0), bench.wait("a2", T1)]
    await bench.turn()
    assert [each.ids for each in bench.peers.asked] == [["a2"], ["a2"]]
    for asked in bench.peers.asked:
        asked.reply()
    await bench.turn()
    assert [each.response() for each in waiting] == [done(T0), done(T1)]


@on_virtual_time
async def test_requests_in_flight_and_their_size_are_bounded(bench: Bench) -> None:
    """What comes meanwhile goes with the next one."""
    for number in range(VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX + 2):
        bench.wait(f"{number}-2")
        await bench.turn()
    assert len(bench.peers.asked) == VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX
    bench.peers.asked[0].reply()
    await bench.turn()
    assert bench.peers.asked[-1].ids == ["5-2", "6-2"]
    for number in range(VERIFICATIONS_TOGETHER_COUNT_MAX + 1):
        bench.wait(f"{number}-3")
    await bench.turn()
    assert [len(each.ids) for each in bench.peers.asked[-2:]] == [
        VERIFICATIONS_TOGETHER_COUNT_MAX,
        1,
    ]


@pytest.mark.parametrize("lacks", ["partition", "id", "all"])
def test_an_answer_that_lacks_something_counts_as_none(
    lacks: str, caplog: pytest.LogCaptureFixture
) -> None:
    @on_virtual_time
    async def story(bench: Bench) -> None:
        waiting = bench.wait("a2")
        await bench.turn()
        whole = schema.AddPartitionsToTxnResponse(error_code=E.cluster_authorization_failed)
        if lacks == "id":
            whole = schema.AddPartitionsToTxnResponse()
        if lacks == "partition":
            result = schema.AddPartitionsToTxnResult(transactional_id="a2")
            whole = schema.AddPartitionsToTxnResponse(results_by_transaction=(result,))
        bench.peers.asked[0].answer.set_result(whole)
        await bench.turn()
        assert waiting.response() is E.network_exception

    with caplog.at_level(logging.WARNING):
        story()
    assert len(said_by(caplog)) == 1


@on_virtual_time
async def test_the_end_of_the_broker_ends_all_questions(bench: Bench) -> None:
    asked, parked = [bench.wait("a2"), bench.wait("c2")], bench.wait("b3")
    await bench.turn()
    bench.peers.asked[1].reply(E.concurrent_transactions)
    await bench.turn()
    await bench.coordinators.close()
    assert [each.response() for each in (*asked, parked)] == [E.coordinator_not_available] * 3
    assert bench.ask("a2") is E.coordinator_not_available

"""Markers for leaders on other brokers: what one request asks, and what its answer means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.coordination.markers import Settled
from oncelog.broker.coordination.remote_markers import ClusterLeaders, MarkerParts
from oncelog.broker.peers.connections import PeerUnreachable
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.core.cluster_limits import (
    MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX,
    MARKERS_PER_REQUEST_COUNT_MAX,
)
from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.runtime.framed import DisconnectedError
from oncelog.transaction.events import SendMarkers

ME, OTHER, THIRD = 1, 2, 3
BROKER_EPOCH = 17
COORDINATOR_EPOCH = 4
PRODUCER = ProducerId(5)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
NONE = ErrorCode.none
TIMED_OUT = ErrorCode.request_timed_out
FENCED = ErrorCode.transaction_coordinator_fenced


class Asked:
    """One request, until it is answered."""

    def __init__(self, broker_id: int, request: WriteTxnMarkersRequest) -> None:
        self.broker_id = broker_id
        self.request = request
        self.future: asyncio.Future[WriteTxnMarkersResponse] = asyncio.Future()

    @property
    def markers(self) -> list[tuple[int, TopicPartition]]:
        """What it asks for: producer ids and partitions."""
        return [
            (marker.producer_id, TopicPartition(topic.name, index))
            for marker in self.request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]

    async def answer(
        self,
        errors: dict[TopicPartition, ErrorCode] | None = None,
        *,
        without: tuple[TopicPartition, ...] = (),
        has_ended: bool = False,
    ) -> None:
        """Answer with these errors, and NONE for the others."""
        results = tuple(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=(
                    WritableTxnMarkerTopicResult(
                        name=each.topic,
                        partitions=(
                            WritableTxnMarkerPartitionResult(
                                partition_index=each.partition,
                                error_code=(errors or {}).get(each, NONE),
                                has_ended=has_ended,
                            ),
                        ),
                    ),
                ),
            )
            for producer_id, each in self.markers
            if each not in without
        )
        self.future.set_result(WriteTxnMarkersResponse(markers=results))
        await turns()

    async def fail(self, error: OncelogError) -> None:
        self.future.set_exception(error)
        await turns()


class Peers:
    """One connection to each broker; a test answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.is_closed = False

    async def ask(
        self, broker_id: int, api: ApiKey, version: int, request: WriteTxnMarkersRequest, /
    ) -> WriteTxnMarkersResponse:
        assert (api, version) == (ApiKey.WRITE_TXN_MARKERS, 2)
        self.asked.append(Asked(broker_id, request))
        return await self.asked[-1].future

    async def close(self) -> None:
        self.is_closed = True


class Local:
    """The leaders on this broker; a test settles."""

    def __init__(self) -> None:
        self.written: dict[TopicPartition, Settled] = {}

    def write(self, label: TopicPartition, markers: SendMarkers, settled: Settled) -> None:
        self.written[label] = settled


class Bench:
    """The leaders of a cluster of three, and what they have settled."""

    def __init__(self) -> None:
        self.prompt, self.slow, self.local = Peers(), Peers(), Local()
        self.settled: list[tuple[TopicPartition, ErrorCode]] = []
        self.ended: list[tuple[TopicPartition, ErrorCode]] = []
        self.bugs: list[BaseException] = []
        self.stored = image()
        self.store_failure: StoreFailure | None = None
        parts = MarkerParts(
            ME, lambda: BROKER_EPOCH, self.prompt, self.slow, self.read, self.bugs.append
        )
        self.leaders = ClusterLeaders(self.local, parts)
        self.leaders.apply(image())

    async def read(self) -> MetadataImage:
        await asyncio.sleep(0)
        if self.store_failure is not None:
            raise self.store_failure
        return self.stored

    def take(self, label: TopicPartition, error: ErrorCode, /, has_ended: bool = False) -> None:
        (self.ended if has_ended else self.settled).append((label, error))

    def write(self, *labels: TopicPartition, **fields: Any) -> None:
        for label in labels:
            self.leaders.write(label, markers(label, **fields), self.take)

    async def send(self, *labels: TopicPartition, **fields: Any) -> None:
        self.write(*labels, **fields)
        await turns()


def markers(label: TopicPartition, *, producer_id: int = PRODUCER, epoch: int = 0) -> SendMarkers:
    return SendMarkers(
        "txn",
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        COORDINATOR_EPOCH,
        True,
        (label,),
        2,
    )


def image(
    leaders: tuple[int, ...] = (OTHER, OTHER, THIRD),
    *,
    epoch: int = 7,
    coordinator: int | None = COORDINATOR_EPOCH,
    brokers: tuple[int, ...] = (ME, OTHER, THIRD),
) -> MetadataImage:
    """Partitions of `t` by their leaders, and the leader epoch of the coordinator's partition."""
    ids = (ME, OTHER, THIRD)
    led = tuple(PartitionImage(leader, epoch, ids, ids) for leader in leaders)
    topics = [TopicImage("t", UUID(int=1), led)]
    if coordinator is not None:
        state = (PartitionImage(ME, coordinator, ids, ids),)
        topics.append(TopicImage(TRANSACTION_STATE_TOPIC, UUID(int=2), state))
    live = [BrokerImage(broker_id, "h", broker_id) for broker_id in brokers]
    return MetadataImage(cluster_id="c", topics=topics, brokers=live)


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def made() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.leaders.close()
    assert bench.prompt.is_closed
    assert bench.slow.is_closed
    assert bench.bugs == []


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with made() as each:
        yield each


def marker(producer_id: int, epoch: int, indexes: tuple[int, ...]) -> WritableTxnMarker:
    topic = WritableTxnMarkerTopic(
        name="t", partition_indexes=indexes, leader_epochs=(7,) * len(indexes)
    )
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=(topic,),
        coordinator_epoch=COORDINATOR_EPOCH,
        transaction_version=2,
    )


async def test_one_request_carries_all_that_is_due_for_a_broker(bench: Bench) -> None:
    bench.write(T0, T2, T1)
    bench.write(T0, producer_id=6, epoch=3)
    await turns()
    first, second = bench.prompt.asked
    assert (first.broker_id, second.broker_id) == (OTHER, THIRD)
    assert first.request == WriteTxnMarkersRequest(
        markers=(marker(PRODUCER, 0, (0, 1)), marker(6, 3, (0,))),
        sender_id=ME,
        sender_epoch=BROKER_EPOCH,
        sender_connection=0,
    )
    await first.answer()
    assert sorted(bench.settled) == [(T0, NONE), (T0, NONE), (T1, NONE)]
    await second.answer()
    assert bench.settled[-1] == (T2, NONE)


async def test_a_partition_of_this_broker_is_written_here(bench: Bench) -> None:
    bench.leaders.apply(image((ME, OTHER, THIRD)))
    await bench.send(T0)
    assert bench.prompt.asked == []
    bench.local.written[T0](T0, NONE)
    assert bench.settled == [(T0, NONE)]


async def test_requests_under_way_to_a_broker_are_bounded(bench: Bench) -> None:
    for producer_id in range(MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX + 2):
        await bench.send(T0, producer_id=producer_id)
    asked = bench.prompt.asked
    assert len(asked) == MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX
    await asked[0].answer()
    assert len(asked) == MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX + 1
    assert [producer_id for producer_id, _ in asked[-1].markers] == [5, 6]


async def test_a_request_has_a_bounded_count_of_markers(bench: Bench) -> None:
    for producer_id in range(MARKERS_PER_REQUEST_COUNT_MAX + 1):
        bench.write(T0, producer_id=producer_id)
    await turns()
    assert [len(each.markers) for each in bench.prompt.asked] == [MARKERS_PER_REQUEST_COUNT_MAX, 1]


async def test_another_broker_that_does_not_answer_holds_up_nobody(bench: Bench) -> None:
    await bench.send(T0, T2)
    await bench.prompt.asked[1].answer()
    assert bench.settled == [(T2, NONE)]


@pytest.mark.parametrize(
    "seen",
    [
        image((-1, OTHER, THIRD)),
        image((OTHER, OTHER, THIRD), brokers=(ME, THIRD)),
        MetadataImage(cluster_id="c"),
    ],
    ids=["no leader", "not registered", "not shown"],
)
async def test_a_leader_that_is_not_there_is_not_asked(bench: Bench, seen: MetadataImage) -> None:
    bench.leaders.apply(seen)
    await bench.send(T0)
    assert bench.settled == [(T0, ErrorCode.not_leader_or_follower)]
    assert bench.prompt.asked == []


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (PeerUnreachable("away"), ErrorCode.network_exception),
        (DisconnectedError("lost"), ErrorCode.network_exception),
        (ProtocolError(ErrorCode.corrupt_message, "?"), ErrorCode.unknown_server_error),
    ],
)
async def test_a_request_that_fails_settles_each_of_its_markers(
    bench: Bench, failure: OncelogError, error: ErrorCode
) -> None:
    await bench.send(T0, T1)
    await bench.prompt.asked[0].fail(failure)
    assert bench.settled == [(T0, error), (T1, error)]


async def test_a_marker_that_an_answer_leaves_out_is_not_taken_for_written(bench: Bench) -> None:
    await bench.send(T0, T1)
    await bench.prompt.asked[0].answer(without=(T1,))
    assert bench.settled == [(T0, NONE), (T1, ErrorCode.unknown_server_error)]


async def test_inv4_what_a_lost_connection_brings_late_is_known_by_its_number(
    bench: Bench,
) -> None:
    """The marker is sent again over the next one, and the transaction ends by its answer."""
    await bench.send(T0)
    await bench.prompt.asked[0].fail(DisconnectedError("lost"))
    await bench.send(T0)
    assert bench.prompt.asked[1].request.sender_connection == 1
    await bench.prompt.asked[1].fail(PeerUnreachable("it was not sent"))
    await bench.send(T0)
    assert bench.prompt.asked[2].request.sender_connection == 1


@pytest.mark.parametrize("now", [image((THIRD, OTHER, THIRD)), image(epoch=8)])
async def test_a_paused_leader_is_not_waited_for_once_there_is_another(
    bench: Bench, now: MetadataImage
) -> None:
    await bench.send(T0)
    bench.leaders.apply(now)
    assert bench.settled == [(T0, ErrorCode.not_leader_or_follower)]
    await bench.prompt.asked[0].answer()
    assert len(bench.settled) == 1


async def test_all_that_several_paused_leaders_owe_is_settled_by_one_image(bench: Bench) -> None:
    """Also what has a connection of its own, as its commits last."""
    await bench.send(T0)
    await bench.prompt.asked[0].answer({T0: TIMED_OUT})
    bench.settled.clear()
    await bench.send(T0, T1, T2)
    await bench.send(T1, producer_id=6)
    assert len(bench.slow.asked) == 1
    bench.leaders.apply(image((ME, ME, ME)))
    moved = ErrorCode.not_leader_or_follower
    assert sorted(bench.settled) == [(T0, moved), (T1, moved), (T1, moved), (T2, moved)]


async def test_a_marker_that_is_not_sent_yet_goes_to_the_new_leader_only(bench: Bench) -> None:
    bench.write(T0)
    bench.leaders.apply(image((THIRD, OTHER, THIRD)))
    assert bench.settled == [(T0, ErrorCode.not_leader_or_follower)]
    await bench.send(T0)
    assert [each.broker_id for each in bench.prompt.asked] == [THIRD]


async def test_a_change_of_the_metadata_elsewhere_settles_nothing(bench: Bench) -> None:
    await bench.send(T0)
    bench.leaders.apply(image((OTHER, THIRD, ME)))
    assert bench.settled == []
    await bench.prompt.asked[0].answer()
    assert bench.settled == [(T0, NONE)]


async def test_a_partition_whose_commits_last_holds_up_no_other(bench: Bench) -> None:
    await bench.send(T0, T1)
    await bench.prompt.asked[0].answer({T0: TIMED_OUT})
    assert bench.settled == [(T0, TIMED_OUT), (T1, NONE)]
    await bench.send(T0, T1)
    assert [label for _, label in bench.prompt.asked[1].markers] == [T1]
    (waiting,) = bench.slow.asked
    assert [label for _, label in waiting.markers] == [T0]
    await bench.send(T0, producer_id=6)
    assert len(bench.slow.asked) == 1
    await waiting.answer({T0: TIMED_OUT})
    await bench.slow.asked[1].answer()
    await bench.send(T0, producer_id=7)
    assert [label for _, label in bench.prompt.asked[2].markers] == [T0]


async def test_a_marker_of_a_leadership_that_is_over_gives_way(bench: Bench) -> None:
    """The coordinator's next leadership here sends the same marker before the first has left."""
    bench.write(T0)
    bench.write(T0, epoch=1)
    assert bench.settled == [(T0, ErrorCode.not_coordinator)]
    await turns()
    (asked,) = bench.prompt.asked
    assert [marker.producer_epoch for marker in asked.request.markers] == [1]


Refuse = Callable[[Bench, bool], Any]


async def refused_remotely(bench: Bench, has_ended: bool) -> None:
    await bench.send(T0)
    await bench.prompt.asked[0].answer({T0: FENCED}, has_ended=has_ended)


async def refused_here(bench: Bench, has_ended: bool) -> None:
    bench.leaders.apply(image((ME, OTHER, THIRD)))
    await bench.send(T0)
    bench.local.written[T0](T0, FENCED, has_ended)
    await turns()


@pytest.fixture(params=[refused_remotely, refused_here])
def refuse(request: pytest.FixtureRequest) -> Refuse:
    asks: Refuse = request.param
    return asks


async def test_a_refusal_counts_while_nobody_else_coordinates(bench: Bench, refuse: Refuse) -> None:
    await refuse(bench, True)
    assert (bench.settled, bench.ended) == ([], [(T0, FENCED)])


async def test_a_refusal_where_a_transaction_is_open_is_told_so(
    bench: Bench, refuse: Refuse
) -> None:
    await refuse(bench, False)
    assert (bench.settled, bench.ended) == ([(T0, FENCED)], [])


@pytest.mark.parametrize("coordinator", [COORDINATOR_EPOCH + 1, None])
async def test_inv4_a_coordinator_that_was_replaced_completes_nothing(
    bench: Bench, refuse: Refuse, coordinator: int | None
) -> None:
    bench.stored = image(coordinator=coordinator)
    await refuse(bench, True)
    assert (bench.settled, bench.ended) == ([(T0, ErrorCode.not_coordinator)], [])


async def test_inv4_a_refusal_without_the_store_ends_nothing(bench: Bench, refuse: Refuse) -> None:
    bench.store_failure = StoreFailure("away")
    await refuse(bench, True)
    assert (bench.settled, bench.ended) == ([(T0, ErrorCode.coordinator_not_available)], [])


async def test_a_close_leaves_what_waits_unsettled() -> None:
    async with made() as bench:
        await bench.send(T0)
    assert bench.settled == []


async def test_a_retry_that_is_due_after_a_close_opens_no_connection() -> None:
    async with made() as bench:
        pass
    await bench.send(T0, T2)
    assert (bench.prompt.asked, bench.settled) == ([], [])


async def test_a_bug_stops_the_broker() -> None:
    bench = Bench()
    await bench.send(T0)
    bench.prompt.asked[0].future.set_exception(ZeroDivisionError())
    await turns()
    assert [type(bug) for bug in bench.bugs] == [ZeroDivisionError]
    await bench.leaders.close()

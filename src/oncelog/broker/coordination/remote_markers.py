"""Has the leaders on other brokers write markers: WriteTxnMarkers between brokers.

One request carries all that is due for a broker when it is sent; what comes meanwhile goes with the
next. A leader answers once the markers are committed, in the order of the requests, and after a
while it answers for those that are not (REQUEST_TIMED_OUT). Such a partition has a connection of
its own from then on, so that it holds up no other.

Nothing is sent again here. The shard decides about that by the outcomes, and the leader is looked
up again each time. What was sent to a broker that leads no longer is settled when the metadata says
so, not when the broker answers: it may be paused.

A leader that refuses a marker as too old may be right: this coordinator was replaced, and does not
know it yet. So a refusal counts only once the store has been read after it, and names no later
leader of the coordinator's partition. A coordinator that was replaced completes nothing (INV-4).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from oncelog.broker.coordination.markers import PartitionLeaders, Settled
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.broker.peers.connections import PeerNetwork, Peers, PeerUnreachable
from oncelog.controller.image import MetadataImage
from oncelog.core.cluster_limits import (
    MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX,
    MARKERS_ANSWER_MS_MAX,
    MARKERS_PER_REQUEST_COUNT_MAX,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.api import ApiKey
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.runtime.clock import Clock
from oncelog.runtime.framed import DisconnectedError
from oncelog.transaction.events import MARKER_REFUSALS, SendMarkers

__all__ = ["ClusterLeaders", "MarkerParts", "MarkerPeers", "make_cluster_leaders"]

VERSION = 2
"""Of WriteTxnMarkers: the first that carries the transaction's version."""


class MarkerPeers(Protocol):
    """One connection to each other broker: what `Peers` has of it."""

    async def ask(
        self, broker_id: int, api: ApiKey, version: int, request: WriteTxnMarkersRequest, /
    ) -> WriteTxnMarkersResponse:
        """See `Peers.ask`."""
        ...

    async def close(self) -> None:
        """See `Peers.close`."""
        ...


class MarkerParts(NamedTuple):
    """What markers for other brokers need of this one."""

    broker_id: int
    broker_epoch: Callable[[], int]
    peers: MarkerPeers
    slow_peers: MarkerPeers
    """Connections of their own, for partitions whose markers take long to be committed."""
    read_store: Callable[[], Awaitable[MetadataImage]]
    """Returns the metadata as the store has it now. Raises `StoreFailure`."""
    stop_because: Callable[[BaseException], None]


def make_cluster_leaders(
    local: PartitionLeaders,
    *,
    membership: ClusterMembership,
    feed: MetadataFeed,
    network: PeerNetwork,
    clock: Clock,
    rng: random.Random,
    stop_because: Callable[[BaseException], None],
) -> ClusterLeaders:
    """Make those of a broker. Leaders are sought in the metadata that it knows, applied or not."""

    async def read_store() -> MetadataImage:
        await feed.read()
        return feed.known.stored

    def peers() -> Peers:
        client_id = f"broker-{membership.broker_id}-markers"
        return Peers(
            network,
            client_id,
            lambda: feed.known.image,
            MARKERS_ANSWER_MS_MAX,
            clock,
            rng,
        )

    return ClusterLeaders(
        local,
        MarkerParts(
            membership.broker_id,
            lambda: membership.broker_epoch,
            peers(),
            peers(),
            read_store,
            stop_because,
        ),
    )


class ClusterLeaders:
    """The leaders of partitions on all brokers; `local` has those of this one."""

    def __init__(self, local: PartitionLeaders, parts: MarkerParts) -> None:
        self._local = local
        self._parts = parts
        self._image = MetadataImage(cluster_id="")
        self._routes: dict[int, _Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def apply(self, image: MetadataImage) -> None:
        """Follow the metadata image, and settle what waits for a broker that does not lead it."""
        self._image = image
        for route in self._routes.values():
            route.settle_moved(image)

    def write(
        self, topic_partition: TopicPartition, markers: SendMarkers, settled: Settled
    ) -> None:
        """See `PartitionLeaders`."""
        if self._is_closed:
            return  # A retry was planned when the broker stopped.
        partition = self._image.partition(*topic_partition)
        leader = -1 if partition is None else partition.leader
        outcome = partial(self._outcome, markers, settled)
        if leader == self._parts.broker_id:
            self._local.write(topic_partition, markers, outcome)
        elif partition is None or leader not in self._image.brokers:
            settled(topic_partition, ErrorCode.not_leader_or_follower)
        else:
            route = self._routes.get(leader)
            if route is None:
                route = self._routes[leader] = _Route(leader, self._parts, self._start)
            route.add(_Owed(topic_partition, partition.leader_epoch, markers, outcome))

    async def close(self) -> None:
        """Ask no broker any more: what waits for one stays unsettled."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._parts.peers.close()
        await self._parts.slow_peers.close()

    def _outcome(
        self,
        markers: SendMarkers,
        settled: Settled,
        topic_partition: TopicPartition,
        error: ErrorCode,
        /,
        has_ended: bool = False,
    ) -> None:
        if error in MARKER_REFUSALS:
            told = partial(settled, topic_partition)
            self._start(self._refused(markers, told, error, has_ended))
        else:
            settled(topic_partition, error, has_ended)

    async def _refused(
        self,
        markers: SendMarkers,
        told: Callable[[ErrorCode, bool], None],
        refusal: ErrorCode,
        has_ended: bool,
    ) -> None:
        """Settle a refusal, unless the refused coordinator was replaced."""
        try:
            image = await self._parts.read_store()
        except StoreFailure:
            told(ErrorCode.coordinator_not_available, False)
            return
        if self._coordinates(markers, image):
            told(refusal, has_ended)
        else:
            told(ErrorCode.not_coordinator, False)

    def _coordinates(self, markers: SendMarkers, image: MetadataImage) -> bool:
        topic = image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return False
        count = len(topic.partitions)
        partition = topic.partitions[coordinator_partition(markers.transactional_id, count)]
        # A stored leader epoch is that of the coordinator, or a later one.
        return partition.leader_epoch <= markers.coordinator_epoch

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            self._parts.stop_because(bug)


class _Owed:
    """The marker of one partition, until it is settled."""

    __slots__ = ("_settled", "is_settled", "leader_epoch", "markers", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        markers: SendMarkers,
        settled: Settled,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.markers = markers
        self.is_settled = False
        self._settled = settled

    @property
    def key(self) -> tuple[int, TopicPartition]:
        """What tells it from others in a request, and in its response."""
        return self.markers.producer_id, self.topic_partition

    def settle(self, error: ErrorCode, has_ended: bool = False) -> None:
        """Settle it, unless it is: an answer may come after the leader has changed."""
        if not self.is_settled:
            self.is_settled = True
            self._settled(self.topic_partition, error, has_ended)


class _Lane:
    """One connection, what is due there, and what is under way."""

    __slots__ = ("due", "in_flight", "in_flight_count_max", "peers")

    def __init__(self, peers: MarkerPeers, in_flight_count_max: int) -> None:
        self.peers = peers
        self.in_flight_count_max = in_flight_count_max
        self.due: dict[tuple[int, TopicPartition], _Owed] = {}
        self.in_flight: list[list[_Owed]] = []

    def take(self) -> list[_Owed]:
        """Return the next request's markers, which are due no more; none: nothing can be sent."""
        if len(self.in_flight) >= self.in_flight_count_max:
            return []
        keys = list(self.due)[:MARKERS_PER_REQUEST_COUNT_MAX]
        return [self.due.pop(key) for key in keys]


class _Route:
    """The way to one broker."""

    def __init__(
        self,
        broker_id: int,
        parts: MarkerParts,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._broker_id = broker_id
        self._parts = parts
        self._start = start
        self._prompt = _Lane(parts.peers, MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX)
        self._slow = _Lane(parts.slow_peers, 1)
        self._slow_partitions: set[TopicPartition] = set()
        self._connection = 0
        """How many connections to the broker have failed: what one of them brings late is old."""
        self._is_flush_due = False

    def add(self, owed: _Owed) -> None:
        """Send it with the others of this turn of the loop."""
        is_slow = owed.topic_partition in self._slow_partitions
        lane = self._slow if is_slow else self._prompt
        # One of a leadership of the coordinator that is over: its shard has resigned.
        former = lane.due.pop(owed.key, None)
        if former is not None:
            former.settle(ErrorCode.not_coordinator)
        lane.due[owed.key] = owed
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def settle_moved(self, image: MetadataImage) -> None:
        """Settle what the broker leads no longer, or in another epoch."""
        for lane in (self._prompt, self._slow):
            for owed in [*lane.due.values(), *(one for some in lane.in_flight for one in some)]:
                partition = image.partition(*owed.topic_partition)
                now = None if partition is None else (partition.leader, partition.leader_epoch)
                if now != (self._broker_id, owed.leader_epoch):
                    if lane.due.get(owed.key) is owed:
                        del lane.due[owed.key]
                    owed.settle(ErrorCode.not_leader_or_follower)

    def _flush(self) -> None:
        self._is_flush_due = False
        for lane in (self._prompt, self._slow):
            while some := lane.take():
                lane.in_flight.append(some)
                self._start(self._request(lane, some))

    async def _request(self, lane: _Lane, some: list[_Owed]) -> None:
        request = WriteTxnMarkersRequest(
            markers=_markers(some),
            sender_id=self._parts.broker_id,
            sender_epoch=self._parts.broker_epoch(),
            sender_connection=self._connection,
        )
        outcomes: dict[tuple[int, TopicPartition], tuple[ErrorCode, bool]] = {}
        missing = ErrorCode.unknown_server_error
        try:
            answer = await lane.peers.ask(
                self._broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, request
            )
            outcomes = _outcomes(answer)
        except PeerUnreachable:
            missing = ErrorCode.network_exception
        except DisconnectedError:
            missing = ErrorCode.network_exception
            self._connection += 1
        except ProtocolError:
            pass  # It cannot be read. The shard says that it sends again, and why.
        lane.in_flight.remove(some)
        for owed in some:
            error, has_ended = outcomes.get(owed.key, (missing, False))
            self._note_speed(owed.topic_partition, error)
            owed.settle(error, has_ended)
        self._flush()

    def _note_speed(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        if error is ErrorCode.request_timed_out:
            self._slow_partitions.add(topic_partition)
        elif error is ErrorCode.none:
            self._slow_partitions.discard(topic_partition)


def _markers(some: Iterable[_Owed]) -> tuple[WritableTxnMarker, ...]:
    """Return the request's markers: one for each transaction, with its partitions by topic."""
    together: dict[tuple[int, int, int, bool, int], dict[str, list[_Owed]]] = {}
    for owed in some:
        markers = owed.markers
        transaction = (
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.commit,
            markers.transaction_version,
        )
        topics = together.setdefault(transaction, {})
        topics.setdefault(owed.topic_partition.topic, []).append(owed)
    return tuple(
        WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=tuple(
                WritableTxnMarkerTopic(
                    name=name,
                    partition_indexes=tuple(owed.topic_partition.partition for owed in each),
                    leader_epochs=tuple(owed.leader_epoch for owed in each),
                )
                for name, each in topics.items()
            ),
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        for (producer_id, epoch, coordinator_epoch, commit, version), topics in together.items()
    )


def _outcomes(
    answer: WriteTxnMarkersResponse,
) -> dict[tuple[int, TopicPartition], tuple[ErrorCode, bool]]:
    """Return what an answer says, by producer id and partition."""
    return {
        (result.producer_id, TopicPartition(topic.name, one.partition_index)): (
            one.error_code,
            one.has_ended,
        )
        for result in answer.markers
        for topic in result.topics
        for one in topic.partitions
    }

"""Runs coordinator shards on logs, timers and requests (D2, D7).

A `CoordinatorRuntime` owns one shard for each partition of its internal topic that this broker
leads: it finds the shard of a request, follows the metadata, and loads a shard by replaying the
partition from its start to its end. Then a `CoordinatorContext` runs it.

It does not know the meaning of events, replies and effects: shards do, and `make_shard` and
`effect_handler` are parameters. Invariants: replies are sent after commitment only (INV-4, INV-6:
group offsets follow the marker as committed).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from oncelog.broker.coordination.context import CoordinatorContext
from oncelog.broker.coordination.loading import committed, load
from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.broker.partitions.damage import note_damage
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.events import LedCoordinator
from oncelog.controller.image import ImageDelta, MetadataImage, TopicImage
from oncelog.coordinator.event_processor import CoordinatorState
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import (
    CoordinatorShard,
    EffectT,
    EventT,
    ReplyT,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicId
from oncelog.core.limits import LOAD_TIMES_KEPT_COUNT
from oncelog.core.pending import Pending, unchanged
from oncelog.protocol.hashing import coordinator_partition
from oncelog.runtime.clock import SteadyClock
from oncelog.runtime.disk import StorageFailure

__all__ = ["CoordinatorRuntime", "Deletions"]

log = logging.getLogger(__name__)

Deletions: TypeAlias = Mapping[str, Collection[TopicId]]
"""The ids of deleted topics, by name."""
AnswerT = TypeVar("AnswerT")
"""The class of `ReplyT` that replies to the event."""
ResponseT = TypeVar("ResponseT")


class CoordinatorRuntime(Generic[EventT, ReplyT, EffectT]):
    """All shards of one coordinator on this broker.

    `topic` is its internal topic, created with `partition_count_default` partitions.
    `make_shard(partition)` returns the shard for one partition of it. `effect_handler(coordinator,
    effect)` executes the shard's effects. `topics_deleted` makes the event that all shards get of
    deletions that the metadata names, and a shard after its load, from the image and the ids by
    name. A request waits at most `append_wait_ms_max` for its append to be committed (None: without
    a limit). With `takes_turns` one shard in each turn of the event loop does what is due: what a
    tick does at most bounds how long other requests wait.
    """

    def __init__(
        self,
        topic: str,
        *,
        partition_count_default: int,
        partitions: PartitionManager,
        make_shard: Callable[[Partition], CoordinatorShard[EventT, ReplyT, EffectT]],
        effect_handler: Callable[[CoordinatorContext[EventT, ReplyT, EffectT], EffectT], None],
        producer_ids: ProducerIds,
        topics_deleted: Callable[[MetadataImage, Deletions], EventT] | None = None,
        append_wait_ms_max: int | None = None,
        takes_turns: bool = False,
    ) -> None:
        self.topic = topic
        self.wall_clock = partitions.clock
        self.clock = SteadyClock(partitions.clock)
        """The clock of the shards: no jump of the wall clock ends a wait early, or late."""
        self._partitions = partitions
        self._disk = partitions.disk
        self._topics_deleted = topics_deleted
        self._image = MetadataImage(cluster_id="")
        self.metadata = CoordinatorMetadata()
        self.loop = asyncio.get_running_loop()
        self.effect_handler = effect_handler
        self._partition_count_default = partition_count_default
        self._partition_count = partition_count_default
        self.make_shard = make_shard
        self.producer_ids = producer_ids
        self.append_wait_ms_max = append_wait_ms_max
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        """Applies the newest metadata; None where no other broker can know more of it."""
        self._early: set[asyncio.Task[None]] = set()
        """What waits for an id that is not coordinated here yet."""
        self.takes_turns = takes_turns
        self._coordinators: dict[int, CoordinatorContext[EventT, ReplyT, EffectT]] = {}
        self._turns: dict[CoordinatorContext[EventT, ReplyT, EffectT], None] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        # One load at a time: concurrent loads would take longer turns, and none would finish
        # sooner.
        self._load_turn = asyncio.Lock()
        self.load_times_ms: deque[float] = deque(maxlen=LOAD_TIMES_KEPT_COUNT)
        """The duration of the last loads of a partition."""
        self._failure: asyncio.Future[Exception] = self.loop.create_future()

    def partition_of(self, id_: str) -> int:
        """Return the partition of the internal topic for a transactional id or group id.

        Before the topic exists, by the partition count that it will be created with.
        """
        return coordinator_partition(id_, self._partition_count)

    def ask(
        self,
        id_: str,
        event: EventT,
        convert: Callable[[AnswerT], ResponseT | Pending[ResponseT]],
        refuse: Callable[[ErrorCode], ResponseT | Pending[ResponseT]],
        *,
        holds_back: bool = True,
    ) -> ResponseT | Pending[ResponseT]:
        """Submit a request to the shard of `id_`; return a promise of `convert(reply)`.

        A load holds it. Where this broker does not lead that shard it returns
        `refuse(NOT_COORDINATOR)`, in a cluster only once it has caught up with the metadata: the
        broker that named it may know more. Dropping the promise drops an undecided request (D7).
        """
        coordinator = self._coordinators.get(coordinator_partition(id_, self._partition_count))
        pending = Pending(convert, holds_back=holds_back, refuse=refuse)
        if coordinator is not None:
            return coordinator.ask(event, pending)
        if self.catch_up is None:
            return refuse(ErrorCode.not_coordinator)

        def ask_again() -> None:
            led = self._coordinators.get(coordinator_partition(id_, self._partition_count))
            if led is None:
                pending.fail(ErrorCode.not_coordinator)
            elif not pending.dropped:
                led.ask(event, pending)

        self._catch_up_before(self.catch_up, ask_again)
        return pending

    def once_caught_up(
        self, then: Callable[[], ResponseT | Pending[ResponseT]]
    ) -> ResponseT | Pending[ResponseT]:
        """Return what `then` returns, or a promise of it once this broker has caught up (`ask`)."""
        if self.catch_up is None:
            return then()
        pending: Pending[ResponseT] = Pending(lambda _: then(), holds_back=True)
        self._catch_up_before(self.catch_up, lambda: pending.complete(None))
        return pending

    def _catch_up_before(
        self, catch_up: Callable[[], Awaitable[None]], then: Callable[[], None]
    ) -> None:
        async def wait() -> None:
            await catch_up()
            then()

        task = self.loop.create_task(wait())
        self._early.add(task)
        task.add_done_callback(self._early_done)

    def _early_done(self, task: asyncio.Task[None]) -> None:
        self._early.discard(task)
        self._report_of(task)

    def look(self, id_: str, event: EventT) -> ReplyT | None:
        """Answer a question about `id_` that never waits; None where its shard does not serve."""
        coordinator = self._coordinators.get(coordinator_partition(id_, self._partition_count))
        if coordinator is None or coordinator.processor.state is not CoordinatorState.ACTIVE:
            return None
        return coordinator.look(event)

    def look_all(self, event: EventT) -> list[ReplyT] | None:
        """Answer a question of every shard led here; None unless all of them serve."""
        coordinators = self._coordinators.values()
        if any(led.processor.state is not CoordinatorState.ACTIVE for led in coordinators):
            return None
        return [coordinator.look(event) for coordinator in coordinators]

    def led(self) -> Iterator[LedCoordinator]:
        """Yield the partitions of the shards led here, each in its leadership."""
        for index, coordinator in self._coordinators.items():
            yield LedCoordinator(self.topic, index, coordinator.leader_epoch)

    def all_committed(self, before_ms: int) -> bool:
        """Whether what every shard led here had appended by then is committed, and applied."""
        begun = (led.processor.in_flight_since_ms for led in self._coordinators.values())
        return all(begun_ms is None or begun_ms > before_ms for begun_ms in begun)

    def is_damaged(self, id_: str) -> bool:
        """Whether the shard of `id_` is led here and cannot serve, as its log is damaged."""
        led = self._coordinators.get(coordinator_partition(id_, self._partition_count))
        return led is not None and led.processor.state is CoordinatorState.RESIGNED

    def ask_all(
        self, event: EventT, refuse: Callable[[ErrorCode], AnswerT]
    ) -> list[Pending[AnswerT]]:
        """Submit a request to every shard led here (for ListGroups); each promises its reply."""
        return [
            coordinator.ask(event, Pending(unchanged, holds_back=True, refuse=refuse))
            for coordinator in list(self._coordinators.values())
        ]

    def has_shards_of(self, topic: TopicImage | None, broker_id: int) -> bool:
        """Whether there is a shard for each partition of the internal topic that is this broker's.

        Those without a leader, as their log directory is off line, are: no other broker answers.
        """
        return topic is None or all(
            index in self._coordinators
            for index, partition in enumerate(topic.partitions)
            if partition.leader == broker_id
            or (partition.leader < 0 and broker_id in partition.replicas)
        )

    @property
    def parked_count(self) -> int:
        """The count of requests that wait for a transition, in all shards."""
        return sum(
            coordinator.processor.parked_count for coordinator in self._coordinators.values()
        )

    def broadcast(self, event: EventT) -> None:
        """Submit an event without a request to every active shard."""
        for coordinator in list(self._coordinators.values()):
            if coordinator.processor.state is CoordinatorState.ACTIVE:
                coordinator.submit(event)

    def apply(self, delta: ImageDelta, image: MetadataImage, metadata: CoordinatorMetadata) -> None:
        """Follow the metadata `image`, by its `delta` from the last one.

        `metadata` is what shards read of it.

        Called after the partitions followed it, so that they exist when a loaded shard sends
        markers.
        """
        before, self._image, self.metadata = self._image, image, metadata
        for coordinator in self._coordinators.values():
            coordinator.processor.metadata = metadata
        named = _newly_named(image.deleted, before.deleted)
        if named and self._topics_deleted is not None:
            self.broadcast(self._topics_deleted(image, named))
        for topic in delta.deleted:
            if topic.name == self.topic and topic.topic_id in image.deleted.get(topic.name, ()):
                self._partition_count = self._partition_count_default
        for change in delta.assigned():
            if change.topic.name == self.topic:
                self._partition_count = len(change.topic.partitions)
        for index in sorted({*self._coordinators, *range(self._partition_count)}):
            partition = self._partitions.get(self.topic, index)
            if partition is not None and not partition.state.is_leader:
                partition = None
            led = self._coordinators.get(index)
            if led is not None and (
                led.partition is not partition or led.leader_epoch != partition.state.leader_epoch
            ):
                self._resigned(led)
                led = None
            if led is None and partition is not None:
                self._elected(partition)

    def _elected(self, partition: Partition) -> None:
        """Load the shard of a partition that this broker now leads.

        An empty one serves at once.
        """
        index = partition.topic_partition.partition
        coordinator = self._coordinators[index] = CoordinatorContext(
            self, partition, self.make_shard(partition)
        )
        log_ = partition.log
        if log_.log_start_offset == log_.log_end_offset <= partition.state.high_watermark:
            coordinator.hear_markers()
            coordinator.activate()
        else:
            task = self._loads[index] = self.loop.create_task(self._load(coordinator))
            task.add_done_callback(lambda done: self._loaded(index, done))

    def _resigned(self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT]) -> None:
        """Drop the shard of a partition that has another leader, or a new leader epoch."""
        task = self._loads.pop(coordinator.index, None)
        if task is not None:
            task.cancel()
        del self._coordinators[coordinator.index]
        coordinator.resign()

    async def loaded(self) -> None:
        """Return when no shard is being loaded any more."""
        while self._loads:
            await asyncio.wait(list(self._loads.values()))

    async def run(self) -> None:
        """Raise the exception of a timer or of a shard's start, which is a bug. Never return."""
        raise await self._failure

    def clock_moved(self) -> None:
        """Run what is due in all shards after the wall clock has jumped."""
        for coordinator in list(self._coordinators.values()):
            coordinator.clock_moved()

    def shards(self) -> list[CoordinatorShard[EventT, ReplyT, EffectT]]:
        """The shards that this broker leads; not to be changed."""
        return [coordinator.processor.shard for coordinator in self._coordinators.values()]

    def close(self) -> None:
        """Resign from all shards."""
        for coordinator in list(self._coordinators.values()):
            self._resigned(coordinator)
        for task in self._early:
            task.cancel()
        self._failure.cancel()

    def take_turn(self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT]) -> None:
        """Call `tick` of this shard in one of the next turns of the event loop."""
        if not self._turns:
            self.loop.call_soon(self._next_turn)
        self._turns[coordinator] = None

    def _next_turn(self) -> None:
        coordinator = next(iter(self._turns))
        del self._turns[coordinator]
        if self._turns:
            self.loop.call_soon(self._next_turn)
        coordinator.tick(is_its_turn=True)

    def report(self, error: Exception) -> None:
        """End `run`, and with it the broker: a shard cannot continue."""
        if not self._failure.done():
            self._failure.set_result(error)

    def damaged(
        self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT], error: Exception
    ) -> None:
        """Resign from a shard whose log cannot be applied, and log the remedy once.

        So its ids have no coordinator until the log is repaired, and everything else has.
        """
        coordinator.resign()
        _tell_of_damage(coordinator.partition, error)

    async def _load(self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT]) -> None:
        """Replay the log, then serve once what was replayed is committed.

        A damaged log is not served, and none of it is dropped.
        """
        async with self._load_turn:
            try:
                now_ms, begun_ms = self.wall_clock.now_ms(), self.wall_clock.monotonic_ms()
                end = await load(coordinator.processor, coordinator.partition, self._disk, now_ms)
                # In the same turn, as markers behind the end are not read.
                coordinator.hear_markers()
                self.load_times_ms.append(self.wall_clock.monotonic_ms() - begun_ms)
            except StorageFailure as failure:
                # D12: not this log but its log directory fails.
                coordinator.resign()
                note_damage(coordinator.partition, failure)
                return
            except Exception as error:  # noqa: BLE001 - a log may hold anything, and this is a task
                self.damaged(coordinator, error)
                return
        # Outside of the turn: a partition whose replicas lag holds up no other.
        if await committed(coordinator.partition, end) is not ErrorCode.none:
            return  # Leadership is lost, and `apply` resigns.
        deleted = self._image.deleted
        if deleted and self._topics_deleted is not None:
            coordinator.activate(self._topics_deleted(self._image, deleted))
        else:
            coordinator.activate()

    def _loaded(self, index: int, task: asyncio.Task[None]) -> None:
        if self._loads.get(index) is task:
            del self._loads[index]
        self._report_of(task)

    def _report_of(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self.report(error)


def _newly_named(deleted: Deletions, before: Deletions) -> dict[str, tuple[TopicId, ...]]:
    """Return the deletions that the metadata did not name before."""
    found = {}
    for name, ids in deleted.items():
        known = before.get(name, ())
        new = tuple(topic_id for topic_id in ids if topic_id not in known)
        if new:
            found[name] = new
    return found


def _tell_of_damage(partition: Partition, error: Exception) -> None:
    """Log the partition, the offset and the remedy, once per load."""
    log.error(
        "%s cannot be loaded: %s. Its coordinator is not available, everything else is; stop the "
        "broker and run: oncelog log repair %s",
        partition.topic_partition,
        error.message if isinstance(error, ProtocolError) else error,
        partition.log.directory,
        exc_info=None if isinstance(error, ProtocolError) else error,
    )

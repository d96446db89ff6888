"""Counts the states of a running broker's coordinators, without hooks in the product.

`ObservedBroker` is the shipped broker with a `BrokerWatch`. Each of its coordinators' shards is
wrapped in an `ObservedShard`, which passes every call on and compares the state before and after.
Replay after a load is not counted, because its moves were counted when they happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Never

from oncelog.broker.broker import Broker
from oncelog.broker.membership.feed import FolderTask
from oncelog.broker.net.dispatch import Find, Layer
from oncelog.broker.partitions.folders import FolderWork
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import ImageDelta, MetadataImage
from oncelog.coordinator.shard import (
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EffectT,
    EventContext,
    EventT,
    RecordContext,
    ReplyT,
    Step,
    Token,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group.classic_group import ClassicGroup
from oncelog.group.consumer.events import GroupConverted
from oncelog.group.consumer.group import ConsumerGroup, ConsumerGroupState
from oncelog.group.consumer.members import MemberState
from oncelog.group.decision import GroupDecision, GroupEvent, GroupReply
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.group.states import DEAD, GroupState
from oncelog.group.store import GroupStore
from oncelog.metadata.store import MetadataStore
from oncelog.protocol.records import group_log, transaction_log
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, StorageFailure, SystemDisk
from oncelog.runtime.network import Network
from oncelog.simulation.access.watch import AccessWatch
from oncelog.simulation.archive import Archive
from oncelog.simulation.coverage import DOWNGRADED, UPGRADED, Coverage
from oncelog.simulation.duties.telling import Periods, told, unpunctual, woken
from oncelog.simulation.duties.transactions import Complaint, TransactionDuties
from oncelog.simulation.duties.worn import first_epoch, worn
from oncelog.simulation.naming import warn_of_unserved, watched
from oncelog.simulation.watch import BrokerWatch, WatchedDisk
from oncelog.transaction.events import (
    AbortTimedOut,
    InitProducerId,
    TransactionDecision,
    TransactionEffect,
    TransactionEvent,
    TransactionReply,
)
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionState

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import GroupRuntime, TransactionRuntime

__all__ = [
    "ObservedBroker",
    "ObservedGroups",
    "ObservedShard",
    "ObservedTransactions",
    "observe_broker",
]


class ObservedShard(CoordinatorShard[EventT, ReplyT, EffectT]):
    """Passes every call on to `inner`."""

    def __init__(
        self,
        inner: CoordinatorShard[EventT, ReplyT, EffectT],
        coverage: Coverage,
        watch: BrokerWatch,
        partition: Partition | None = None,
    ) -> None:
        self.inner = inner
        self.partition = partition
        """The one that it writes to."""
        self._epoch = -1 if partition is None else partition.state.leader_epoch
        self.coverage = coverage
        self.watch = watch
        self.is_active = False
        watch.loading_count += 1

    def decide(self, event: EventT, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Look whether it answers after it has been replaced."""
        decision = self.inner.decide(event, context)
        replaced = self.watch.replaced
        if replaced is None or self.partition is None:
            return decision
        return replaced.heard(self.partition, self._epoch, event, decision)

    def replay(self, step: Step, context: RecordContext) -> None:
        """See `CoordinatorShard`."""
        self.inner.replay(step, context)

    def failed(
        self, event: EventT, error: ErrorCode, context: EventContext
    ) -> Decision[EventT, ReplyT, EffectT]:
        """See `CoordinatorShard`."""
        return self.inner.failed(event, error, context)

    def id_of(self, event: EventT) -> str | None:
        """See `CoordinatorShard`."""
        return self.inner.id_of(event)

    def overtakes(self, event: EventT) -> bool:
        """See `CoordinatorShard`."""
        return self.inner.overtakes(event)

    def park(self, event: EventT, context: EventContext) -> EventT:
        """See `CoordinatorShard`."""
        return self.inner.park(event, context)

    def dropped(self, event: EventT, token: Token) -> EventT | None:
        """See `CoordinatorShard`."""
        return self.inner.dropped(event, token)

    def tick(self, now_ms: int) -> Sequence[EventT]:
        """See `CoordinatorShard`."""
        return self.inner.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        """See `CoordinatorShard`."""
        return self.inner.next_deadline_ms()

    def on_loaded(self, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Count moves from now on: the load is over."""
        self._over()
        if self.watch.replaced is not None and self.partition is not None:
            self.watch.replaced.serves(self.partition, self._epoch)
        return self.inner.on_loaded(context)

    def on_unloaded(self, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """See `CoordinatorShard`."""
        self._over()
        return self.inner.on_unloaded(context)

    def _over(self) -> None:
        if not self.is_active:
            self.is_active = True
            self.watch.loading_count -= 1


class ObservedTransactions(ObservedShard[TransactionEvent, TransactionReply, TransactionEffect]):
    """Counts the states and moves of transactional ids, and reports them to the watch."""

    def __init__(
        self,
        inner: TransactionCoordinatorShard,
        coverage: Coverage,
        watch: BrokerWatch,
        partition: Partition | None = None,
        periods: Periods | None = None,
    ) -> None:
        super().__init__(inner, coverage, watch, partition)
        self._shard = inner
        self._transactions = inner.transactions
        self._fenced: set[str] = set()
        self._periods = periods
        epoch = 0 if partition is None else partition.state.leader_epoch
        self.duties = TransactionDuties(epoch)
        """What it owes, worked out beside it. `periods` and the partition are its settings."""
        self._seen_count = -1

    def look(self, now_ms: int, awake_since_ms: float) -> Iterator[Complaint]:
        """Return what is wrong with what it did, tells and still has to do."""
        duties, periods = self.duties, self._periods
        if periods is not None and self.is_active:
            if self._seen_count != duties.changes_count:
                self._seen_count = duties.changes_count
                yield from told(duties, self._shard, periods, now_ms)
            yield from unpunctual(duties, self._shard, periods, now_ms, awake_since_ms)
        yield from duties.taken()

    def tick(self, now_ms: int) -> Sequence[TransactionEvent]:
        """Compare what is due."""
        events = tuple(self.inner.tick(now_ms))
        if self._periods is not None:
            self.duties.complain(woken(self.duties, self._shard, events, self._periods, now_ms))
        return events

    def failed(
        self, event: TransactionEvent, error: ErrorCode, context: EventContext
    ) -> TransactionDecision:
        """Forget what was decided."""
        self.duties.failed(event, context.now_ms)
        return self.inner.failed(event, error, context)

    def on_loaded(self, context: EventContext) -> TransactionDecision:
        """Compare what is sent again."""
        decision = super().on_loaded(context)
        self.duties.loaded(decision, context.now_ms)
        return decision

    def decide(self, event: TransactionEvent, context: EventContext) -> TransactionDecision:
        """Record which PREPARE_ABORTs fencing caused: PREPARE_EPOCH_FENCE is never written."""
        decision = super().decide(event, context)
        id_ = decision.id
        is_new = id_ is not None and id_ not in self._transactions
        if is_new and len(decision.records) == 1 and first_epoch(id_ or ""):
            decision = worn(decision)
        if decision.records and id_ is not None:
            before = self._transactions.get(id_)
            is_open = before is not None and before.state is TransactionState.ONGOING
            if is_open and isinstance(event, AbortTimedOut | InitProducerId):
                self._fenced.add(id_)
            else:
                self._fenced.discard(id_)
        self.duties.decided(event, context, decision)
        return decision

    def replay(self, step: Step, context: RecordContext) -> None:
        """Compare the id's state before and after."""
        record = step if isinstance(step, CoordinatorRecord) else None
        id_ = None if record is None else transaction_log.decode_key(record.key)
        if id_ is None or record is None:
            self.inner.replay(step, context)
            return
        before = self._transactions.get(id_)
        self.inner.replay(record, context)
        self.duties.replayed(id_, record, context)
        after = self._transactions.get(id_)
        if after is None:
            self.watch.forgotten(id_)
        else:
            self.watch.applied(after)
        if self.is_active:
            was = None if before is None else before.state
            self._moved(id_, was, TransactionState.DEAD if after is None else after.state)

    def _moved(self, id_: str, was: TransactionState | None, now: TransactionState) -> None:
        if was is TransactionState.ONGOING and id_ in self._fenced:
            self._fenced.discard(id_)
            if now is TransactionState.PREPARE_ABORT:
                fence = TransactionState.PREPARE_EPOCH_FENCE
                self.coverage.moved("transaction", was.label, fence.label)
                was = fence
        self.coverage.moved("transaction", None if was is None else was.label, now.label)


class ObservedGroups(ObservedShard[GroupEvent, GroupReply, Never]):
    """Counts the states and moves of groups of both protocols, and of members under KIP-848."""

    def __init__(
        self,
        inner: GroupCoordinatorShard,
        coverage: Coverage,
        watch: BrokerWatch,
        partition: Partition | None = None,
    ) -> None:
        super().__init__(inner, coverage, watch, partition)
        self._groups = inner.store.groups
        self._consumer_groups = ConsumerGroupStates(inner.store, coverage)

    def on_loaded(self, context: EventContext) -> GroupDecision:
        """Record the loaded states; loading them is no move."""
        self._consumer_groups.begin()
        return super().on_loaded(context)

    def decide(self, event: GroupEvent, context: EventContext) -> GroupDecision:
        """Compare the state of the event's group before and after."""
        id_ = getattr(event, "group_id", None)
        group = self._groups.get(id_) if id_ is not None else None
        before = _snapshot(group)
        if id_ is not None:
            self._consumer_groups.look(id_, is_converted=isinstance(event, GroupConverted))
        decision = super().decide(event, context)
        if id_ is not None:
            self._compare(id_, group, before)
        return decision

    def failed(self, event: GroupEvent, error: ErrorCode, context: EventContext) -> GroupDecision:
        """Compare the state too: an assignment that could not be written restarts the rebalance."""
        id_ = getattr(event, "group_id", None)
        group = self._groups.get(id_) if id_ is not None else None
        before = _snapshot(group)
        decision = self.inner.failed(event, error, context)
        if id_ is not None:
            self._compare(id_, group, before)
        return decision

    def replay(self, step: Step, context: RecordContext) -> None:
        """Compare the state, if the record is about a group."""
        key = None
        if isinstance(step, CoordinatorRecord) and self.is_active:
            key = group_log.decode_key(step.key)
        if not isinstance(key, group_log.GroupMetadataKey):
            self.inner.replay(step, context)
            return
        group = self._groups.get(key.group)
        before = _snapshot(group)
        self.inner.replay(step, context)
        self._compare(key.group, group, before)

    def _compare(self, id_: str, group: ClassicGroup | None, before: _Snapshot) -> None:
        """Count the moves since `before`: at most two, as a rebalance may be over at once.

        A group that was created meanwhile began as Empty.
        """
        now = self._groups.get(id_)
        if now is None:
            if group is not None:
                self.coverage.moved("group", before[0].value, DEAD)
            return
        if now is not group:
            before = _NEW
            self.coverage.moved("group", None, GroupState.EMPTY.value)
        after = _snapshot(now)
        if after == before:
            return
        was, via = before[0], after[1]
        if via is not None and via is not was:
            self.coverage.moved("group", was.value, via.value)
            was = via
        self.coverage.moved("group", was.value, after[0].value)


class ConsumerGroupStates:
    """Compares a consumer group with its state before each of its events.

    By then all records of a decision are replayed; states between them do not count.
    """

    def __init__(self, store: GroupStore, coverage: Coverage) -> None:
        self._groups = store.consumer_groups
        self._classic_groups = store.groups
        self._coverage = coverage
        self._seen: dict[str, tuple[ConsumerGroupState, dict[str, MemberState]]] = {}

    def begin(self) -> None:
        """Store the current states."""
        self._seen = {id_: _consumer_snapshot(group) for id_, group in self._groups.items()}

    def look(self, id_: str, *, is_converted: bool) -> None:
        """Count the moves since the last call. `is_converted`: the protocol has changed too."""
        group, before = self._groups.get(id_), self._seen.pop(id_, None)
        if is_converted:
            self._coverage.count(f"consumer-group/{DOWNGRADED if group is None else UPGRADED}")
        if group is None:
            classic = self._classic_groups.get(id_)
            is_classic = classic is not None and bool(classic.members)
            if before is not None and not is_classic:
                self._coverage.moved("consumer-group", before[0].value, DEAD)
            return
        now = self._seen[id_] = _consumer_snapshot(group)
        if before is None or before[0] is not now[0]:
            was = None if before is None else before[0].value
            self._coverage.moved("consumer-group", was, now[0].value)
        members = {} if before is None else before[1]
        for member_id, state in now[1].items():
            was_state = members.get(member_id)
            if was_state is not state:
                name = None if was_state is None else was_state.name
                self._coverage.moved("member", name, state.name)


def _consumer_snapshot(
    group: ConsumerGroup,
) -> tuple[ConsumerGroupState, dict[str, MemberState]]:
    return group.state, {id_: member.state for id_, member in group.members.items()}


_Snapshot = tuple[GroupState, GroupState | None, int]
"""State, the one before it, and generation: each move changes at least one of them."""
_NEW: _Snapshot = (GroupState.EMPTY, None, 0)


def _snapshot(group: ClassicGroup | None) -> _Snapshot:
    if group is None:
        return _NEW
    return group.state, group.previous_state, group.generation_id


def observe_broker(
    transactions: TransactionRuntime,
    groups: GroupRuntime,
    coverage: Coverage,
    watch: BrokerWatch,
    periods: Periods | None = None,
) -> None:
    """Wrap every shard that these coordinators create from now on.

    Call it before the broker leads a partition; `ObservedBroker` does.
    """
    make_transactions, make_groups = transactions.make_shard, groups.make_shard

    def observed_transactions(partition: Partition) -> ObservedTransactions:
        shard = make_transactions(partition)
        if not isinstance(shard, TransactionCoordinatorShard):
            raise TypeError(f"no observer for {shard!r}")
        return ObservedTransactions(shard, coverage, watch, partition, periods)

    def observed_groups(partition: Partition) -> ObservedGroups:
        shard = make_groups(partition)
        if not isinstance(shard, GroupCoordinatorShard):
            raise TypeError(f"no observer for {shard!r}")
        return ObservedGroups(shard, coverage, watch, partition)

    transactions.make_shard = observed_transactions
    groups.make_shard = observed_groups


def _periods(config: BrokerConfig) -> Periods:
    return Periods(
        sweep_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiration_ms=config.get_int("transactional.id.expiration.ms"),
        expiry_sweep_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


class ObservedBroker(Broker):
    """The shipped broker; its states are counted and its steps recorded in `watch`.

    One object is one incarnation. `watch.at_death` has the crash rows of its death.
    """

    def __init__(
        self,
        config: BrokerConfig,
        coverage: Coverage,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        store: MetadataStore | None = None,
        rng: random.Random | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.coverage = coverage
        self.access: AccessWatch | None = None
        """Looks at the rights of those who ask, where they have not all of them."""
        self.others: Callable[[], Iterable[MetadataImage]] = tuple
        """Returns the metadata from which the other brokers answer."""
        self.on_applied: Callable[[ImageDelta], None] = lambda _: None
        """Called once this broker answers from a step of the metadata."""
        self._is_open = False
        self.watch = BrokerWatch(archive)
        watched = WatchedDisk(disk or SystemDisk(), self.watch)
        super().__init__(config, clock=clock, disk=watched, network=network, store=store, rng=rng)

    async def _start_storage(self, exits: AsyncExitStack) -> None:
        await super()._start_storage(exits)
        self.watch.phase = "serving"

    def _start_parts(self, exits: AsyncExitStack) -> None:
        super()._start_parts(exits)
        observe_broker(
            self.transactions, self.groups, self.coverage, self.watch, _periods(self.config)
        )

    async def _start_serving(self, exits: AsyncExitStack) -> None:
        await super()._start_serving(exits)
        self.dispatcher.wrap(Layer.WATCH, self._watched)
        self._is_open = True

    def _watched(self, find: Find) -> Find:
        found = watched(find, lambda: self.others())
        return found if self.access is None else self.access.watched(found)

    async def _follow(self, delta: ImageDelta) -> FolderTask | None:
        # Before it accepts connections, no client is answered.
        if self._is_open:
            warn_of_unserved(self.image, self.partitions, self.broker_id)
        task = await super()._follow(delta)
        # The feed shows the step before anything else has a turn.
        asyncio.get_running_loop().call_soon(self.on_applied, delta)
        return task

    async def _make_folders(self, work: FolderWork) -> dict[TopicPartition, StorageFailure]:
        # A death in between leaves it set, and no work follows.
        self.watch.deleting = bool(work.deleted)
        unmade = await super()._make_folders(work)
        self.watch.deleting = False
        return unmade

    async def stop(self) -> None:
        """Stop the broker; a death from now on counts as one during the stop."""
        self.watch.phase = "stopping"
        await super().stop()

"""Runs one coordinator shard on the partition that it writes to.

The outputs of the shard's processor are executed in this order: appends, replies, effects. The
appends of one output are written as one batch, as far as they fit into it; the processor's
`committed` is called for each when the high watermark has passed it, which with a single replica is
within the same call stack. So a request of a transaction usually
ends in the turn of the event loop in which it arrived, without a task.

Where another broker may lead, a reply without an append of its own is sent once this one is known
to have led after the request came (`confirmations`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator.event_processor import CoordinatorState, EventProcessor
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.output import Append, Output
from oncelog.coordinator.shard import (
    AppendProducer,
    CoordinatorShard,
    EffectT,
    EndTransactionMarker,
    EventT,
    ReplyT,
    marker_context,
)
from oncelog.core.cluster_limits import AFTER_STALL_MS, COORDINATOR_STALL_MS
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.core.limits import COORDINATOR_APPEND_BYTES_MAX
from oncelog.core.pending import Pending
from oncelog.protocol.batch import HEADER_SIZE
from oncelog.protocol.record import Record, build_batch
from oncelog.protocol.records.scan import DamagedRecord
from oncelog.runtime.clock import Clock, SteadyClock
from oncelog.storage import LogConfig, Origin, Verification

if TYPE_CHECKING:
    from oncelog.broker.coordination.confirmations import Confirmations

__all__ = ["CoordinatorContext"]

log = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")

_RECORD_BYTES: Final = 32
"""An upper bound of what a record takes in a batch beside its key and its value."""


class Host(Protocol[EventT, ReplyT, EffectT]):
    """What the shards of one coordinator have in common: its `CoordinatorRuntime`."""

    clock: SteadyClock
    wall_clock: Clock
    loop: asyncio.AbstractEventLoop
    append_wait_ms_max: int | None
    takes_turns: bool
    metadata: CoordinatorMetadata
    producer_ids: ProducerIds
    effect_handler: Callable[[CoordinatorContext[EventT, ReplyT, EffectT], EffectT], None]

    def report(self, error: Exception) -> None:
        """End the broker: a shard cannot continue."""
        ...

    def take_turn(self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT]) -> None:
        """Call `tick` in one of the next turns of the event loop, of one shard in each."""
        ...

    def damaged(
        self, coordinator: CoordinatorContext[EventT, ReplyT, EffectT], error: Exception
    ) -> None:
        """Resign from a shard whose log cannot be applied, and say so."""
        ...


class CoordinatorContext(Generic[EventT, ReplyT, EffectT]):
    """One shard and the partition it writes to. The effect handler replies through `submit`."""

    __slots__ = (
        "_confirmations",
        "_deadline_ms",
        "_due_ms",
        "_host",
        "_now_ms",
        "_outputs",
        "_running",
        "_timer",
        "index",
        "leader_epoch",
        "partition",
        "processor",
    )

    def __init__(
        self,
        host: Host[EventT, ReplyT, EffectT],
        partition: Partition,
        shard: CoordinatorShard[EventT, ReplyT, EffectT],
    ) -> None:
        self.partition = partition
        self.index = partition.topic_partition.partition
        self.leader_epoch = partition.state.leader_epoch
        self.processor = EventProcessor(shard, host.metadata, host.append_wait_ms_max)
        self._host = host
        self._outputs: deque[Output[ReplyT, EffectT]] = deque()
        self._running = False
        self._confirmations: Confirmations | None = None
        self._now_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        self._due_ms = 0

    def submit(self, event: EventT) -> None:
        """Submit an event without a request to the shard, and execute its output.

        That happens at once unless a run is under way.
        """
        self.submit_all((event,))

    def submit_all(self, events: Iterable[EventT]) -> None:
        """Submit events in this order; what they append is written together."""
        now_ms = self._host.clock.now_ms()
        self._run(self.processor.submit_all(events, now_ms), now_ms)

    def ask(self, event: EventT, pending: Pending[ResponseT]) -> Pending[ResponseT]:
        """Submit a request to the shard; dropping its promise drops the request (D7)."""
        now_ms = self._host.clock.now_ms()
        self._run(self.processor.submit(event, pending, now_ms), now_ms)
        if not pending.done:
            pending.on_drop = partial(self._drop, event, pending)
        return pending

    def look(self, event: EventT) -> ReplyT:
        """Answer a question that never waits, and changes nothing."""
        return self.processor.look(event, self._host.clock.now_ms())

    def _drop(self, event: EventT, pending: Pending[object]) -> None:
        """Forget a request whose connection has closed; the shard may react to that."""
        after = self.processor.drop(event, pending)
        if after is not None:
            self.submit(after)

    def _run(self, output: Output[ReplyT, EffectT], now_ms: int) -> None:
        """Execute an output and all outputs that follow from it.

        Called again from within, it leaves the work to the outer run. `now_ms` is the time of the
        whole run.
        """
        self._outputs.append(output)
        if self._running:
            return
        self._running = True
        self._now_ms = now_ms
        try:
            while self._outputs:
                output = self._outputs.popleft()
                if len(output.appends) == 1:
                    self._write(output.appends)
                elif output.appends:
                    for appends in _batches_of(output.appends, self.partition.log.config):
                        self._write(appends)
                if output.unconfirmed and not self.partition.state.is_lone:
                    self._hold(output)
                for reply in output.replies:
                    token: Any = reply.token  # The promise that `ask` was given.
                    token.complete(reply.value)
                for effect in output.effects:
                    self._host.effect_handler(self, effect)
        finally:
            self._running = False
        deadline_ms = self.processor.next_deadline_ms()
        if deadline_ms is not None and (self._timer is None or deadline_ms < self._deadline_ms):
            self._arm(deadline_ms)

    def _hold(self, output: Output[ReplyT, EffectT]) -> None:
        """Take those replies out of an output that have to be confirmed, and send them then."""
        if self._confirmations is None:
            from oncelog.broker.coordination.confirmations import Confirmations

            self._confirmations = Confirmations(self.partition, self._host.loop)
        self._confirmations.hold(output)

    def hear_markers(self) -> None:
        """Apply each marker that is appended from now on once it is committed."""
        self.partition.on_marker = self._marker_committed

    def activate(self, first: EventT | None = None) -> None:
        """Serve after the load: the event `first`, then the requests that came meanwhile."""
        now_ms = self._host.clock.now_ms()
        self._run(self.processor.activate(now_ms, first), now_ms)

    def resign(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR: leadership is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.partition.on_marker = None
        now_ms = self._host.clock.now_ms()
        self._run(self.processor.resign(now_ms), now_ms)

    def _marker_committed(
        self, producer_id: int, producer_epoch: int, commit: bool, offset: int
    ) -> None:
        """Apply a committed marker: it makes the transaction's offsets visible (INV-6)."""
        if self.processor.state is CoordinatorState.RESIGNED:
            return
        ids = ProducerId(producer_id), ProducerEpoch(producer_epoch)
        marker = EndTransactionMarker(offset, *ids, commit)
        try:
            self.processor.replay(marker, marker_context(marker))
        except DamagedRecord as damage:
            self._host.damaged(self, damage)

    def _write(self, appends: Sequence[Append]) -> None:
        """Write appends as one batch. One without records, or with a producer, comes alone."""
        first = appends[0]
        if not first.records:
            self._take_producer_id(first)
            return
        partition = self.partition
        state = partition.state
        if not state.is_leader:
            error = state.leader_error()
        elif not state.has_enough_replicas:
            error = ErrorCode.not_enough_replicas
        else:
            error = ErrorCode.none
        producer = first.producer
        if error is ErrorCode.none and producer is not None:
            error = _error_of_late(partition, producer)
        if error is ErrorCode.none:
            now_ms = self._host.wall_clock.now_ms()
            batch = _encode(appends, now_ms)
            result = partition.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR)
            error = result.error
            if error is ErrorCode.none:
                end = result.last_offset + 1
                if state.high_watermark >= end:
                    # Committed with the append itself, as without other replicas.
                    base_offset = Offset(result.base_offset)
                    try:
                        for append in appends:
                            id_, count = append.append_id, len(append.records)
                            done = self.processor.committed(id_, base_offset, self._now_ms)
                            self._outputs.append(done)
                            base_offset = Offset(base_offset + count)
                    except DamagedRecord as damage:
                        self._host.damaged(self, damage)
                    return
                partition.on_committed(end, partial(self._settled, appends, result.base_offset))
                for append in appends:
                    self.processor.delayed(append.append_id, self._now_ms)
                return
        log.warning("append to %s failed: %s", partition.topic_partition, error.name.upper())
        now_ms = self._host.clock.now_ms()
        for append in appends:
            self._run(self.processor.append_failed(append.append_id, error, now_ms), now_ms)

    def _take_producer_id(self, append: Append) -> None:
        """Give a fresh producer id to the decision that needs one (INV-11)."""
        now_ms = self._now_ms
        fresh = self._host.producer_ids.take()
        if fresh is None:
            error = ErrorCode.coordinator_load_in_progress
            self._outputs.append(self.processor.append_failed(append.append_id, error, now_ms))
        else:
            again = self.processor.producer_id_taken(append.append_id, fresh, now_ms)
            self._outputs.append(again)

    def _settled(self, appends: Sequence[Append], base_offset: int, outcome: ErrorCode) -> None:
        """Complete appends below the high watermark; after lost leadership `resign` does."""
        if outcome is ErrorCode.none:
            now_ms = self._now_ms if self._running else self._host.clock.now_ms()
            try:
                for append in appends:
                    offset = Offset(base_offset)
                    self._run(self.processor.committed(append.append_id, offset, now_ms), now_ms)
                    base_offset += len(append.records)
            except DamagedRecord as damage:
                self._host.damaged(self, damage)

    def _arm(self, deadline_ms: int) -> None:
        """Schedule `_tick` for the shard's next deadline; replaces a later timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._deadline_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._now_ms)
        self._due_ms = self._now_ms + delay_ms
        self._timer = self._host.loop.call_later(delay_ms / 1000, self.tick)

    def clock_moved(self) -> None:
        """Run what is due after the wall clock has jumped."""
        if self._timer is not None:
            self._due_ms = self._host.clock.now_ms()
            self.tick(is_its_turn=True)

    def tick(self, *, is_its_turn: bool = False) -> None:
        """Submit what is due, unless this process stood still.

        Then heartbeats and commits may be in its sockets, of members and producers that would be
        expired for want of them. They are read first.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            host, now_ms = self._host, self._host.clock.now_ms()
            if now_ms - self._due_ms > COORDINATOR_STALL_MS:
                self._due_ms = now_ms + AFTER_STALL_MS
                self._timer = host.loop.call_later(AFTER_STALL_MS / 1000, self.tick)
            elif host.takes_turns and not is_its_turn:
                self._due_ms = now_ms
                host.take_turn(self)
            else:
                self._run(self.processor.tick(now_ms), now_ms)
        except Exception as error:  # noqa: BLE001 - a timer is a task boundary: the owner decides
            self._host.report(error)


def _error_of_late(partition: Partition, producer: AppendProducer) -> ErrorCode:
    """The error if a marker ended an append's transaction while it waited (INV-3, INV-6)."""
    permit, known = producer.permit, partition.log.producers
    is_open = not isinstance(permit, Verification) or known.verifications.allows(permit)
    if is_open:
        return ErrorCode.none
    return known.error_of_late(producer.producer_id, producer.producer_epoch)


def _batches_of(appends: Sequence[Append], config: LogConfig) -> Iterator[list[Append]]:
    """Cut the appends of one output into those that share a batch, in their order."""
    limits = COORDINATOR_APPEND_BYTES_MAX, config.max_message_bytes, config.segment_bytes
    bytes_max = min(limits) - HEADER_SIZE
    found: list[Append] = []
    free = bytes_max
    for append in appends:
        is_alone = append.producer is not None or not append.records
        size = sum(
            len(each.key) + len(each.value or b"") + _RECORD_BYTES for each in append.records
        )
        if found and (is_alone or size > free):
            yield found
            found, free = [], bytes_max
        found.append(append)
        free = -1 if is_alone else free - size
    yield found


def _encode(appends: Sequence[Append], now_ms: int) -> bytearray:
    """Encode the records of appends as one batch, with wall time.

    Offsets of a transaction are that producer's transactional batch, with sequence 0 as in Kafka.
    """
    records: list[Record] = []
    for append in appends:
        for record in append.records:
            records.append(Record(len(records), now_ms, record.key, record.value, ()))
    producer = appends[0].producer
    if producer is None:
        return build_batch(records)
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )

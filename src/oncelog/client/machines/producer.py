"""The producer's accumulator: it decides which batch is sent next, and assigns sequences.

It also decides on each response. There is one lane per partition. Records gather in a lane's last
batch. A batch gets its sequence when it is first drained and **keeps it through every retry**
(INV-2), because after a lost response it is unknown whether the batch is in the log: by the same
sequence the broker recognises a duplicate. Retries keep the first order: after a failure the lane
waits until all its batches in flight have been answered, then starts again at the oldest. At most
five are in flight per lane, as many as the broker remembers; one until it was acknowledged, because
a leader that knows nothing of a producer takes any sequence as its first: just created or elected,
it may refuse a batch and take the next. The shell passes monotonic milliseconds and responses.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from oncelog.client.errors import (
    ClientError,
    DeliveryTimeoutError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.core.errors import ErrorCode, require
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import CACHED_BATCHES_PER_PRODUCER_COUNT, INT32_MAX, SEQUENCE_MODULUS
from oncelog.protocol.batch import WritableBuffer, set_producer
from oncelog.protocol.record import Record, build_batch

__all__ = ["BatchEnd", "ProducerBatch", "ProducerMachine", "ProducerSettings", "Send", "size_of"]

RECORD_OVERHEAD_SIZE = 24
"""Bytes counted for a record beside its key, value and headers: at least its varints."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The configs of a producer, which do not change.

    `retry_delay_ms(attempts)` is the backoff, randomness included.
    """

    idempotent: bool
    transactional: bool
    retry_delay_ms: Callable[[int], float]
    batch_size: int = 16384
    linger_ms: float = 0.0
    delivery_timeout_ms: float = 120_000.0
    request_size_max: int = 1024 * 1024
    codec: str = "none"
    retries: int = INT32_MAX


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """A batch for one partition. `tokens` are the shell's: one per record, or per ready batch."""

    topic_partition: TopicPartition
    serial: int
    created_ms: float
    size: int = 0
    record_count: int = 0
    records: list[Record] = field(default_factory=list)
    tokens: list[object] = field(default_factory=list)
    payload: WritableBuffer | None = None
    ready_made: bool = False
    sealed: bool = False
    base_sequence: int = -1
    attempts: int = 0
    retry_at_ms: float = 0.0
    last_error: ErrorCode = ErrorCode.none

    @property
    def sequenced(self) -> bool:
        """True once the batch has its sequence; from then on its bytes never change."""
        return self.base_sequence >= 0


@dataclass(frozen=True, slots=True)
class Send:
    """One Produce request: batches of different partitions for one broker."""

    node_id: int
    batches: tuple[ProducerBatch, ...]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The result of a batch: acknowledged when `error` is None.

    Offsets and times are -1 where unknown.
    """

    batch: ProducerBatch
    error: ClientError | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1


@dataclass(slots=True, eq=False)
class _Queue:
    queue: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int = 0
    recovering: bool = False
    is_known: bool = False  # the last answer acknowledged a batch of this id and epoch
    node_id: int = -1


class ProducerMachine:
    """See the module's docstring. `producer_id` and `producer_epoch` are -1 until `identify`."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences_broken = False
        """A batch with a sequence failed: the sequence that the broker expects is unknown.

        A new epoch or producer id is needed before new batches.
        """
        self.buffered_size = 0
        self._lanes: dict[TopicPartition, _Queue] = {}
        self._serial = 0
        self._unresolved_count = 0
        self._abandoned: ClientError | None = None
        # Without sequences the broker cannot put retries back in order, so only one batch is in
        # flight.
        self._in_flight_max = CACHED_BATCHES_PER_PRODUCER_COUNT if settings.idempotent else 1

    # --- identity ---------------------------------------------------------------------

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Continue with this producer id and epoch, with sequences from 0.

        No batch may still have the former ones (INV-2).
        """
        require(
            not self.has_sequenced,
            "INV-2: a batch of the former producer epoch is not resolved yet",
        )
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences_broken = False
        self._abandoned = None
        for lane in self._lanes.values():
            lane.next_sequence = 0
            lane.recovering = lane.is_known = False

    def continue_at(self, topic_partition: TopicPartition, sequence: int) -> None:
        """Go on after the batches that another process sent under this producer id and epoch."""
        lane = self._lane(topic_partition)
        unresolved = bool(lane.queue or lane.in_flight)
        require(not unresolved, "INV-2: a batch of the partition is not resolved yet")
        lane.next_sequence = sequence

    @property
    def needs_identity(self) -> bool:
        """True when new batches cannot get sequences, and no unresolved batch has one.

        Then `identify` may be called.
        """
        unusable = self.producer_id < 0 or self.sequences_broken
        return self.settings.idempotent and unusable and not self.has_sequenced

    @property
    def has_sequenced(self) -> bool:
        """True while a batch with a sequence is unresolved."""
        return any(
            batch.sequenced
            for lane in self._lanes.values()
            for batch in (*lane.in_flight, *islice(lane.queue, self._in_flight_max))
        )

    # --- adding -----------------------------------------------------------------------

    def append(
        self, topic_partition: TopicPartition, record: Record, token: object, now_ms: float
    ) -> ProducerBatch:
        """Put `record` into the partition's open batch, or a new one.

        Its index there is ``record_count - 1`` afterwards.
        """
        size = size_of(record)
        lane = self._lane(topic_partition)
        batch = lane.queue[-1] if lane.queue else None
        if batch is None or batch.sealed or batch.size + size > self.settings.batch_size:
            if batch is not None:
                batch.sealed = True
            batch = self._new_batch(lane, topic_partition, now_ms)
        batch.records.append(record)
        batch.tokens.append(token)
        batch.record_count += 1
        batch.size += size
        self.buffered_size += size
        if batch.size >= self.settings.batch_size:
            batch.sealed = True
        return batch

    def append_batch(
        self,
        topic_partition: TopicPartition,
        payload: WritableBuffer,
        record_count: int,
        token: object,
        now_ms: float,
    ) -> ProducerBatch:
        """Queue one encoded batch.

        Producer id, epoch, sequence and CRC are stamped into `payload` when it is first sent.
        """
        lane = self._lane(topic_partition)
        if lane.queue:
            lane.queue[-1].sealed = True
        batch = self._new_batch(lane, topic_partition, now_ms)
        batch.payload = payload
        batch.ready_made = batch.sealed = True
        batch.record_count = record_count
        batch.size = len(payload)
        batch.tokens.append(token)
        self.buffered_size += batch.size
        return batch

    def seal(self) -> None:
        """Stop lingering: every queued batch may be sent now (flush)."""
        for lane in self._lanes.values():
            if lane.queue:
                lane.queue[-1].sealed = True

    def has_open_batch(self, topic_partition: TopicPartition) -> bool:
        """Whether a record for the partition would join a batch that is still gathering."""
        lane = self._lanes.get(topic_partition)
        return bool(lane and lane.queue and not lane.queue[-1].sealed)

    # --- sending ----------------------------------------------------------------------

    def drain(self, now_ms: float, leader_of: Callable[[TopicPartition], int | None]) -> list[Send]:
        """Return the requests to send now: at most one batch per partition, grouped by leader.

        Call again until empty. `leader_of` returns None for a partition that may not be sent to yet
        (no leader known, not in the transaction yet).
        """
        by_node: dict[int, list[ProducerBatch]] = {}
        size_by_node: dict[int, int] = {}
        for topic_partition, lane in self._lanes.items():
            if not self._lane_is_ready(lane, now_ms):
                continue
            node_id = leader_of(topic_partition)
            if node_id is None or (lane.in_flight and lane.node_id != node_id):
                # Wait for the responses of a former leader: batches at two leaders at once could
                # be reordered.
                continue
            batch = lane.queue[0]
            used = size_by_node.get(node_id, 0)
            if used and used + batch.size > self.settings.request_size_max:
                continue
            size_by_node[node_id] = used + batch.size
            self._number(lane, batch)
            lane.queue.popleft()
            lane.node_id = node_id
            lane.in_flight.append(batch)
            by_node.setdefault(node_id, []).append(batch)
        return [Send(node_id, tuple(batches)) for node_id, batches in by_node.items()]

    def waiting_partitions(self, now_ms: float) -> list[TopicPartition]:
        """Partitions with a batch that would be drained now if `leader_of` allowed it."""
        return [tp for tp, lane in self._lanes.items() if self._lane_is_ready(lane, now_ms)]

    # --- answers ----------------------------------------------------------------------

    def answered(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        now_ms: float,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        message: str = "",
    ) -> list[BatchEnd]:
        """Handle the broker's `code` for `batch`.

        Returns its outcome, or nothing when it will be retried.
        """
        lane = self._lanes[batch.topic_partition]
        if batch not in lane.in_flight:
            return []
        lane.in_flight.remove(batch)
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            outcome = self._resolved(batch, None, base_offset, log_append_time_ms)
            lane.is_known = True
            lane.recovering = bool(lane.recovering and lane.in_flight)
            return [outcome]
        lane.recovering, lane.is_known = bool(lane.in_flight), False
        if self._may_retry(lane, batch, code):
            batch.attempts += 1
            batch.last_error = code
            batch.retry_at_ms = now_ms + self.settings.retry_delay_ms(batch.attempts - 1)
            insort(lane.queue, batch, key=lambda queued: queued.serial)
            return []
        return [self._failed(batch, classify(code, self._operation, message))]

    def connection_lost(self, batches: Iterable[ProducerBatch], now_ms: float) -> list[BatchEnd]:
        """Handle a lost connection: `batches` get no response.

        Whether they are in the log is unknown, so they are sent again with the same sequences.
        """
        lost = ErrorCode.network_exception
        return [end for batch in batches for end in self.answered(batch, lost, now_ms)]

    def expire(self, now_ms: float) -> list[BatchEnd]:
        """Fail the queued batches whose delivery timeout has passed.

        Those in flight wait for their answer or request timeout.
        """
        outcomes: list[BatchEnd] = []
        for lane in self._lanes.values():
            while lane.queue and self._deadline_ms(lane.queue[0]) <= now_ms:
                batch = lane.queue.popleft()
                timeout_ms = self.settings.delivery_timeout_ms
                text = f"{batch.topic_partition}: no acknowledgement in {timeout_ms:g} ms"
                if batch.last_error is not ErrorCode.none:
                    text += f" (last answer {batch.last_error.name.upper()})"
                outcomes.append(self._failed(batch, DeliveryTimeoutError(text)))
        return outcomes

    def abandon(self, error: ClientError) -> list[BatchEnd]:
        """Fail all queued batches: the transaction (or the producer) has failed.

        Batches in flight are not retried.
        """
        self._abandoned = error
        return [end for lane in self._lanes.values() for end in self._drop(lane.queue, error)]

    def end(self, error: ClientError) -> list[BatchEnd]:
        """Fail all batches, also those in flight: their answers are no longer believed."""
        queued = self.abandon(error)
        sent = [end for lane in self._lanes.values() for end in self._drop(lane.in_flight, error)]
        return queued + sent

    def reject(self, topic: str, error: ClientError) -> list[BatchEnd]:
        """Fail all queued batches of a topic that cannot be produced to."""
        lanes = [lane for tp, lane in self._lanes.items() if tp.topic == topic]
        return [end for lane in lanes for end in self._drop(lane.queue, error)]

    def _drop(
        self, batches: list[ProducerBatch] | deque[ProducerBatch], error: ClientError
    ) -> list[BatchEnd]:
        failed = [self._failed(batch, error) for batch in batches]
        batches.clear()
        return failed

    def resume(self) -> None:
        """Undo `abandon`: the producer continues with the same id and epoch, without a gap."""
        require(self.is_idle, "INV-2: batches of an abandoned transaction are not resolved yet")
        self._abandoned = None

    # --- state ------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True when every batch is resolved."""
        return self._unresolved_count == 0

    @property
    def last_serial(self) -> int:
        """Number of the newest batch."""
        return self._serial

    def is_resolved_up_to(self, serial: int) -> bool:
        """Whether every batch up to that number is resolved (flush)."""
        return all(
            batch.serial > serial
            for lane in self._lanes.values()
            for batch in (*lane.in_flight, *islice(lane.queue, 1))
        )

    @property
    def in_flight_count(self) -> int:
        """Batches sent and not answered."""
        return sum(len(lane.in_flight) for lane in self._lanes.values())

    def next_deadline_ms(self, now_ms: float) -> float | None:
        """Return the time of the next linger, backoff or delivery timeout.

        None when no batch is queued.
        """
        deadlines: list[float] = []
        for lane in self._lanes.values():
            if not lane.queue:
                continue
            batch = lane.queue[0]
            deadlines.append(self._deadline_ms(batch))
            due_ms = self._ready_at_ms(lane, batch)
            if due_ms > now_ms:
                deadlines.append(due_ms)
        return min(deadlines, default=None)

    # --- inner ------------------------------------------------------------------------

    @property
    def _operation(self) -> Operation:
        return Operation.TRANSACTIONAL_PRODUCE if self.settings.transactional else Operation.PRODUCE

    def _lane(self, topic_partition: TopicPartition) -> _Queue:
        lane = self._lanes.get(topic_partition)
        if lane is None:
            lane = self._lanes[topic_partition] = _Queue()
        return lane

    def _new_batch(self, lane: _Queue, at: TopicPartition, now_ms: float) -> ProducerBatch:
        self._serial += 1
        self._unresolved_count += 1
        batch = ProducerBatch(at, self._serial, now_ms)
        lane.queue.append(batch)
        return batch

    def _lane_is_ready(self, lane: _Queue, now_ms: float) -> bool:
        in_flight_max = self._in_flight_max if lane.is_known else 1
        if not lane.queue or lane.recovering or len(lane.in_flight) >= in_flight_max:
            return False
        batch = lane.queue[0]
        unusable = self.producer_id < 0 or self.sequences_broken
        if self.settings.idempotent and unusable and not batch.sequenced:
            return False
        return self._ready_at_ms(lane, batch) <= now_ms

    def _ready_at_ms(self, lane: _Queue, batch: ProducerBatch) -> float:
        if batch.attempts:
            return batch.retry_at_ms
        if batch.sealed or len(lane.queue) > 1:
            return batch.created_ms
        return batch.created_ms + self.settings.linger_ms

    def _deadline_ms(self, batch: ProducerBatch) -> float:
        return batch.created_ms + self.settings.delivery_timeout_ms

    def _number(self, lane: _Queue, batch: ProducerBatch) -> None:
        batch.sealed = True
        if batch.sequenced or (batch.attempts and not self.settings.idempotent):
            return
        if self.settings.idempotent:
            batch.base_sequence = lane.next_sequence
            lane.next_sequence = (lane.next_sequence + batch.record_count) % SEQUENCE_MODULUS
        if batch.payload is None:
            batch.payload = build_batch(
                batch.records,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=self.settings.transactional,
                codec=self.settings.codec,
            )
        else:
            set_producer(
                batch.payload,
                0,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=self.settings.transactional,
            )

    def _may_retry(self, lane: _Queue, batch: ProducerBatch, code: ErrorCode) -> bool:
        if self._abandoned is not None:
            return False
        if code is ErrorCode.out_of_order_sequence_number:
            # An earlier batch will be sent again; until then the broker refuses later ones.
            return any(other.serial < batch.serial for other in (*lane.queue, *lane.in_flight))
        is_retriable = isinstance(classify(code, self._operation), RetriableError)
        return is_retriable and batch.attempts < self.settings.retries

    def _failed(self, batch: ProducerBatch, error: ClientError) -> BatchEnd:
        if self._abandoned is not None and isinstance(error, RetriableError):
            error = self._abandoned
        if batch.sequenced:
            self.sequences_broken = True
        return self._resolved(batch, error)

    def _resolved(
        self,
        batch: ProducerBatch,
        error: ClientError | None,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
    ) -> BatchEnd:
        self._unresolved_count -= 1
        self.buffered_size -= batch.size
        return BatchEnd(batch, error, base_offset, log_append_time_ms)


def size_of(record: Record) -> int:
    """Bytes that a record counts for in batches and buffers: an upper estimate."""
    size = RECORD_OVERHEAD_SIZE + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size

"""Produces as stock clients do: up to five requests in flight, sequences, and their error handling.

Responses are handled in the order of the requests. After a retriable failure of a batch no new
batch is sent until all batches in flight are answered; then the failed ones are sent again in the
old order with the old sequences (INV-2). A batch that can never succeed leaves a gap in its
partition's sequences: an idempotent producer continues with a new epoch or id, and sends only those
batches again that cannot have been written; in a transaction the first such failure fails the
transaction (`failure`).

Java's client differs in one case: it sends a batch again with a new epoch although an earlier try
had no response. These peers never do, so a record that is in a log twice is a broker's defect.

Sources: `PeerSender`, `TransactionManager.canRetry` (Java), `rd_kafka_handle_Produce_error`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.produce import (
    ProducePartitionResponse,
    encode_produce_request,
    parse_produce_response,
)
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Acked, SendFailed, Sent
from oncelog.simulation.peers.batches import Batch
from oncelog.simulation.peers.wire import Address, LostError, PeerWire, look

__all__ = ["IN_FLIGHT_COUNT_MAX", "PeerSender"]

IN_FLIGHT_COUNT_MAX: Final = 5
PARTITIONS_PER_REQUEST_MAX: Final = 10
_KEPT_COUNT_MAX: Final = 12
PRODUCE_TV1_MAX: Final = 11
PRODUCE_BY_NAME_MAX: Final = 12

_SUCCESS: Final = frozenset({ErrorCode.none, ErrorCode.duplicate_sequence_number})
_GAP: Final = frozenset({ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id})
_FENCED: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
    }
)
_UNDECIDED: Final = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas_after_append,
        # A leader that is replaced answers it for what it has appended, and the next one may have.
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_server_error,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
    }
)
"""Errors after which the batch may still be in the log."""
_NEVER: Final = frozenset(
    {
        ErrorCode.invalid_record,
        ErrorCode.corrupt_message,
        ErrorCode.unsupported_for_message_format,
        ErrorCode.unsupported_compression_type,
        ErrorCode.invalid_required_acks,
        ErrorCode.unsupported_version,
        ErrorCode.invalid_request,
    }
)
"""Errors that Kafka never returns for these batches."""

_UNASKED: Final = Batch(TopicPartition("", -1), (), [], codec="none", deadline_s=0)

_Topic = tuple[str | None, UUID | None, list[tuple[int, bytearray]]]

Renew = Callable[[], Awaitable[None]]


class _Flight:
    """One Produce request in flight."""

    __slots__ = ("answer", "batches", "connection", "give_up_s", "ids", "is_lost", "version")

    def __init__(self, connection: Connection, version: int, batches: list[Batch]) -> None:
        self.connection = connection
        self.version = version
        self.batches = batches
        self.ids: dict[UUID, str] = {}
        self.answer: asyncio.Future[memoryview] | None = None
        self.give_up_s = 0.0
        self.is_lost = False


class PeerSender:
    """A producer's unacknowledged records.

    `renew` gets a new id or epoch for an idempotent producer. `implicit`: under TV2 a Produce adds
    its partitions to the transaction.
    """

    def __init__(
        self,
        context: ClientContext,
        wire: PeerWire,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        renew: Renew | None = None,
    ) -> None:
        self.context = context
        self.wire = wire
        self.acks = acks
        self.transactional_id = transactional_id
        self.implicit = False
        self.producer_id = -1
        self.epoch = -1
        self.failure: ErrorCode | None = None
        self.request_lost = False
        """Whether a request had no response since `identify`, so that it may still arrive."""
        self._renew = renew
        self._next: dict[TopicPartition, int] = {}
        self._flights: deque[_Flight] = deque()
        self._again: list[Batch] = []
        self._gaps: set[TopicPartition] = set()
        self._orders = 0
        self._attempt = 0
        self.kept_requests: deque[tuple[int, list[_Topic], bool]] = deque(maxlen=_KEPT_COUNT_MAX)
        """To repeat: version, content, and whether each batch is the first of its partition."""
        self._keeps_requests = bool(context.get("keeps_requests", False))

    def identify(self, producer_id: int, epoch: int) -> None:
        """Set the producer id and epoch; sequences begin at 0 again."""
        self.producer_id, self.epoch = producer_id, epoch
        self.failure = None
        self.request_lost = False
        self._next.clear()
        self._gaps.clear()

    def partitions_free_count(self) -> int:
        """Return how many batches may be offered now, for as many partitions."""
        if self._again or len(self._flights) >= IN_FLIGHT_COUNT_MAX:
            return 0
        if self.wire.flavor.one_partition_per_request:
            return IN_FLIGHT_COUNT_MAX - len(self._flights)
        return PARTITIONS_PER_REQUEST_MAX

    def next_sequence(self, at: TopicPartition) -> int:
        """Return the sequence of the next batch for a partition."""
        return self._next.get(at, 0)

    @property
    def is_idle(self) -> bool:
        """Return whether the outcome of all offered batches is known."""
        return not self._again and not self._flights

    # --- in ---------------------------------------------------------------------------

    async def offer(self, batches: Sequence[Batch]) -> None:
        """Send batches, at most one per partition.

        Call it only if `partitions_free_count` allows it.
        """
        for batch in batches:
            batch.order = self._orders
            self._orders += 1
            for value in batch.values:
                self.context.record(Sent, value, batch.at)
        await self._write(list(batches))

    async def attend(self, wait_s: float) -> None:
        """Handle the next response, waiting at most `wait_s` seconds, or recover from a failure."""
        if not self._flights:
            if self._again:
                await self._recover()
            else:
                await self.context.clock.sleep(wait_s * 1000)
            return
        head = self._flights[0]
        now_s = self.context.elapsed_s()
        if head.answer is not None and not head.answer.done() and not head.is_lost:
            left_s = min(wait_s, head.give_up_s - now_s)
            if left_s > 0:
                await asyncio.wait((head.answer,), timeout=left_s)
            if not head.answer.done():
                if self.context.elapsed_s() < head.give_up_s:
                    return
                self._abandon(head.connection)
        self._flights.popleft()
        self._complete(head)

    async def drain(self) -> None:
        """Wait until the outcome of all offered batches is known."""
        while not self.is_idle:
            await self.attend(self.wire.timeout_ms / 1000)

    def drop(self, error: str) -> None:
        """Drop the batches in flight; they are not sent again."""
        for flight in self._flights:
            for batch in flight.batches:
                batch.perhaps_written = True
                self._again.append(batch)
        self._flights.clear()
        for batch in self._again:
            self._fail(batch, error)
        self._again.clear()

    # --- out --------------------------------------------------------------------------

    async def _write(self, batches: list[Batch]) -> None:
        """Send the batches whose leaders are known; the others wait."""
        if any(self.wire.leader(batch.at) is None for batch in batches):
            await self.wire.refresh(batch.at.topic for batch in batches)
        requests: dict[Address, list[Batch]] = {}
        for batch in batches:
            leader = self.wire.leader(batch.at)
            if leader is None:
                batch.error = "no leader known"
                self._put_back(batch)
            else:
                requests.setdefault(leader, []).append(batch)
        for leader, together in requests.items():
            size = 1 if self.wire.flavor.one_partition_per_request else len(together)
            for start in range(0, len(together), size):
                await self._request(leader, together[start : start + size])

    async def _request(self, leader: Address, batches: list[Batch]) -> None:
        try:
            connection = await self.wire.open(leader)
            # A batch after one that has to be sent again, or that is in flight on another
            # connection, would be out of order.
            for batch in [b for b in batches if self._would_overtake(b, connection)]:
                batches.remove(batch)
                self._put_back(batch)
            if not batches:
                return
            version = self.wire.version(connection, ApiKey.PRODUCE, self._version_max(batches))
            flight = _Flight(connection, version, batches)
            self._submit(flight)
        except (LostError, DisconnectedError) as error:
            for batch in batches:
                batch.error = str(error)
                self.wire.topics.pop(batch.at.topic, None)  # It may be gone for good.
                self._put_back(batch)

    def _version_max(self, batches: Sequence[Batch]) -> int | None:
        if self.transactional_id is not None and not self.implicit:
            return PRODUCE_TV1_MAX
        if any(self.wire.topic_id(batch.at.topic) is None for batch in batches):
            return PRODUCE_BY_NAME_MAX
        highest: int | None = self.context.get("produce_version_max", None)
        return highest

    def _submit(self, flight: _Flight) -> None:
        """Encode and send. Raises `DisconnectedError` if the connection is closed (acks=0)."""
        topics: dict[str, list[tuple[int, bytearray]]] = {}
        for batch in flight.batches:
            self._number(batch)
            payload = batch.encode(self.transactional_id is not None)
            topics.setdefault(batch.at.topic, []).append((batch.at.partition, payload))
        encoded: list[_Topic] = []
        for name, partitions in topics.items():
            topic_id = self.wire.topic_id(name)
            if topic_id is not None:
                flight.ids[topic_id] = name
            encoded.append((name, topic_id, partitions))
        if self._keeps_requests:
            copies = [
                (name, topic_id, [(index, bytearray(payload)) for index, payload in partitions])
                for name, topic_id, partitions in encoded
            ]
            is_first = not any(batch.sequence for batch in flight.batches)
            self.kept_requests.append((flight.version, copies, is_first))
        if self.producer_id >= 0 and self.wire.delays_request():
            late = partial(self._send, flight.connection, flight.version, encoded)
            self.wire.deliver_late(flight.connection, late)
            # Set at once, so that no new batch overtakes it on another connection.
            self._lose(flight.batches, "on its way")
            return
        flight.answer = self._send(flight.connection, flight.version, encoded)
        patience_s = self.wire.produce_patience_ms() / 1000
        flight.give_up_s = self.context.elapsed_s() + patience_s
        self._flights.append(flight)

    def _send(
        self, connection: Connection, version: int, topics: list[_Topic]
    ) -> asyncio.Future[memoryview] | None:
        """Write one request. With acks=0 there is no response."""
        buffers = encode_produce_request(
            version,
            connection.next_correlation_id(),
            self.context.name,
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=int(self.wire.timeout_ms),
            topics=topics,
        )
        if self.acks == 0:
            connection.submit_without_answer(buffers)
            return None
        answer = connection.submit(ApiKey.PRODUCE, version, buffers)
        answer.add_done_callback(look)
        return answer

    def _number(self, batch: Batch) -> None:
        """Assign a batch its sequence, unless it has one (INV-2)."""
        if self.producer_id < 0 or batch.sequence >= 0:
            return
        batch.producer_id, batch.epoch = self.producer_id, self.epoch
        batch.sequence = self._next.get(batch.at, 0)
        self._next[batch.at] = (batch.sequence + len(batch.values)) % SEQUENCE_MODULUS

    # --- answers ----------------------------------------------------------------------

    def _abandon(self, connection: Connection) -> None:
        """Stop waiting for the responses of this connection."""
        for flight in self._flights:
            if flight.connection is connection and not (flight.answer and flight.answer.done()):
                flight.is_lost = True
        self.wire.forsake(connection)

    def _complete(self, flight: _Flight) -> None:
        if flight.is_lost:
            self._lose(flight.batches, "no answer")
            return
        if flight.answer is None:
            for batch in flight.batches:
                self._ack(batch, -1)
            return
        if flight.answer.exception() is not None:
            self._lose(flight.batches, "no answer")
            return
        try:
            answer = parse_produce_response(flight.answer.result(), flight.version, 0)
        except ProtocolError as error:
            self.wire.broken(f"Produce v{flight.version}: {error}")
            self._abandon(flight.connection)
            self._lose(flight.batches, "malformed answer")
            return
        waiting = {batch.at: batch for batch in flight.batches}
        for topic in answer.topics:
            name = topic.name
            if name is None:
                name = "" if topic.topic_id is None else flight.ids.get(topic.topic_id, "")
            for partition in topic.partitions:
                batch = waiting.pop(TopicPartition(name, partition.index), _UNASKED)
                if batch is _UNASKED:
                    self.wire.broken(f"Produce answered {name}-{partition.index}, never asked")
                else:
                    self._answered(batch, partition)
        if waiting:
            self.wire.broken(f"Produce answered nothing for {', '.join(map(str, waiting))}")
            self._abandon(flight.connection)
            self._lose(list(waiting.values()), "left out of the answer")

    def _lose(self, batches: Sequence[Batch], why: str) -> None:
        self.request_lost = True
        self.wire.lost_count += 1
        for batch in batches:
            batch.perhaps_written = True
            batch.error = why
            if self.producer_id < 0:
                self._fail(batch, why)
            else:
                self._put_back(batch)

    def _answered(self, batch: Batch, answer: ProducePartitionResponse) -> None:
        code = ErrorCode(answer.error)
        if code in _SUCCESS:
            self._attempt = 0
            self._ack(batch, answer.base_offset if code is ErrorCode.none else -1)
            return
        batch.error = code.name
        if code in _NEVER:
            self.context.stuck(f"Produce to {batch.at} answered {code.name}")
        if code in _UNDECIDED:
            batch.perhaps_written = True
        is_passing = code.retriable or self.context.may_lack(code)
        if self.producer_id < 0:
            self._fail(batch, code.name)
        elif is_passing or (code in _GAP and self._is_behind(batch)):
            if code is not ErrorCode.concurrent_transactions:
                self.wire.topics.pop(batch.at.topic, None)
            self._put_back(batch)
        elif self.transactional_id is not None or code in _FENCED:
            self.failure = self.failure or code
            self._fail(batch, code.name)
        elif code in _GAP:
            self._desynchronized(batch, code)
            self._gaps.add(batch.at)
            self._put_back(batch)
        else:
            self._gaps.add(batch.at)
            self._fail(batch, code.name)

    def _desynchronized(self, batch: Batch, code: ErrorCode) -> None:
        """All before this batch was acknowledged, and yet the broker expects another sequence.

        librdkafka ends with a fatal error here. The cause is a broker that lost records, or a topic
        that was created again; where neither may happen, it is the broker's defect (INV-2).
        """
        if not self.context.get("may_desynchronize", False):
            self.context.stuck(
                f"{batch.at}: {code.name} for sequence {batch.sequence} of producer "
                f"{batch.producer_id}, epoch {batch.epoch}, all before it being acknowledged"
            )

    def _is_behind(self, batch: Batch) -> bool:
        """Return whether an earlier batch of the same partition has to be sent again."""
        return any(b.at == batch.at and b.order < batch.order for b in self._again)

    def _would_overtake(self, batch: Batch, connection: Connection) -> bool:
        return self._is_behind(batch) or any(
            other.at == batch.at
            for flight in self._flights
            if flight.connection is not connection
            for other in flight.batches
        )

    def _put_back(self, batch: Batch) -> None:
        self._again.append(batch)
        self._again.sort(key=lambda b: b.order)

    def _ack(self, batch: Batch, base_offset: int) -> None:
        batch.is_acked = True
        for index, value in enumerate(batch.values):
            offset = base_offset + index if base_offset >= 0 else -1
            self.context.record(Acked, value, batch.at, offset, self.acks)

    def _fail(self, batch: Batch, error: str) -> None:
        for value in batch.values:
            self.context.record(SendFailed, value, error, not batch.perhaps_written)

    # --- mending ----------------------------------------------------------------------

    async def _recover(self) -> None:
        """With no request in flight, send failed batches again, or give them up."""
        if self.failure is not None:
            self.drop(f"behind {self.failure.name}")
            return
        await self.context.back_off(self._attempt)
        self._attempt += 1
        self._expire()
        ready = [batch for batch in self._again if batch.at not in self._gaps]
        if not ready:
            if self._gaps:
                await self._bump()
            return
        self._again = [batch for batch in self._again if batch.at in self._gaps]
        while ready:
            # A request carries one batch of a partition.
            lanes: set[TopicPartition] = set()
            now: list[Batch] = []
            later: list[Batch] = []
            for batch in ready:
                (later if batch.at in lanes else now).append(batch)
                lanes.add(batch.at)
            await self._write(now)
            ready = later

    def _expire(self) -> None:
        """Give up the batches whose time is over. Later ones get a new epoch."""
        now_s = self.context.elapsed_s()
        for batch in [b for b in self._again if b.deadline_s <= now_s]:
            if self._is_behind(batch):
                continue
            self._again.remove(batch)
            self._fail(batch, f"out of time: {batch.error}")
            if self.transactional_id is not None:
                self.failure = self.failure or ErrorCode.request_timed_out
            elif batch.sequence >= 0:
                self._gaps.add(batch.at)

    async def _bump(self) -> None:
        """Continue with a new epoch or producer id: a partition's sequences have a gap.

        Only batches that cannot have been written are sent again with it.
        """
        for batch in self._again:
            if batch.perhaps_written:
                self._fail(batch, batch.error)
        self._again = [batch for batch in self._again if not batch.perhaps_written]
        for batch in self._again:
            batch.sequence = -1
        if self._renew is not None:
            await self._renew()

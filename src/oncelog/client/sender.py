"""The sender: the one task that carries a producer's batches to their leaders.

It does what `ProducerMachine` decides. Answers come back as callbacks, so several requests per
broker are in flight without a task for each. What must happen first (a producer id, metadata,
AddPartitionsToTxn) it asks of its `SenderDelegate`, which the producer implements.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ClientError,
    ConnectionLostError,
    FatalError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.machines.producer import BatchEnd, ProducerBatch, ProducerMachine, Send
from oncelog.client.requests import produce_version_max
from oncelog.client.unread import UnreadFailures
from oncelog.client.values import RecordMetadata
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import WritableBuffer
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.runtime.framed import DisconnectedError

__all__ = ["Sender", "SenderDelegate", "Token"]

"""From Produce 12 on a batch adds its partition to the transaction by itself (KIP-890)."""

_KEEPS_METADATA = frozenset(
    {
        ErrorCode.none,
        ErrorCode.concurrent_transactions,
        ErrorCode.corrupt_message,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.throttling_quota_exceeded,
    }
)


class Token:
    """One `send`: the future to resolve, and the record's own timestamp."""

    __slots__ = ("future", "timestamp_ms")

    def __init__(self, future: "asyncio.Future[RecordMetadata]", timestamp_ms: int) -> None:
        self.future = future
        self.timestamp_ms = timestamp_ms


class SenderDelegate(Protocol):
    """The producer's decisions for its sender."""

    async def identify(self) -> None:
        """Set the machine's producer id and epoch; called when it needs them.

        Raises `ClientError`.
        """
        ...

    async def admit(self, partitions: Sequence[TopicPartition]) -> None:
        """Make sure that the partitions may be produced to (TV1: AddPartitionsToTxn).

        Raises `ClientError`.
        """
        ...

    def is_admitted(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch for the partition may be sent now."""
        ...

    def sending(self) -> bool:
        """Called before a produce request is sent.

        True when it may add its partitions to the transaction itself (TV2).
        """
        ...

    def batch_failed(self, error: ClientError) -> None:
        """A batch failed for good."""
        ...

    def request_lost(self) -> None:
        """A produce request got no answer and may still take effect."""
        ...


class Sender:
    """See the module's docstring. `acks` is 0, 1 or -1."""

    def __init__(
        self,
        cluster: Cluster,
        machine: ProducerMachine,
        delegate: SenderDelegate,
        *,
        acks: int,
        transactional_id: str | None,
        before_pass: Callable[[float], None],
        reject_topic: Callable[[str, ClientError], None],
        wanted_topics: Callable[[], set[str]],
        unread: UnreadFailures,
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._delegate = delegate
        self._acks = acks
        self._transactional_id = transactional_id
        self._before_pass = before_pass
        self._reject_topic = reject_topic
        self._wanted_topics = wanted_topics
        self._unread = unread
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._refresh_failures = 0
        self._refresh_at_ms = 0.0
        self._retry_at_ms: float | None = None
        self._looked_at_ms = 0.0
        """As of when the last pass chose the batches that it prepared to send."""
        self._task: asyncio.Task[None] | None = None
        self._held_up: dict[int, asyncio.Task[None]] = {}
        """Brokers to which a request waits for its connection, or for space in its buffer.

        They get no other request meanwhile, and those to other brokers do not wait for it.
        """
        self.failure: FatalError | None = None
        """Set when the sender's task failed: no more requests are sent."""

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="oncelog-sender")

    async def stop(self, error: ClientError) -> None:
        """Stop the task; what is not resolved fails with `error`."""
        if self._task is not None:
            tasks = [self._task, *self._held_up.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self.settle(self._machine.end(error))

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds.

        It is looked at whenever a batch was resolved or the queue changed.

        Raises `failure` once there is one.
        """
        self.wake()
        while not condition():
            if self.failure is not None:
                raise self.failure
            self._changed.clear()
            await self._changed.wait()

    def settle(self, outcomes: Sequence[BatchEnd]) -> None:
        """Resolve the futures of finished batches.

        One failed batch fails its transaction, so the queued ones fail too.
        """
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed and failed[0].error is not None and self._transactional_id is not None:
            failed += self._machine.abandon(failed[0].error)
        for outcome in outcomes:
            if outcome.error is None:
                _acknowledge(outcome)
        for outcome in failed:
            if outcome.error is not None:
                self._delegate.batch_failed(outcome.error)
                self._fail(outcome, outcome.error)
        self._changed.set()

    # --- the task ---------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                await self._pass()
                self._changed.set()
                await self._sleep()
        except Exception as error:  # noqa: BLE001 - a task boundary: users wait for their futures
            self._break(error)

    def _break(self, error: Exception) -> None:
        text = f"the sender failed: {type(error).__name__}: {error}"
        self.failure = FatalError(ErrorCode.unknown_server_error, text)
        self.failure.__cause__ = error
        self._delegate.batch_failed(self.failure)
        self.settle(self._machine.end(self.failure))

    async def _pass(self) -> None:
        now_ms = self._looked_at_ms = self._cluster.clock.monotonic_ms()
        self._retry_at_ms = None
        self._before_pass(now_ms)
        self.settle(self._machine.expire(now_ms))
        waiting = self._machine.waiting_partitions(now_ms)
        try:
            is_idle = self._machine.is_idle and not self._wanted_topics()
            if self._machine.needs_identity and not is_idle:
                await self._delegate.identify()
                now_ms = self._looked_at_ms = self._cluster.clock.monotonic_ms()
                waiting = self._machine.waiting_partitions(now_ms)
            has_refreshed = await self._refresh(waiting, now_ms)
            self._before_pass(now_ms)
            if has_refreshed:
                # Records that waited for the metadata have become batches.
                waiting = self._machine.waiting_partitions(now_ms)
            await self._delegate.admit([tp for tp in waiting if not self._delegate.is_admitted(tp)])
        except RetriableError:
            self._retry_at_ms = now_ms + self._cluster.backoff.delay_ms(0)
        except ClientError as error:
            self._give_up(error)
            return
        self._send_all()

    def _send_all(self) -> None:
        while sends := self._machine.drain(
            self._cluster.clock.monotonic_ms(), self._sendable_leader
        ):
            for send in sends:
                self._send(send)

    def _give_up(self, error: ClientError) -> None:
        self._delegate.batch_failed(error)
        for topic in self._wanted_topics():
            self._reject_topic(topic, error)
        self.settle(self._machine.abandon(error))
        if self._transactional_id is None and self._machine.is_idle:
            self._machine.resume()

    async def _refresh(self, waiting: Sequence[TopicPartition], now_ms: float) -> bool:
        """Learn the leaders that are missing; whether the cluster was asked."""
        metadata = self._cluster.metadata
        topics = {tp.topic for tp in waiting if metadata.usable_leader(tp) is None}
        topics |= self._wanted_topics()
        if not topics:
            self._refresh_failures = 0
            return False
        if now_ms < self._refresh_at_ms:
            self._retry_at_ms = self._refresh_at_ms
            return False
        self._refresh_at_ms = now_ms + self._cluster.backoff.delay_ms(self._refresh_failures)
        self._refresh_failures += 1
        self._retry_at_ms = self._refresh_at_ms
        for topic, error in (await self._cluster.refresh(topics, create=True)).items():
            if self._transactional_id is not None:
                # As in Kafka it costs the transaction, not the producer.
                error = classify(error.code, Operation.TRANSACTIONAL_PRODUCE, error.message)
            self._reject_topic(topic, error)
            self.settle(self._machine.reject(topic, error))
        return True

    async def _sleep(self) -> None:
        # What has become due while the pass waited for the cluster was not prepared by it.
        deadlines = [self._machine.next_deadline_ms(self._looked_at_ms), self._retry_at_ms]
        now_ms = self._cluster.clock.monotonic_ms()
        due = [deadline for deadline in deadlines if deadline is not None]
        if not due:
            await self._wake.wait()
            return
        handle = asyncio.get_running_loop().call_later(
            max(0.0, min(due) - now_ms) / 1000 + 0.0005, self._wake.set
        )
        try:
            await self._wake.wait()
        finally:
            handle.cancel()

    def _sendable_leader(self, topic_partition: TopicPartition) -> int | None:
        if not self._delegate.is_admitted(topic_partition):
            return None
        leader = self._cluster.metadata.usable_leader(topic_partition)
        return None if leader in self._held_up else leader

    # --- one request ------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        connection = self._cluster.open_connection(send.node_id)
        if connection is None or not connection.is_writable:
            waiting = self._send_later(send)
            task = asyncio.get_running_loop().create_task(waiting, name="oncelog-sender-waits")
            self._held_up[send.node_id] = task
            return
        self._submit_or_lose(connection, send)

    async def _send_later(self, send: Send) -> None:
        try:
            await self._connected(send)
        except Exception as error:  # noqa: BLE001 - a task boundary: users wait for their futures
            self._break(error)
        finally:
            del self._held_up[send.node_id]
            self.wake()

    async def _connected(self, send: Send) -> None:
        try:
            connection = await self._cluster.connection(send.node_id)
            await connection.writable()
        except (ConnectionLostError, DisconnectedError):
            self._lost(send)
        except FatalError as error:
            # The broker refused the connection; no request was sent.
            self._give_up(error)
            self._lost(send)
        else:
            self._submit_or_lose(connection, send)

    def _submit_or_lose(self, connection: Connection, send: Send) -> None:
        try:
            self._submit(connection, send)
        except DisconnectedError:
            self._lost(send)
        except ProtocolError as error:
            self._give_up(FatalError(error.code, error.message))
            self._lost(send)

    def _submit(self, connection: Connection, send: Send) -> None:
        ids = {b.topic_partition.topic: self._topic_id(b) for b in send.batches}
        version = connection.version_for(ApiKey.PRODUCE, self._version_max(ids))
        topics: dict[str, list[tuple[int, WritableBuffer]]] = {}
        for batch in send.batches:
            topic, index = batch.topic_partition
            topics.setdefault(topic, []).append((index, batch.payload or bytearray()))
        buffers = encode_produce_request(
            version,
            connection.next_correlation_id(),
            connection.client_id,
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.request_timeout_ms),
            topics=[(name, ids[name], partitions) for name, partitions in topics.items()],
        )
        if self._acks == 0:
            connection.submit_without_answer(buffers)
            for batch in send.batches:
                self._resolve(batch, ErrorCode.none)
            return
        answer = connection.submit(ApiKey.PRODUCE, version, buffers)
        answer.add_done_callback(partial(self._answer_received, send, connection, version, ids))

    def _topic_id(self, batch: ProducerBatch) -> UUID | None:
        return self._cluster.metadata.topic_id(batch.topic_partition.topic)

    def _version_max(self, ids: dict[str, UUID | None]) -> int | None:
        implicit = self._delegate.sending()
        is_tv1 = self._transactional_id is not None and not implicit
        return produce_version_max(ids.values(), is_tv1=is_tv1)

    def _answer_received(
        self,
        send: Send,
        connection: Connection,
        version: int,
        ids: dict[str, UUID | None],
        answer: "asyncio.Future[memoryview]",
    ) -> None:
        try:
            self._answered(send, connection, version, ids, answer)
        except Exception as error:  # noqa: BLE001 - a callback is a task boundary: users wait for their futures
            self._break(error)

    def _answered(
        self,
        send: Send,
        connection: Connection,
        version: int,
        ids: dict[str, UUID | None],
        answer: "asyncio.Future[memoryview]",
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._lost(send)
            return
        try:
            response = parse_produce_response(answer.result(), version, 0)
        except ProtocolError:
            self._lost(send)
            return
        connection.throttled(response.throttle_ms)
        names = {topic_id: name for name, topic_id in ids.items()}
        batches = {batch.topic_partition: batch for batch in send.batches}
        for topic in response.topics:
            name = names.get(topic.topic_id) if topic.name is None else topic.name
            for p in topic.partitions:
                batch = batches.pop(TopicPartition(name or "", p.index), None)
                if batch is not None:
                    if p.record_errors and self._transactional_id is None:
                        self._fail_records(batch, ErrorCode(p.error), dict(p.record_errors))
                    self._resolve(
                        batch,
                        ErrorCode(p.error),
                        base_offset=p.base_offset,
                        log_append_time_ms=p.log_append_time_ms,
                        message=p.error_message or "",
                    )
        for batch in batches.values():
            self._resolve(batch, ErrorCode.network_exception)
        self.wake()

    def _resolve(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        message: str = "",
    ) -> None:
        if code not in _KEEPS_METADATA:
            self._cluster.metadata.mark_stale(batch.topic_partition.topic)
        outcomes = self._machine.answered(
            batch,
            code,
            self._cluster.clock.monotonic_ms(),
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            message=message,
        )
        self.settle(outcomes)

    def _lost(self, send: Send) -> None:
        self._delegate.request_lost()
        for batch in send.batches:
            self._resolve(batch, ErrorCode.network_exception)
        self.wake()

    def _fail_records(
        self, batch: ProducerBatch, code: ErrorCode, faults: dict[int, str | None]
    ) -> None:
        """Fail the futures of a refused batch, with the error of each record at fault (KIP-467).

        The other records were not written either, and may be sent again.
        """
        if code.retriable:
            return
        for index, token in enumerate(batch.tokens):
            if isinstance(token, Token) and not token.future.done():
                error: ClientError
                if index in faults:
                    error = classify(code, Operation.PRODUCE, faults[index] or "")
                else:
                    message = f"another record of its batch was refused with {code.name.upper()}"
                    error = RetriableError(ErrorCode.operation_not_attempted, message)
                self._unread.fail(token.future, error)

    def _fail(self, outcome: BatchEnd, error: ClientError) -> None:
        for token in outcome.batch.tokens:
            if isinstance(token, Token) and not token.future.done():
                self._unread.fail(token.future, error)


def _acknowledge(outcome: BatchEnd) -> None:
    batch = outcome.batch
    topic, partition = batch.topic_partition
    base_offset, append_time_ms = outcome.base_offset, outcome.log_append_time_ms
    for index, token in enumerate(batch.tokens):
        if isinstance(token, Token) and not token.future.done():
            offset = base_offset + index if base_offset >= 0 else -1
            time_ms = append_time_ms if append_time_ms >= 0 else token.timestamp_ms
            token.future.set_result(RecordMetadata(topic, partition, offset, time_ms))

"""Producer: records to topics, idempotent by default, transactional when it has a transactional id.

A shell around three parts: `ProducerMachine` (batches and sequences), `TransactionMachine` (what is
allowed when), and the `Sender` (the task that talks to leaders). It keeps INV-2 and INV-5 from the
client's side: no sequence is used twice for different records.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    AbortableError,
    ClientError,
    IllegalStateError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.hints import AsyncHints
from oncelog.client.machines.producer import ProducerMachine, ProducerSettings
from oncelog.client.machines.transaction import State, TransactionMachine
from oncelog.client.partitioners import Partitioner, find_partitioner
from oncelog.client.payload import checked_batch, checked_record
from oncelog.client.placement import Placement
from oncelog.client.reliability import reliability
from oncelog.client.sender import Sender, Token
from oncelog.client.settings import ConnectionOptions, ProducerConfig, Role, kafka_names
from oncelog.client.transactions import TransactionCalls
from oncelog.client.unread import UnreadFailures
from oncelog.client.values import GroupOrMember, OffsetAndMetadata, RecordMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import (
    CLIENT_BUFFER_SIZE_MAX,
    COORDINATOR_RETRY_TIMEOUT_MS,
    INT32_MAX,
)
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import Buffer

__all__ = ["Producer"]

Delivery = asyncio.Future[RecordMetadata]


class Producer(AsyncHints, role=Role.PRODUCER):
    """Sends records to Kafka, idempotently or in transactions.

    ``async with Producer("localhost:9092") as producer: await producer.send("topic", b"value")``.
    With `transactional_id` every `send` belongs to a transaction: call `init_transactions` once,
    then `begin_transaction`, sends, `commit_transaction` or `abort_transaction`, over and over.
    After an `AbortableError` abort and begin again; after a `FatalError` close the producer.

    acks: "all" (default), 1 or 0. Less than "all", or retries=0, disables idempotence; with
    ``enable_idempotence=True`` or a transactional id it is refused. partitioner: see
    `oncelog.client.partitioners`. linger_ms: how long a record waits for others to share its batch.
    batch_size: the size of a full batch in bytes. compression_type: none, gzip, snappy, lz4 or
    zstd. transaction_timeout_ms: after this time the coordinator aborts an open transaction.
    delivery_timeout_ms: after this time without an acknowledgement a record fails with
    `DeliveryTimeoutError`. buffer_memory: the bytes that may be queued; `send` beyond it raises
    `RetriableError`, `wait_for_memory` waits. max_block_ms: how long a call to the transaction
    coordinator is retried before it raises `RetriableError`. Further options go to the connection
    layer: client_id, request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms,
    reconnect_backoff_ms, reconnect_backoff_max_ms, connection_setup_timeout_ms, first_contact_ms
    (how long a first broker is tried for; None: as each call), unknown_topic_ms (how long an
    unknown topic is asked for). `settings`: Kafka's names, as ``{"security.protocol": "SSL"}``.

    Source: KIP-98, KIP-360, KIP-890, and Kafka's producer configs for the names.
    """

    @kafka_names(Role.PRODUCER)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        settings: ProducerConfig | None = None,
        *,
        transactional_id: str | None = None,
        acks: str | int = "all",
        linger_ms: float = 0,
        batch_size: int = 16384,
        compression_type: str = "none",
        transaction_timeout_ms: int = 60_000,
        delivery_timeout_ms: float = 120_000,
        enable_idempotence: bool | None = None,
        retries: int = INT32_MAX,
        max_in_flight_requests_per_connection: int = 5,
        partitioner: str | Partitioner | None = None,
        partitioner_ignore_keys: bool = False,
        buffer_memory: int = CLIENT_BUFFER_SIZE_MAX,
        max_block_ms: float = COORDINATOR_RETRY_TIMEOUT_MS,
        **cluster_options: Unpack[ConnectionOptions],
    ) -> None:
        pipelined = max_in_flight_requests_per_connection
        kept = reliability(acks, enable_idempotence, retries, pipelined, transactional_id)
        self._cluster = Cluster(bootstrap_servers, **cluster_options)
        self._transactional_id = transactional_id
        self._machine = ProducerMachine(
            ProducerSettings(
                idempotent=kept.idempotent,
                retries=retries,
                transactional=transactional_id is not None,
                retry_delay_ms=self._cluster.backoff.delay_ms,
                batch_size=batch_size,
                linger_ms=linger_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                codec=compression_type,
            )
        )
        self._transaction = TransactionMachine()
        self._calls = TransactionCalls(
            self._cluster,
            transactional_id or "",
            transaction_timeout_ms=transaction_timeout_ms,
            timeout_ms=max_block_ms,
        )
        self._acks, self._buffer_memory = kept.acks, buffer_memory
        self._delivery_timeout_ms = delivery_timeout_ms
        self._sender: Sender | None = None
        self._unread = UnreadFailures(is_transactional=transactional_id is not None)
        self._attach_to: tuple[int, int] | None = None
        metadata = self._cluster.metadata
        self._placement = Placement(
            self._machine,
            metadata.partition_count,
            self._fail_token,
            find_partitioner(partitioner),
            ignore_keys=partitioner_ignore_keys,
        )
        # To add to a transaction and to end it exclude each other: added later opens the next one.
        self._coordinating = asyncio.Lock()

    @classmethod
    def attach(
        cls,
        bootstrap_servers: str | Sequence[str],
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        **options: Any,
    ) -> "Producer":
        """A producer inside a transaction that another process ends (`TransactionDriver`).

        It may send, flush and close. Its sequences start at 0, so each partition may be written by
        **one** attached producer per (producer id, epoch): a second one would have its batches
        dropped as duplicates of the first one's (INV-2), unless they take turns and `continue_at`
        the other's end. Under TV1 it adds its partitions to the transaction itself. Options are
        those of `Producer`.
        """
        producer = cls(bootstrap_servers, transactional_id=transactional_id, **options)
        producer._attach_to = (producer_id, producer_epoch)
        return producer

    def reattach(self, producer_id: int, producer_epoch: int) -> None:
        """Continue in the next transaction, once all earlier batches are acknowledged."""
        self._transaction = TransactionMachine()
        self._transaction.attach(producer_id, producer_epoch, self._calls.adopt_version())
        self._machine.identify(producer_id, producer_epoch)

    def continue_at(self, topic: str, partition: int, sequence: int) -> None:
        """Give the next batch this sequence, once all before it are acknowledged (INV-2)."""
        self._machine.continue_at(TopicPartition(topic, partition), sequence)

    # --- life -------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect. Raises `ConnectionLostError` if no broker answers for `first_contact_ms`."""
        if self._sender is not None:
            return
        await self._cluster.connect(self._delivery_timeout_ms)
        if self._attach_to is not None:
            self.reattach(*self._attach_to)
        self._sender = Sender(
            self._cluster,
            self._machine,
            self,
            acks=self._acks,
            transactional_id=self._transactional_id,
            before_pass=self._place,
            reject_topic=self._placement.reject_topic,
            wanted_topics=self._placement.topics,
            unread=self._unread,
        )
        self._sender.start()

    async def close(self) -> None:
        """Close at once: what is not acknowledged fails, an open transaction stays open.

        Call `flush` or end it before.
        """
        if self._sender is not None:
            sender, self._sender = self._sender, None
            await sender.stop(RetriableError(ErrorCode.network_exception, "producer closed"))
            self._placement.fail_all("producer closed")
        await self._cluster.close()

    async def __aenter__(self) -> "Producer":
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        """Flush (or abort an unfinished transaction), then close.

        Raises `UndeliveredError` for failed records whose futures were not awaited.
        """
        try:
            if self._transactional_id is None:
                if exc_type is None:
                    await self.flush()
            elif not self._transaction.attached and self._transaction.state in (
                State.IN_TRANSACTION,
                State.ABORTABLE,
            ):
                await self.abort_transaction()
        finally:
            await self.close()
        if exc_type is None and (error := self._unread.take()) is not None:
            raise error

    @property
    def producer_id(self) -> int:
        """Current producer id, -1 before the first."""
        return self._machine.producer_id

    @property
    def producer_epoch(self) -> int:
        """Current producer epoch, -1 before the first."""
        return self._machine.producer_epoch

    # --- sending ----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; the future yields its `RecordMetadata` when it is acknowledged.

        Without `partition` the partitioner decides: by the key (murmur2, as Java's); without a key
        batches rotate over the partitions. Raises at once what `checked_record` finds, outside a
        transaction (transactional producers), and `RetriableError` when `buffer_memory` is full.
        The future raises `AbortableError` or `FatalError` when the record failed for good.
        """
        sender = self._check_may_send()
        created_ms = self._cluster.clock.monotonic_ms()
        time_ms = self._cluster.clock.now_ms() if timestamp_ms is None else timestamp_ms
        record = checked_record(topic, partition, key, value, headers, time_ms)
        token = Token(asyncio.get_running_loop().create_future(), time_ms)
        self._placement.put(topic, partition, record, token, created_ms)
        sender.wake()
        return token.future

    def send_batch(
        self, topic: str, partition: int, records_bytes: Buffer, record_count: int
    ) -> Delivery:
        """Queue one encoded record batch (format v2, offsets from 0).

        The future yields the metadata of its first record. Producer id, epoch, sequence, the
        transactional bit and the CRC are written into it when it is sent: in place, where it can be
        written to. Raises `ValueError` unless it is exactly one batch of `record_count` records.
        """
        sender = self._check_may_send()
        header, payload = checked_batch(records_bytes, record_count)
        token = Token(asyncio.get_running_loop().create_future(), header.max_timestamp)
        now_ms = self._cluster.clock.monotonic_ms()
        self._machine.append_batch(
            TopicPartition(topic, partition), payload, record_count, token, now_ms
        )
        sender.wake()
        return token.future

    async def wait_for_memory(self) -> None:
        """Wait until `buffer_memory` is no longer used up."""
        sender = self._require_sender()
        await sender.until(lambda: self._held_size < self._buffer_memory)

    async def flush(self) -> None:
        """Send what is queued and wait until it is resolved; failures show in the futures."""
        sender = self._require_sender()
        await sender.until(lambda: not self._placement.topics())
        serial = self._machine.last_serial
        self._machine.seal()
        await sender.until(lambda: self._machine.is_resolved_up_to(serial))

    # --- transactions -----------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Fence older producers with this transactional id, end what they left (INV-5)."""
        self._require_transactional()
        if self._transaction.attached:
            raise IllegalStateError("an attached producer is initialized already")
        await self.start()
        producer_id, epoch = await self._calls.init_producer_id()
        self._transaction.initialized(producer_id, epoch, self._calls.version)
        self._machine.identify(producer_id, epoch)

    async def begin_transaction(self) -> None:
        """Begin a transaction.

        No request is sent, unless the last transaction left its epoch in doubt (TV1): then the next
        epoch is requested first, with errors as in `init_transactions`.
        """
        self._require_transactional()
        transaction = self._transaction
        in_doubt = transaction.stragglers_possible or self._machine.sequences_broken
        if in_doubt and transaction.state is State.READY:
            await self._take_next_epoch()
        transaction.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupOrMember
    ) -> None:
        """Commit consumed offsets, of **next** records, as part of the transaction (INV-6).

        `group`: the `group_metadata()` of the consumer, so that they are refused once the group has
        given its partitions away (KIP-447); or the group's name, unchecked.
        """
        group_id = requests.as_member(group).group_id
        self._require_transactional()
        self._transaction.check_may_send()
        producer_id, epoch = self._transaction.producer_id, self._transaction.producer_epoch
        try:
            async with self._coordinating:
                if self._transaction.group_to_add(group_id):
                    self._transaction.call_begins()
                    await self._calls.add_offsets(producer_id, epoch, group_id)
                self._transaction.group_added(group_id)
                await self._calls.txn_offset_commit(producer_id, epoch, group, offsets)
        except ClientError as error:
            self._transaction.failed(error)
            raise

    async def commit_transaction(self) -> None:
        """Wait for every acknowledgement, then commit.

        Raises `AbortableError` when a record or an offset failed (abort then), `FencedError` when
        another instance took over, and `RetriableError` when the coordinator did not answer in
        time: the outcome is unknown, and calling it again settles it.
        """
        self._require_transactional()
        self._transaction.ending(commit=True)
        await self.flush()
        if self._transaction.state is not State.COMMITTING:
            raise self._transaction.refusal("commit")
        await self._end(commit=True)

    async def abort_transaction(self) -> None:
        """Drop what is queued, wait for what is in flight, abort.

        The producer can begin again afterwards.
        """
        self._require_transactional()
        self._transaction.ending(commit=False)
        sender = self._require_sender()
        dropped = AbortableError(ErrorCode.transaction_abortable, "the transaction was aborted")
        sender.settle(self._machine.abandon(dropped))
        self._placement.fail_all("the transaction was aborted")
        await sender.until(lambda: self._machine.is_idle)
        await self._end(commit=False)

    async def _end(self, commit: bool) -> None:
        transaction = self._transaction
        async with self._coordinating:
            producer_id, epoch = -1, -1
            try:
                if transaction.end_must_be_sent:
                    producer_id, epoch = await self._calls.end(
                        transaction.producer_id,
                        transaction.producer_epoch,
                        commit,
                        transaction.request_lost,
                    )
            except RetriableError:
                raise
            except ClientError as error:
                transaction.failed(error)
                raise
            # The outcome is known from here on; what the next transaction needs is its own matter.
            if transaction.ended(producer_id, epoch):
                self._machine.identify(producer_id, epoch)
            elif not self._machine.sequences_broken:
                self._machine.resume()

    async def _take_next_epoch(self) -> None:
        """TV1: fence our stragglers and restart sequences before the next transaction (KIP-360)."""
        transaction = self._transaction
        try:
            producer = await self._calls.init_producer_id(
                transaction.producer_id, transaction.producer_epoch
            )
        except ClientError as error:
            transaction.failed(error)
            raise
        transaction.initialized(*producer, self._calls.version)
        self._machine.identify(*producer)

    # --- SenderDelegate ---------------------------------------------------------------

    async def identify(self) -> None:
        """Take a producer id, for an idempotent producer without transactions."""
        if self._transactional_id is not None:
            return
        request = requests.init_producer_id_request(None, INT32_MAX, -1, -1)
        response = await self._cluster.request_any(ApiKey.INIT_PRODUCER_ID, request)
        if response.error_code is not ErrorCode.none:
            raise classify(response.error_code, Operation.OTHER, "InitProducerId")
        self._machine.identify(int(response.producer_id), int(response.producer_epoch))

    async def admit(self, partitions: Sequence[TopicPartition]) -> None:
        """Add the partitions to the transaction (TV1)."""
        if self._transactional_id is None or not partitions:
            return
        async with self._coordinating:
            transaction = self._transaction
            missing = transaction.partitions_to_add(partitions)
            if not missing or transaction.state not in (State.IN_TRANSACTION, State.COMMITTING):
                return
            transaction.call_begins()
            await self._calls.add_partitions(
                transaction.producer_id,
                transaction.producer_epoch,
                missing,
                transaction.request_lost,
            )
            transaction.partitions_added(missing)

    def is_admitted(self, topic_partition: TopicPartition) -> bool:
        """Whether the transaction holds the partition, or will by the produce itself (TV2)."""
        if self._transactional_id is None:
            return True
        return self._transaction.is_added(topic_partition)

    def sending(self) -> bool:
        """Record that a produce is about to be sent: the coordinator must be told of the end.

        Returns whether the produce may use TV2.
        """
        if self._transactional_id is not None:
            self._transaction.call_begins()
        return self._transaction.version >= 2

    def batch_failed(self, error: ClientError) -> None:
        """A failed batch loses its transaction."""
        if self._transactional_id is not None:
            self._transaction.failed(error)

    def request_lost(self) -> None:
        """A produce without an answer may still arrive."""
        if self._transactional_id is not None:
            self._transaction.request_lost()

    # --- placing records --------------------------------------------------------------

    def _place(self, now_ms: float) -> None:
        """Place the records that waited for metadata; fail those that waited too long."""
        self._placement.place()
        if self._transaction.error is not None:
            self._placement.fail_all(f"transaction failed: {self._transaction.error}")
        asked_since_ms = now_ms - self._cluster.unknown.patience_ms
        self._placement.fail_unknown(self._cluster.metadata.missing, asked_since_ms)
        self._placement.fail_created_by(now_ms - self._delivery_timeout_ms, "topic is unknown")

    def _fail_token(self, token: Token, error: ClientError) -> None:
        self.batch_failed(error)
        if not token.future.done():
            self._unread.fail(token.future, error)

    # --- checks -----------------------------------------------------------------------

    def _check_may_send(self) -> Sender:
        sender = self._require_sender()
        if self._transactional_id is not None:
            self._transaction.check_may_send()
        if self._held_size >= self._buffer_memory:
            text = f"{self._buffer_memory} bytes wait for acknowledgement; await wait_for_memory()"
            raise RetriableError(ErrorCode.throttling_quota_exceeded, text)
        return sender

    @property
    def _held_size(self) -> int:
        return self._machine.buffered_size + self._placement.held_size

    def _require_sender(self) -> Sender:
        if self._sender is None:
            raise IllegalStateError("the producer is closed, or not started by a block or start()")
        if self._sender.failure is not None:
            raise self._sender.failure
        return self._sender

    def _require_transactional(self) -> None:
        if self._transactional_id is None:
            raise IllegalStateError("the producer has no transactional_id")

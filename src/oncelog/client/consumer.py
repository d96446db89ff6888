"""Consumer: reads partitions, record by record or as batches of bytes, alone or in a group.

Only a call fetches (`reading`). `group_session` keeps a consumer that subscribes in its group; its
tasks run in the background, and what they decide takes effect inside `poll`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from oncelog.client.batch_reads import IsolationLevel, OffsetReset, ReaderOptions
from oncelog.client.cluster import Cluster
from oncelog.client.errors import IllegalStateError, RetriableError
from oncelog.client.group_session import (
    DEFAULT_STRATEGY,
    GroupOptions,
    GroupProtocol,
    GroupSession,
)
from oncelog.client.hints import ReaderHints
from oncelog.client.machines.assignors import PartitionAssignor
from oncelog.client.machines.positions import NO_EPOCH, Position
from oncelog.client.membership import METADATA_MAX_AGE_MS, RebalanceListener
from oncelog.client.reading import AssignedReader
from oncelog.client.settings import ConnectionOptions, ConsumerConfig, Role, kafka_names
from oncelog.client.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    FetchedPartition,
    OffsetAndMetadata,
)
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import CLIENT_QUEUED_KBYTES_MAX

__all__ = ["Consumer"]


class Consumer(ReaderHints, role=Role.CONSUMER):
    """Reads records: of the partitions that its group gives it, or of those that it assigns itself.

    ``async with Consumer("localhost:9092", group_id="g") as consumer:
    consumer.subscribe(["topic"]); await consumer.poll()``. Without a
    group: ``consumer.assign([TopicPartition("topic", 0)])``.

    isolation_level: "read_committed" (default) returns committed transactions only, and no record
    past the oldest open one (INV-3); "read_uncommitted" returns all records below the high
    watermark. auto_offset_reset: where reading starts without position or committed offset, or when
    the position is out of range: "earliest", "latest", or "none" to raise `OffsetOutOfRangeError`.
    A log that lost its tail is detected (KIP-320): the consumer returns to the offset at which the
    log diverges from what it read, and reads the records that replaced the lost ones; under "none"
    it raises `LogTruncationError`, which names that offset. fetch_max_wait_ms: how long a broker
    may wait for data. max_partition_fetch_bytes: bytes of one partition per fetch; a larger batch
    is returned whole. fetch_max_bytes: bytes of one fetch, of which there is one per broker at a
    time. queued_max_messages_kbytes: KiB of memory for what was fetched and not returned yet, over
    all brokers; the records of one partition's fetch may come on top. check_crcs: whether to refuse
    batches that were damaged in transit or on the broker's disk: reading raises `FatalError`
    (corrupt_message) until a `seek` goes past them.

    In a group (`subscribe`): group_protocol "classic" or "consumer" (KIP-848), group_instance_id of
    a static member, partition_assignment_strategy: names of Kafka's assignors, or a
    `PartitionAssignor` (default: range and cooperative-sticky), group_remote_assignor: the broker's
    under the new protocol. The group takes a member out that sends no heartbeat for
    session_timeout_ms, or whose application does not poll for max_poll_interval_ms.
    enable_auto_commit (None: yes for who subscribes, no for who assigns): `poll` commits every
    auto_commit_interval_ms what earlier polls returned, and so do a revocation and `close`.

    client_rack: where the consumer is; where brokers have racks and `replica.selector.class`, it
    reads from an in-sync replica in its own (KIP-392), else from the leader.

    Further options are those of `Producer` for the connection layer.
    """

    _session: GroupSession | None = None

    @kafka_names(Role.CONSUMER)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        settings: ConsumerConfig | None = None,
        *,
        group_id: str | None = None,
        isolation_level: IsolationLevel = "read_committed",
        auto_offset_reset: OffsetReset = "earliest",
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1024 * 1024,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        queued_max_messages_kbytes: int = CLIENT_QUEUED_KBYTES_MAX,
        retry_timeout_ms: float = 60_000,
        check_crcs: bool = True,
        group_protocol: GroupProtocol = "classic",
        group_instance_id: str | None = None,
        group_remote_assignor: str | None = None,
        partition_assignment_strategy: Sequence[str | PartitionAssignor] | None = None,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        enable_auto_commit: bool | None = None,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int = 500,
        metadata_max_age_ms: float = METADATA_MAX_AGE_MS,
        client_rack: str | None = None,
        **cluster_options: Unpack[ConnectionOptions],
    ) -> None:
        self._cluster = self._new_cluster(bootstrap_servers, cluster_options)
        self._retry_timeout_ms, self._poll_records = retry_timeout_ms, max_poll_records
        reader_options = ReaderOptions(
            isolation_level,
            auto_offset_reset,
            fetch_max_wait_ms,
            max_partition_fetch_bytes,
            fetch_max_bytes,
            retry_timeout_ms,
            check_crcs,
            queued_max_messages_kbytes,
            client_rack or "",
            metadata_max_age_ms,
        )
        committed = None if group_id is None else self.committed
        self._reading = AssignedReader(self._cluster, reader_options, committed)
        if group_id is not None:
            group_options = GroupOptions(
                group_id,
                group_protocol,
                group_instance_id,
                partition_assignment_strategy or DEFAULT_STRATEGY,
                group_remote_assignor,
                session_timeout_ms,
                heartbeat_interval_ms,
                max_poll_interval_ms,
                enable_auto_commit,
                auto_commit_interval_ms,
                client_rack,
                metadata_max_age_ms,
            )
            self._session = GroupSession(self._cluster, group_options, self._reading)

    def _new_cluster(self, servers: str | Sequence[str], options: ConnectionOptions) -> Cluster:
        """The simulation's records what is asked and answered."""
        return Cluster(servers, **options)

    async def start(self) -> None:
        """Connect. Raises `ConnectionLostError` if no broker answers for `first_contact_ms`."""
        await self._cluster.connect(self._retry_timeout_ms)

    async def close(self) -> None:
        """Leave the group, after a last commit if these are automatic, and close the connections.

        A listener is told that the partitions are revoked.
        """
        try:
            if self._session is not None:
                await self._session.leave()
        finally:
            await self._reading.close()
            await self._cluster.close()

    async def __aenter__(self) -> "Consumer":
        """Connect."""
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()

    # --- the group --------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group, which says which partitions; `poll` joins it.

        Either names, or a `pattern` that whole names match: an expression is matched by the broker
        under the new protocol (RE2), else by this client, as a compiled one always is. A second
        call replaces the subscription. `listener` is told of partitions that come and go.
        """
        self._require_open()
        session = self._require_group()
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe takes the names of topics, or a pattern")
        if self._reading.partitions and not session.is_subscribed:
            raise IllegalStateError("partitions are assigned; assign none before subscribe")
        session.subscribe(names, pattern, listener)

    async def unsubscribe(self) -> None:
        """Leave the group, as `close` does, and read nothing."""
        await self._require_group().leave()
        self._reading.assign([])

    def subscription(self) -> list[str]:
        """The topics that were subscribed to by name."""
        return [] if self._session is None else list(self._session.topics)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer commits, for `Producer.send_offsets_to_transaction` (KIP-447)."""
        return self._require_group().group_metadata()

    # --- positions --------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others.

        Those that were assigned before retain their positions. Raises `IllegalStateError` for a
        consumer that is subscribed.
        """
        self._require_open()
        if self._session is not None:
            self._session.require_no_member()
        self._reading.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return self._reading.partitions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Have `poll` return no records of these partitions until `resume`; they stay assigned."""
        self._reading.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions again."""
        self._reading.resume(partitions)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return self._reading.paused

    def seek(self, topic_partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set a partition's position to `offset`.

        With a leader epoch the consumer first checks that the log before it is still the same.
        """
        self._reading.seek(topic_partition, offset)

    def seek_to_committed(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read again from the group's committed offsets on (None: all assigned partitions).

        `poll` looks them up. For the next attempt after a transaction was aborted.
        """
        self._require_group()
        self._reading.forget_positions(self.assignment() if partitions is None else partitions)

    async def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` will return."""
        self._reading.check_assigned(topic_partition)
        return (await self.positions())[topic_partition].offset

    async def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all assigned partitions, as `commit` would commit them."""
        return await self._reading.positions()

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets (None: all); partitions without one are left out."""
        session = self._require_group()
        return await session.committed(partitions, require_stable, self._retry_timeout_ms)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit the offsets of **next** records, outside any transaction.

        `offsets` None commits the present positions. A member of the group commits as that, and
        gets `CommitFailedError` once the group went on without it. A consumer that assigns its
        partitions gets `FatalError` (unknown_member_id) when the group has members.
        """
        session = self._require_group()
        if offsets is None:
            offsets = await self.positions()
        await session.commit(offsets, self._retry_timeout_ms)

    # --- reading ----------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 1000, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return records, as soon as there are any; at most `max_records` or ``max_poll_records``.

        The list is empty if there are none for `timeout_ms`; a fetch that a broker has not answered
        by then stays in flight for the next call. The records of a partition are in offset order.
        Raises `OffsetOutOfRangeError` when the position is out of range and
        `auto_offset_reset` is "none", and `FatalError` (corrupt_message), with topic, partition and
        offset, at a batch that cannot be read: `seek` past it. A partition whose leader answers
        with an error is tried again, and named in a warning; after ``retry_timeout_ms`` this
        raises `RetriableError`. None of these keeps the other partitions from being read: their
        records are returned first.
        """
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        attempt = 0
        self._require_open()
        if not self._cluster.had_contact:
            await self.start()
        while True:
            await self._take_part(deadline_ms)
            if records := self._reading.take_records(max_records or self._poll_records):
                return records
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0 and attempt:
                if self._session is not None:
                    self._session.check_topics()
                return []
            try:
                await self._reading.read(left_ms)
                attempt = max(attempt, 1)
            except RetriableError:
                if (overdue := self._reading.overdue()) is not None:
                    raise overdue from None
                attempt += 1
                delay_ms = self._cluster.backoff.delay_ms(attempt)
                await clock.sleep(max(0.0, min(delay_ms, left_ms)))

    async def _take_part(self, deadline_ms: float) -> None:
        """Carry out what the group wants; wait for partitions while there are none."""
        is_idle = not self._reading.partitions
        is_subscribed = False
        if self._session is not None:
            await self._session.advance(deadline_ms, wait=is_idle)
            is_subscribed = self._session.is_subscribed
        if is_idle and not is_subscribed:
            raise IllegalStateError("nothing is read: call subscribe or assign before poll")

    async def fetch_batches(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        max_wait_ms: int | None = None,
        leader_epoch: int = NO_EPOCH,
        topic_id: TopicId | None = None,
    ) -> FetchedPartition:
        """Fetch whole record batches of one partition, once.

        It needs no assignment and changes no position. With `topic_id`, a topic of that name with
        another id raises `FatalError` (inconsistent_topic_id).

        Waits up to `max_wait_ms` (default ``fetch_max_wait_ms``) for data. Retries while the leader
        changes; raises `RetriableError` after ``retry_timeout_ms``, and `OffsetOutOfRangeError`
        when the log does not contain `offset`. `leader_epoch` is that of the batch before `offset`
        (`FetchedPartition.leader_epoch`): if the log lost that batch since, `LogTruncationError` is
        raised.
        """
        at = Position(offset, leader_epoch)
        return await self._reading.batches.fetch_batches(
            topic_partition, at, max_bytes, max_wait_ms, topic_id
        )

    def _require_open(self) -> None:
        if self._cluster.is_closed:
            raise IllegalStateError("the consumer is closed: make another one")

    def _require_group(self) -> GroupSession:
        if self._session is None:
            raise IllegalStateError("the consumer has no group_id, which this call is about")
        return self._session

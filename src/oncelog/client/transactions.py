"""Calls the transaction coordinator with retries, and drives transactions without a producer.

`TransactionCalls` stores only names: producers and drivers store the producer id and epoch. Every
call may be repeated safely: adding is idempotent, InitProducerId with an expected epoch replies
alike to a repeat (KIP-360), and a repeated EndTxn is recognised by its epoch (KIP-890) or by the
state it finds (TV1).
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, Unpack

from oncelog.client import requests
from oncelog.client.cluster import GROUP, TRANSACTION, Cluster
from oncelog.client.errors import (
    ConnectionLostError,
    FatalError,
    IllegalStateError,
    Operation,
    classify,
)
from oncelog.client.group_offsets import fetch_offsets
from oncelog.client.hints import AsyncHints
from oncelog.client.settings import ConnectionOptions, DriverConfig, Role, kafka_names
from oncelog.client.transactional_log import ProducerStamp, committed_value, produce_first
from oncelog.client.values import GroupOrMember, OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import COORDINATOR_RETRY_TIMEOUT_MS
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.record import Record
from oncelog.runtime.backoff import Backoff

__all__ = ["TransactionCalls", "TransactionDriver"]

T = TypeVar("T")

ADD_PARTITIONS_CLIENT_MAX = 3
END_TXN_TV1_MAX = 4
"""The newest versions that mean TV1: the next ones imply KIP-890's behaviour at the broker."""

CONCURRENT_BACKOFF_MS = 5
CONCURRENT_BACKOFF_MAX_MS = 100
"""Waits after CONCURRENT_TRANSACTIONS.

Markers of the last transaction are being written, which takes milliseconds.
"""

MISSING_AFTER_MS = 3_000
MISSING_INTERVAL_MS = 100


class TransactionCalls:
    """The coordinator calls of one transactional id.

    All raise `AbortableError`, `FatalError`, or `RetriableError` after `timeout_ms`.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int,
        timeout_ms: float = COORDINATOR_RETRY_TIMEOUT_MS,
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.timeout_ms = timeout_ms
        self.version = 1
        """Transaction version that these calls speak.

        Taken from the cluster by `init_producer_id` and `adopt_version`.
        """
        uniform = cluster.backoff.uniform
        self._backoff = Backoff(CONCURRENT_BACKOFF_MS, CONCURRENT_BACKOFF_MAX_MS, uniform)

    def adopt_version(self) -> int:
        """Speak the transaction version that the cluster finalized.

        It stays until the next `init_producer_id`.
        """
        self.version = self.cluster.transaction_version
        return self.version

    async def init_producer_id(
        self, producer_id: int = -1, producer_epoch: int = -1
    ) -> tuple[int, int]:
        """Fence older instances, end what they left open, and take the next epoch.

        Returns (producer id, epoch).
        """
        request = requests.init_producer_id_request(
            self.transactional_id, self.transaction_timeout_ms, producer_id, producer_epoch
        )

        async def call() -> tuple[int, int]:
            response = await self._ask(ApiKey.INIT_PRODUCER_ID, request)
            self._check(response.error_code)
            return int(response.producer_id), int(response.producer_epoch)

        producer = await self._retrying(call)
        self.adopt_version()
        return producer

    async def add_partitions(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        in_doubt: Callable[[], None] = lambda: None,
    ) -> None:
        """Add partitions to the transaction (TV1), before the first produce to each.

        `in_doubt` as for `end`.
        """
        request = requests.add_partitions_request(
            self.transactional_id, producer_id, producer_epoch, partitions
        )

        async def call() -> None:
            with _telling(in_doubt):
                response = await self._ask(
                    ApiKey.ADD_PARTITIONS_TO_TXN, request, ADD_PARTITIONS_CLIENT_MAX
                )
            errors = requests.add_partitions_errors(response)
            # OPERATION_NOT_ATTEMPTED only means that another partition failed; that one's code
            # decides.
            errors.sort(key=lambda item: item[1] is ErrorCode.operation_not_attempted)
            for topic_partition, code in errors:
                self._check(code, str(topic_partition))

        await self._retrying(call)

    async def add_offsets(self, producer_id: int, producer_epoch: int, group_id: str) -> None:
        """Add the group's offsets partition to the transaction (TV1)."""
        request = requests.add_offsets_request(
            self.transactional_id, producer_id, producer_epoch, group_id
        )

        async def call() -> None:
            response = await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
            self._check(response.error_code)

        await self._retrying(call)

    async def txn_offset_commit(
        self,
        producer_id: int,
        producer_epoch: int,
        group: GroupOrMember,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Write offsets that become visible when the transaction commits (INV-6)."""
        group_id = requests.as_member(group).group_id

        async def call() -> None:
            ids = {at.topic: self.cluster.metadata.topic_id(at.topic) for at in offsets}
            request = requests.txn_offset_commit_request(
                self.transactional_id, producer_id, producer_epoch, group, offsets, ids
            )
            at_most = requests.txn_offsets_version_max(ids.values(), is_tv1=self.version < 2)
            response = await self.cluster.ask_coordinator(
                GROUP, group_id, ApiKey.TXN_OFFSET_COMMIT, request, at_most
            )
            for topic_partition, code in requests.partition_errors(response, ids):
                if code is ErrorCode.unknown_topic_id:  # The name's topic is another one by now.
                    await self.cluster.refresh([topic_partition.topic])
                text = f"offset of {topic_partition} for group {group_id}"
                raise self.cluster.coordinator_error(GROUP, group_id, code, text)

        await self._retrying(call)

    async def end(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        in_doubt: Callable[[], None] = lambda: None,
    ) -> tuple[int, int]:
        """End the transaction.

        Returns the (producer id, epoch) of the next one, or (-1, -1) under TV1.

        `in_doubt` is called whenever an answer got lost and the call is made again. A
        `RetriableError` means that the outcome is unknown.
        """
        request = requests.end_txn_request(
            self.transactional_id, producer_id, producer_epoch, commit
        )

        async def call() -> tuple[int, int]:
            at_most = None if self.version >= 2 else END_TXN_TV1_MAX
            with _telling(in_doubt):
                response = await self._ask(ApiKey.END_TXN, request, at_most)
            self._check(response.error_code)
            return int(response.producer_id), int(response.producer_epoch)

        return await self._retrying(call)

    async def _ask(
        self, api: ApiKey, request: RequestFor[ResponseT], at_most: int | None = None
    ) -> ResponseT:
        return await self.cluster.ask_coordinator(
            TRANSACTION, self.transactional_id, api, request, at_most
        )

    def _check(self, code: ErrorCode, text: str = "") -> None:
        if code is not ErrorCode.none:
            text = f"{self.transactional_id} {text}".rstrip()
            raise self.cluster.coordinator_error(TRANSACTION, self.transactional_id, code, text)

    async def _retrying(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self.cluster.retrying(call, self.timeout_ms, self._backoff)
        except FatalError as error:
            if type(error) is not FatalError:
                raise
            # Where a coordinator was looked for, what for was not known.
            raise classify(error.code, Operation.TRANSACTION, error.message) from None


@contextmanager
def _telling(in_doubt: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except ConnectionLostError:
        in_doubt()
        raise


class TransactionDriver(AsyncHints, role=Role.DRIVER):
    """Runs transactions whose records other processes produce (`Producer.attach`).

    For the driver of a distributed job: it takes an epoch, hands (producer id, epoch) to its
    workers, and when all of them are done commits offsets and ends the transaction. One driver per
    transactional id is alive: `open` fences all others (INV-5).

    Every method raises `FencedError` when another instance took over, `AbortableError` when the
    transaction is lost, `RetriableError` when the cluster did not answer within `timeout_ms` (after
    `end` the outcome is then unknown). Source: KIP-98, KIP-360, KIP-890.
    """

    @kafka_names(Role.DRIVER)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        transactional_id: str,
        settings: DriverConfig | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        timeout_ms: float = COORDINATOR_RETRY_TIMEOUT_MS,
        **cluster_options: Unpack[ConnectionOptions],
    ) -> None:
        self._cluster = Cluster(bootstrap_servers, **cluster_options)
        self._calls = TransactionCalls(
            self._cluster,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            timeout_ms=timeout_ms,
        )
        self._timeout_ms = timeout_ms
        self._producer_id = -1
        self._producer_epoch = -1
        self._epoch_is_fresh = False
        self._is_open = False
        self._added_groups: set[str] = set()
        self._appended: set[TopicPartition] = set()

    async def __aenter__(self) -> "TransactionDriver":
        """Return the driver; `open` is a separate call, because it fences."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the connections.

        An open transaction stays open: `open` of the next instance aborts it, or its timeout.
        """
        await self.close()

    @property
    def transactional_id(self) -> str:
        """The id whose transactions these are."""
        return self._calls.transactional_id

    @property
    def producer_id(self) -> int:
        """Current producer id, -1 before `open`."""
        return self._producer_id

    @property
    def producer_epoch(self) -> int:
        """Current epoch, -1 before `open`."""
        return self._producer_epoch

    @property
    def transaction_version(self) -> int:
        """1 or 2, by what the cluster finalized. Known after `open`."""
        return self._calls.version

    async def open(self) -> tuple[int, int]:
        """Fence every other instance, abort what is open, take a new epoch.

        Returns (producer id, epoch). May be called again.
        """
        self._adopt(await self._calls.init_producer_id())
        return self._producer_id, self._producer_epoch

    async def new_epoch(self) -> tuple[int, int]:
        """Return the (producer id, epoch) for the next transaction, with sequences from 0.

        Under TV2 the last `end` returned it. Under TV1 it is requested with the current epoch as
        expected, so a driver that was superseded gets `FencedError` (KIP-360). An open transaction
        of the current epoch is aborted first.
        """
        self._check_open()
        if self._is_open and not self._epoch_is_fresh:
            await self._abort_leftover()
        if not self._epoch_is_fresh:
            producer = await self._calls.init_producer_id(self._producer_id, self._producer_epoch)
            self._adopt(producer)
        self._epoch_is_fresh = False
        self._is_open = True
        return self._producer_id, self._producer_epoch

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets (None: all); partitions without one are left out.

        With `require_stable` it waits until no open transaction has offsets of these partitions
        (KIP-447).
        """
        return await fetch_offsets(
            self._cluster, group_id, partitions, require_stable, self._timeout_ms
        )

    async def add_offsets(self, group_id: str) -> None:
        """Add the offsets partition of `group_id` to the transaction.

        Under TV2 `txn_offset_commit` does so itself.
        """
        self._check_open()
        if self.transaction_version < 2 and group_id not in self._added_groups:
            await self._calls.add_offsets(self._producer_id, self._producer_epoch, group_id)
            self._added_groups.add(group_id)

    async def txn_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Write offsets into the transaction (INV-6), adding the group first where needed."""
        await self.add_offsets(group_id)
        await self._calls.txn_offset_commit(
            self._producer_id, self._producer_epoch, group_id, offsets
        )

    async def missing(
        self, partitions: Iterable[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> set[TopicPartition]:
        """Return those of the partitions that the cluster does not have.

        A broker that has just started may not know all topics yet, so a partition outside `known`
        counts as missing after `MISSING_AFTER_MS` only.
        """
        wanted = frozenset(partitions)
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + MISSING_AFTER_MS
        while True:
            found = await self._cluster.retrying(
                lambda: _missing_now(self._cluster, wanted), self._timeout_ms
            )
            if found <= set(known) or clock.monotonic_ms() >= deadline_ms:
                return found
            await clock.sleep(MISSING_INTERVAL_MS)

    async def append(self, topic_partition: TopicPartition, key: bytes, value: bytes) -> None:
        """Write one record into the transaction, with all in-sync replicas' acknowledgement.

        Once per transaction and partition, to a partition that no attached producer writes to:
        both begin at sequence 0 (INV-2).
        """
        self._check_open()
        if topic_partition in self._appended:
            raise IllegalStateError(f"{topic_partition} has its record in this transaction")
        self._appended.add(topic_partition)
        version = self.transaction_version
        if version < 2:
            await self._calls.add_partitions(
                self._producer_id, self._producer_epoch, [topic_partition]
            )
        stamp = ProducerStamp(
            self.transactional_id, self._producer_id, self._producer_epoch, version
        )
        record = Record(0, self._cluster.clock.now_ms(), key, value, ())
        await produce_first(self._cluster, topic_partition, record, stamp, self._timeout_ms)

    async def committed_value(
        self,
        topic_partition: TopicPartition,
        key: bytes,
        *,
        is_final: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> bytes | None:
        """The value of the last record with `key` in the partition that was committed, or None.

        Definitive for the records of this transactional id after `open`, which ended its
        transactions. Other producers' open transactions do not matter to it. Without `is_final`,
        and without `open`: what is decided now. `on_progress` is called after each fetch.
        """
        return await committed_value(
            self._cluster,
            topic_partition,
            key,
            self._timeout_ms,
            is_final=is_final,
            on_progress=on_progress,
        )

    async def end(self, commit: bool) -> None:
        """Commit or abort.

        Lost answers are asked for again; `RetriableError` leaves the outcome unknown: call it
        again, or `open`.

        A transaction in which nothing was produced and no offset was written is unknown to the
        coordinator, which answers INVALID_TXN_STATE (`FatalError`).
        """
        self._check_open()
        producer_id, epoch = await self._calls.end(self._producer_id, self._producer_epoch, commit)
        self._added_groups.clear()
        self._is_open = False
        if producer_id >= 0:
            self._adopt((producer_id, epoch))

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def _abort_leftover(self) -> None:
        """Abort under the current epoch.

        An InitProducerId with that epoch as condition would fence ourselves (KIP-360).
        """
        try:
            await self.end(commit=False)
        except FatalError as error:
            # Under TV1 a transaction to which nothing was added is unknown to the coordinator:
            # there is nothing to abort.
            if error.code is not ErrorCode.invalid_txn_state:
                raise

    def _adopt(self, producer: tuple[int, int]) -> None:
        self._producer_id, self._producer_epoch = producer
        self._epoch_is_fresh = True
        self._is_open = False
        self._added_groups.clear()
        self._appended.clear()

    def _check_open(self) -> None:
        if self._producer_id < 0:
            raise IllegalStateError("the transaction driver is not open")


async def _missing_now(
    cluster: Cluster, partitions: frozenset[TopicPartition]
) -> set[TopicPartition]:
    """Ask one broker. A topic that it may not describe to this client counts as existing."""
    errors = await cluster.refresh({tp.topic for tp in partitions})
    existing = {
        TopicPartition(name, partition.index)
        for name, topic in cluster.metadata.topics.items()
        for partition in topic.partitions
    }
    return {tp for tp in partitions - existing if tp.topic not in errors}

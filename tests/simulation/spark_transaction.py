"""A simulated driver's transaction: the shipped `TransactionDriver`, and a record of its calls."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from oncelog.client import ClientError, FencedError, TransactionDriver
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import (
    Event,
    OffsetsFetched,
    ProducerFenced,
    ProducerInitialized,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.spark.marker import latest
from tests.simulation.spark_application import Application
from tests.simulation.spark_duties import DriverDuties

__all__ = ["JournalingTransaction"]

T = TypeVar("T")


class Life(Protocol):
    """What the transaction needs of its driver's life."""

    app: Application
    duties: DriverDuties | None
    transactions: int

    def record(self, kind: Callable[..., Event], values: tuple[object, ...]) -> None:
        """Write down an event of the driver."""
        ...


class JournalingTransaction:
    """The shipped `TransactionDriver`; what it does is written down."""

    def __init__(self, life: Life, inner: TransactionDriver) -> None:
        self._life = life
        self._inner = inner
        self._is_begun = False
        self._is_group_empty = True

    @property
    def _duties(self) -> DriverDuties:
        duties = self._life.duties
        assert duties is not None
        return duties

    @property
    def producer_id(self) -> int:
        return self._inner.producer_id

    @property
    def producer_epoch(self) -> int:
        return self._inner.producer_epoch

    async def open(self) -> object:
        life = self._life
        if self._is_begun:
            self._is_begun = False
            life.record(TransactionEnded, (life.transactions, False))
        self._duties.opened()
        await self._inner.open()
        life.app.count("open")
        self._initialized()
        return None

    async def new_epoch(self) -> object:
        epoch = self.producer_epoch
        await self._watched(self._inner.new_epoch())
        if self.producer_epoch != epoch:
            self._initialized()
        self._duties.got_epoch(self.producer_id, self.producer_epoch)
        self._is_begun = True
        self._life.transactions += 1
        self._life.record(TransactionBegan, (self._life.transactions, self._inner.transactional_id))
        return None

    async def fetch_offsets(
        self, group_id: str, partitions: None = None, *, require_stable: bool = True
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        asked_s = self._life.app.stage.world.now_s
        found = await self._inner.fetch_offsets(group_id, partitions, require_stable=require_stable)
        offsets = {tp: committed.offset for tp, committed in found.items()}
        self._is_group_empty = not offsets
        self._life.record(OffsetsFetched, (group_id, offsets, asked_s, require_stable))
        return found

    async def append(self, topic_partition: TopicPartition, key: bytes, value: bytes) -> None:
        self._duties.appended(key, value)
        await self._watched(self._inner.append(topic_partition, key, value))

    async def committed_value(self, topic_partition: TopicPartition, key: bytes) -> bytes | None:
        found = await self._inner.committed_value(topic_partition, key)
        if self._is_group_empty and found is not None and latest([found.decode()]) is not None:
            self._life.app.count("marker in the topic only")
        return found

    async def add_offsets(self, group_id: str) -> None:
        await self._watched(self._inner.add_offsets(group_id))

    async def missing(
        self, partitions: Iterable[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> set[TopicPartition]:
        self._duties.looked()
        return await self._watched(self._inner.missing(partitions, known))

    async def txn_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self._duties.committed_offsets(group_id, offsets)
        await self._watched(self._inner.txn_offset_commit(group_id, offsets))
        plain = {tp: committed.offset for tp, committed in offsets.items()}
        self._life.record(TransactionOffsets, (self._life.transactions, group_id, plain))

    async def end(self, commit: bool) -> None:
        life, number = self._life, self._life.transactions
        self._is_begun = False
        self._duties.ending(commit)
        life.record(TransactionEnding, (number, commit))
        try:
            await self._watched(self._inner.end(commit))
        except ClientError as error:
            life.app.count("end in doubt")
            life.record(TransactionUnknown, (number, type(error).__name__))
            raise
        self._duties.committed()
        life.record(TransactionEnded, (number, commit))

    def _initialized(self) -> None:
        self._life.record(
            ProducerInitialized,
            (self._inner.transactional_id, self.producer_id, self.producer_epoch),
        )

    async def _watched(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await call
        except FencedError as error:
            self._life.app.count("driver fenced")
            self._life.record(ProducerFenced, (self._inner.transactional_id, type(error).__name__))
            raise

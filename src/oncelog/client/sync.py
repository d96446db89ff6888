"""The same clients for callers without an event loop: ``from oncelog import sync``.

The methods of `Producer`, `Consumer` and `Admin` with the same arguments and the same errors, but
they block. Each client has an event loop of its own in a thread: use it in a ``with`` block, or
call `close` at the end of a notebook, and from one thread at a time. A forked child needs clients
of its own: those of its parent raise `RuntimeError` there. A call changes threads twice,
so load that has to be fast belongs into the asyncio clients.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from oncelog.client import admin, consumer, producer
from oncelog.client.errors import ClientError
from oncelog.client.hints import SyncHints, is_in_coroutine
from oncelog.client.machines.membership import ChangeKind
from oncelog.client.membership import RebalanceListener, method_for
from oncelog.client.settings import Role
from oncelog.client.unread import BlockingDelivery, UnreadFailures
from oncelog.client.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    RecordMetadata,
)
from oncelog.core.ids import TopicPartition
from oncelog.runtime.background_loop import BackgroundLoop, Calls, called

__all__ = ["Admin", "Consumer", "Producer"]


class _Client(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def __aexit__(self, exc_type: type[BaseException] | None, *rest: object) -> None: ...


log = logging.getLogger("oncelog.client")

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=_Client, covariant=True)
B = TypeVar("B", bound="_Blocking[Any]")


class _Blocking(SyncHints, Generic[C]):
    """A client with its own event loop."""

    def __init__(self, client: C) -> None:
        self._client = client
        self._loop = BackgroundLoop(client.close)

    def start(self) -> None:
        """Connect. Raises as the asyncio client."""
        self._run(self._client.start())

    def _run(self, awaitable: Awaitable[T]) -> T:
        """Wait for what the asyncio client does. Raises `RuntimeError` in a coroutine."""
        if is_in_coroutine():
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            who = type(self).__name__
            raise RuntimeError(
                f"sync.{who} would block the event loop of this coroutine: use oncelog.{who} and "
                "await its methods"
            )
        return self._wait(awaitable)

    def _wait(self, awaitable: Awaitable[T]) -> T:
        return self._loop.run(awaitable)

    def _check_end(self) -> None:
        """Raise what the caller should know at the end of its block."""

    def close(self) -> None:
        """Close the connections and the thread, without a flush. A second call does nothing.

        It may be called from any thread and from a signal handler; calls that wait in other threads
        raise `RuntimeError`. In a forked child it does nothing: the connections are the parent's.
        """
        self._loop.close()

    def __del__(self) -> None:
        """Have the thread of a client that was never closed end, and warn of it."""
        loop = getattr(self, "_loop", None)
        if loop is not None and not loop.is_closed and not sys.is_finalizing():
            loop.request_close()
            warnings.warn(f"a client was never closed: {self!r}", ResourceWarning, 2, self)

    def __enter__(self: B) -> B:
        """Connect."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        """End as leaving the asyncio client does, then close. In a forked child: nothing."""
        if self._loop.is_closed:
            return
        try:
            self._wait(self._client.__aexit__(exc_type, *rest))
            if exc_type is None:
                self._check_end()
        finally:
            self.close()


def _blocking(
    method: Callable[Concatenate[C, P], Awaitable[T]],
) -> Callable[Concatenate[_Blocking[C], P], T]:
    """The method of the asyncio client, waited for."""

    @functools.wraps(method)
    def call(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    return call


def _constructed_as(
    client: Callable[P, C],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """The arguments of the asyncio client's class, for type checkers and for `help`."""

    def decorate(construct: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        functools.update_wrapper(construct, client.__init__, assigned=("__doc__",))
        return construct

    return decorate


class Producer(_Blocking[producer.Producer], role=Role.PRODUCER):
    """`oncelog.Producer`, blocking: ``with sync.Producer("localhost:9092") as producer``."""

    @_constructed_as(producer.Producer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(producer.Producer(*args, **options))
        is_transactional = self._client._transactional_id is not None  # noqa: SLF001 - the same
        self._unread = UnreadFailures(is_transactional=is_transactional)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Queue one record, waiting for memory; ``.result()`` waits until it is acknowledged."""
        found = BlockingDelivery()
        self._loop.guard(found)

        async def queue() -> None:
            await self._client.wait_for_memory()
            delivery = self._client.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
            delivery.add_done_callback(functools.partial(self._pass_on, found))

        self._run(queue())
        return found

    def _pass_on(self, found: BlockingDelivery, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Settle the future of the caller's thread as that of the loop was."""
        if delivery.cancelled():
            found.cancel()
        elif (error := delivery.exception()) is not None:
            if isinstance(error, ClientError):
                self._unread.fail(found, error)
            else:
                found.set_exception(error)
        else:
            found.set_result(delivery.result())

    def _check_end(self) -> None:
        if (error := self._unread.take()) is not None:
            raise error

    def close(self) -> None:
        """Close the connections and the thread, without a flush; a second call does nothing.

        Records that failed, and whose futures were not looked at, are logged.
        """
        super().close()
        if (error := self._unread.take()) is not None:
            log.warning("%s", error)

    flush = _blocking(producer.Producer.flush)
    init_transactions = _blocking(producer.Producer.init_transactions)
    begin_transaction = _blocking(producer.Producer.begin_transaction)
    send_offsets_to_transaction = _blocking(producer.Producer.send_offsets_to_transaction)
    commit_transaction = _blocking(producer.Producer.commit_transaction)
    abort_transaction = _blocking(producer.Producer.abort_transaction)


class Consumer(_Blocking[consumer.Consumer], role=Role.CONSUMER):
    """`oncelog.Consumer`, blocking; it can be iterated over as well."""

    @_constructed_as(consumer.Consumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(consumer.Consumer(*args, **options))
        self.calls = Calls()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group; `listener` is called in the thread that polls."""
        told = None if listener is None else _InCallersThread(self, listener)

        async def subscribe() -> None:
            self._client.subscribe(topics, pattern=pattern, listener=told)

        self._run(subscribe())

    def close(self) -> None:
        """Leave the group and close, as `oncelog.Consumer.close`; a second call does nothing."""
        try:
            if self._loop.refusal is None and not self._loop.is_waited_for:
                self._wait(self._client.close())
        finally:
            super().close()

    def _wait(self, awaitable: Awaitable[T]) -> T:
        """Wait, and call the listener meanwhile, which may call this consumer in turn."""
        outer, self.calls = self.calls, Calls()
        try:
            return self._loop.run(awaitable, self.calls)
        finally:
            self.calls = outer

    def subscription(self) -> list[str]:
        """The topics that were subscribed to by name."""
        return self._client.subscription()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer commits (KIP-447)."""
        return self._client.group_metadata()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Have `poll` return no records of these partitions until `resume`."""
        self._client.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions again."""
        self._client.resume(partitions)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return self._client.paused()

    def seek_to_committed(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read again from the group's committed offsets on (None: all assigned partitions)."""
        self._client.seek_to_committed(partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others."""
        self._client.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return self._client.assignment()

    def seek(self, topic_partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set a partition's position to `offset`."""
        self._client.seek(topic_partition, offset)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record, one after the other, without an end."""
        while True:
            # More at once would count as read, and be committed, before the caller has them.
            yield from self.poll(max_records=1)

    poll = _blocking(consumer.Consumer.poll)
    unsubscribe = _blocking(consumer.Consumer.unsubscribe)
    commit = _blocking(consumer.Consumer.commit)
    committed = _blocking(consumer.Consumer.committed)
    position = _blocking(consumer.Consumer.position)
    positions = _blocking(consumer.Consumer.positions)


class _InCallersThread(RebalanceListener):
    """Has a listener called in the thread that waits for `poll`."""

    def __init__(self, waiting: Consumer, listener: RebalanceListener) -> None:
        self._waiting = waiting
        self._listener = listener

    async def _call(self, kind: ChangeKind, partitions: list[TopicPartition]) -> None:
        method = method_for(self._listener, kind)
        if method is not None:
            await called(self._waiting.calls, functools.partial(method, partitions))

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._call(ChangeKind.REVOKED, partitions)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._call(ChangeKind.ASSIGNED, partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._call(ChangeKind.LOST, partitions)


class Admin(_Blocking[admin.Admin], role=Role.ADMIN):
    """`oncelog.Admin`, blocking."""

    @_constructed_as(admin.Admin)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(admin.Admin(*args, **options))

    create_topics = _blocking(admin.Admin.create_topics)
    delete_topics = _blocking(admin.Admin.delete_topics)
    list_topics = _blocking(admin.Admin.list_topics)
    describe_topic = _blocking(admin.Admin.describe_topic)
    describe_replicas = _blocking(admin.Admin.describe_replicas)
    log_ends = _blocking(admin.Admin.log_ends)
    create_partitions = _blocking(admin.Admin.create_partitions)
    delete_records = _blocking(admin.Admin.delete_records)
    describe_configs = _blocking(admin.Admin.describe_configs)
    incremental_alter_configs = _blocking(admin.Admin.incremental_alter_configs)
    list_offsets = _blocking(admin.Admin.list_offsets)
    describe_cluster = _blocking(admin.Admin.describe_cluster)
    unregister_broker = _blocking(admin.Admin.unregister_broker)
    alter_partition_reassignments = _blocking(admin.Admin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(admin.Admin.list_partition_reassignments)
    describe_data_folders = _blocking(admin.Admin.describe_data_folders)
    describe_features = _blocking(admin.Admin.describe_features)
    update_features = _blocking(admin.Admin.update_features)
    describe_user_scram_credentials = _blocking(admin.Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(admin.Admin.alter_user_scram_credentials)
    describe_client_quotas = _blocking(admin.Admin.describe_client_quotas)
    alter_client_quotas = _blocking(admin.Admin.alter_client_quotas)
    create_acls = _blocking(admin.Admin.create_acls)
    describe_acls = _blocking(admin.Admin.describe_acls)
    delete_acls = _blocking(admin.Admin.delete_acls)
    list_groups = _blocking(admin.Admin.list_groups)
    describe_group = _blocking(admin.Admin.describe_group)
    group_offsets = _blocking(admin.Admin.group_offsets)
    alter_group_offsets = _blocking(admin.Admin.alter_group_offsets)
    delete_group = _blocking(admin.Admin.delete_group)
    delete_group_offsets = _blocking(admin.Admin.delete_group_offsets)
    list_transactions = _blocking(admin.Admin.list_transactions)
    describe_transaction = _blocking(admin.Admin.describe_transaction)
    describe_producers = _blocking(admin.Admin.describe_producers)
    end_transaction = _blocking(admin.Admin.end_transaction)
    fence_producer = _blocking(admin.Admin.fence_producer)
    wait_for_topics = _blocking(admin.Admin.wait_for_topics)

"""The broker, put together: what a process owns, in the order in which it starts and stops.

It composes the rooms and holds what handlers ask for: `config`, `clock`, `disk`, `network`, `logs`
(the log manager), `store`, `image` and `controller` (the metadata), `partitions`, `fetch_sessions`,
`producer_ids`, `transactions`, `groups`, `server`. It must not know any API, nor decide anything
that a pure room decides.

Order of the start: folder locked and logs recovered, metadata read, partitions led, coordinators
loading, socket open. The stop is the reverse, so that nothing is answered that could not be kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from oncelog.broker.controller import ControllerShell, fresh_kafka_uuid
from oncelog.broker.coordination.coordinators import (
    CoordinatorShell,
    ProducerIds,
    group_shell,
    import_machines,
    transaction_shell,
)
from oncelog.broker.net.dispatch import Dispatcher
from oncelog.broker.net.server import Server
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.core.config import BrokerConfig
from oncelog.runtime.clock import Clock, SystemClock
from oncelog.runtime.disk import Disk, SystemDisk
from oncelog.runtime.network import Network, SystemNetwork
from oncelog.storage.config import LogConfig
from oncelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from oncelog.broker.partitions.fetch_sessions import FetchSessions
    from oncelog.controller.image import ImageDelta, MetadataImage
    from oncelog.metadata.store import MetadataStore

__all__ = ["Broker"]

log = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"


class Broker:
    """One broker. `start` and `stop` are called once each, by its owner, in one event loop."""

    logs: LogManager
    store: MetadataStore
    controller: ControllerShell
    partitions: PartitionManager
    producer_ids: ProducerIds
    transactions: CoordinatorShell
    groups: CoordinatorShell
    server: Server

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        store: MetadataStore | None = None,
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.disk: Disk = disk or SystemDisk()
        self.network: Network = network or SystemNetwork()
        self.broker_id = config.get_int("node.id")
        self.stopped_because: BaseException | None = None
        self._given_store = store
        self._stop_requested = asyncio.Event()
        self._background: asyncio.Task[None] | None = None

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """What clients that fetch are remembered by. Imported with the first fetch."""
        from oncelog.broker.partitions.fetch_sessions import FetchSessions

        return FetchSessions(self.config.get_int("max.incremental.fetch.session.cache.slots"))

    @property
    def image(self) -> MetadataImage:
        """The metadata as of now.

        A value: keep it across an await only when an older view is wanted.
        """
        return self.controller.image

    @property
    def bootstrap_servers(self) -> str:
        """Where clients start: ``host:port`` as advertised. Valid once started."""
        return self.server.advertised

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs.

        Its own overrides, else what this broker was started with.
        """
        value = partial(self.config.topic_value, overrides)
        return LogConfig(
            segment_bytes=value("segment.bytes"),
            segment_ms=value("segment.ms"),
            segment_index_bytes=value("segment.index.bytes"),
            index_interval_bytes=value("index.interval.bytes"),
            max_message_bytes=value("max.message.bytes"),
            flush_messages=value("flush.messages"),
            flush_ms=value("flush.ms"),
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            cleanup_policy=frozenset(value("cleanup.policy")),
            message_timestamp_type=value("message.timestamp.type"),
            message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            compression_type=value("compression.type"),
            producer_id_expiration_ms=self.config.get_int("producer.id.expiration.ms"),
        )

    def apply(self, delta: ImageDelta) -> None:
        """The image became another.

        Partitions follow first, then the coordinators that live on them.
        """
        self.partitions.apply(delta)
        self.transactions.apply(delta)
        self.groups.apply(delta)

    async def start(self) -> None:
        """Start everything; when it returns, clients can connect.

        On failure what was started is stopped again.

        Raises `FolderInUse` and `StorageFailure` for the data folder, `OSError` for the address.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self.logs = await self.disk.run(self._open_logs)
        self.store = self._given_store or self._open_store()
        self.controller = ControllerShell(self, self.store)
        await self.controller.load(self.logs.cluster_id, new_folder=not len(self.logs))
        await self.disk.run(self._remove_stray_logs)
        self.partitions = PartitionManager(self)
        self.producer_ids = ProducerIds(self)
        self.transactions = transaction_shell(self)
        self.groups = group_shell(self)
        self.server = Server(self, Dispatcher(self))
        await self.controller.start()
        await self.server.start()
        self._background = asyncio.create_task(self._run())

    def _open_logs(self) -> LogManager:
        # Overrides of single topics come with the image; recovery does not depend on them.
        config = self.log_config({})
        return LogManager.open(
            self.disk,
            self.config.data_dir,
            config_for=lambda _topic: config,
            now_ms=self.clock.now_ms(),
            node_id=self.broker_id,
            cluster_id=fresh_kafka_uuid(),
            directory_id=fresh_kafka_uuid(),
        )

    def _remove_stray_logs(self) -> None:
        """Finish deletions that a crash interrupted.

        The store forgot the topic, the folder is still there.
        """
        image = self.image
        for topic_partition in self.logs:
            topic = image.topic(topic_partition.topic)
            topic_id = self.logs.topic_id(topic_partition)
            if topic is None or topic_id not in (None, topic.topic_id):
                log.info("removing the folder of %s: its topic was deleted", topic_partition)
                self.logs.delete(topic_partition)

    def _open_store(self) -> MetadataStore:
        # Imported here because tests and the simulation never need SQLite.
        from oncelog.metadata.sqlite import SqliteStore

        return SqliteStore(f"{self.config.data_dir}/{METADATA_FILE}")

    async def _run(self) -> None:
        """The background work of all parts. If any of it ends with an error, the broker stops."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.partitions.run())
                tasks.create_task(self.transactions.run())
                tasks.create_task(self.groups.run())
                tasks.create_task(self.controller.run())
                tasks.create_task(self.server.run())
                tasks.create_task(import_machines(self.clock))
        except BaseExceptionGroup as failures:
            self.stop_because(failures.exceptions[0])

    def stop_because(self, error: BaseException) -> None:
        """Ask the owner to stop: nothing may be acknowledged any more. Connections are cut."""
        if self.stopped_because is not None:
            return
        log.critical("stopping: %s", error, exc_info=error)
        self.stopped_because = error
        self.server.abort()
        self._stop_requested.set()

    def request_stop(self) -> None:
        """Ask for a clean stop (a signal handler's call)."""
        self._stop_requested.set()

    async def wait_until_stop_is_requested(self) -> None:
        """Return when `request_stop` or `stop_because` was called."""
        await self._stop_requested.wait()

    async def stop(self) -> None:
        """Stop accepting and answering, then close coordinators, partitions, logs and the store."""
        if hasattr(self, "server"):
            await self.server.stop()
        if hasattr(self, "controller"):
            await self.controller.close()
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])
        for part in ("groups", "transactions", "partitions"):
            if hasattr(self, part):
                getattr(self, part).close()
        if hasattr(self, "logs"):
            # After a broken invariant the next start has to look at everything again.
            close = self.logs.close if self.stopped_because is None else self.logs.abandon
            await self.disk.run(close)
        if hasattr(self, "store"):
            await self.store.close()

"""Assembles the broker: its parts, and the order in which they start and stop.

It constructs the packages' objects and owns their start and stop. It must not know any API, nor
decide anything that a pure package decides.

Order of the start: folders locked, metadata read, logs recovered, address bound, registered and
decided on by the controller, partitions led, coordinators loading, socket open. The stop is the
reverse (one stack of exits), so no request is acknowledged after its log has closed; before it
other brokers take over what this one leads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker import apis
from oncelog.broker.apis.context import Context
from oncelog.broker.controller.balance import balance_leaders
from oncelog.broker.controller.cluster import find_cluster
from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.coordination.coordinators import (
    group_coordinator,
    import_machines,
    is_coordinator_in_use,
    transaction_coordinator,
)
from oncelog.broker.coordination.markers import LocalLeaders, MarkerWriter
from oncelog.broker.coordination.metadata import metadata_of
from oncelog.broker.coordination.meters import CoordinatorMeters
from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.broker.coordination.verification import LocalCoordinators
from oncelog.broker.deletions import DeletionsWatch
from oncelog.broker.exchanged_disks import make_replicas_again
from oncelog.broker.folders import close_logs, described_life, open_logs
from oncelog.broker.member import ClusterMember
from oncelog.broker.membership.feed import FolderTask, MetadataFeed
from oncelog.broker.membership.life_notes import LifeNotes
from oncelog.broker.membership.registration import BrokerIdTaken, ClusterMembership
from oncelog.broker.membership.stores import open_store
from oncelog.broker.net.dispatch import Dispatcher, Layer
from oncelog.broker.net.server import Server
from oncelog.broker.partitions.folders import FolderWork
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.moving import PartitionMover
from oncelog.broker.peers.connections import PeerNetwork
from oncelog.broker.quotas.follower import QuotaFollower
from oncelog.controller.events import DirectoryFailed
from oncelog.controller.group_configs import group_config_warnings
from oncelog.controller.image import ImageDelta, MetadataImage
from oncelog.controller.stored_configs import stored_config_problem
from oncelog.controller.topics import partition_count_problem
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import MetadataStore
from oncelog.runtime.clock import Clock, SystemClock, stopwatch
from oncelog.runtime.disk import Disk, StorageFailure, SystemDisk
from oncelog.runtime.ids import fresh_kafka_uuid
from oncelog.runtime.network import Network, SystemNetwork
from oncelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import GroupRuntime, TransactionRuntime
    from oncelog.broker.coordination.received_markers import ReceivedMarkers
    from oncelog.broker.metrics import MetricsServer
    from oncelog.broker.others import OtherBrokers
    from oncelog.broker.partitions.following import Following, ReplicaFetchers
    from oncelog.broker.partitions.partition import Partition
    from oncelog.broker.replication.isr import IsrKeeper

__all__ = ["Broker"]

log = logging.getLogger(__name__)


class Broker:
    """One broker. `start` and `stop` are called once each, by its owner, in one event loop.

    The parts are there once `start` has returned.
    """

    logs: LogManager
    store: MetadataStore
    feed: MetadataFeed
    member: ClusterMember
    membership: ClusterMembership
    controller: ControllerShell
    partitions: PartitionManager
    mover: PartitionMover
    deletions: DeletionsWatch
    producer_ids: ProducerIds
    markers: MarkerWriter
    transactions: TransactionRuntime
    groups: GroupRuntime
    server: Server
    dispatcher: Dispatcher
    metrics: MetricsServer
    """Only where `oncelog.metrics.address` is set."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        store: MetadataStore | None = None,
        rng: random.Random | None = None,
        syncs: bool = True,
    ) -> None:
        self.config = config
        self._syncs = syncs
        self.clock: Clock = clock or SystemClock()
        self._own_disk = SystemDisk(syncs=syncs) if disk is None else None
        self.disk: Disk = disk or self._own_disk or SystemDisk()
        self.network: Network = network or SystemNetwork()
        self.rng = rng or random.SystemRandom()
        self.peers = PeerNetwork.of(config, self.network, self.rng)
        self.broker_id = config.get_int("node.id")
        self.stopped_because: BaseException | None = None
        self.stopping = ""  # What a stop that has begun does now.
        self._isr: IsrKeeper | None = None
        self._received_markers: ReceivedMarkers | None = None
        self._others: OtherBrokers | None = None
        self._quotas: QuotaFollower | None = None
        self._is_killed = False
        self._incarnation = fresh_kafka_uuid(self.rng)
        self._closed_cleanly = False
        self._given_store = store
        self._stop_requested = asyncio.Event()
        self._exits = AsyncExitStack()

    @property
    def image(self) -> MetadataImage:
        """The metadata that this broker has applied; a later step replaces the image."""
        return self.feed.image

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients to bootstrap, once started: ``host:port`` as advertised."""
        return self.server.bootstrap_servers

    async def start(self) -> None:
        """Start everything; when it returns, clients can connect. A failure stops it all again.

        Raises `FolderInUse` and `StorageFailure` for a log directory, or `AddressUnavailable`.
        """
        async with self._exits as exits:
            await self._start_metrics(exits)
            await self._start_storage(exits)
            self._start_parts(exits)
            await self._start_serving(exits)
            self._exits = exits.pop_all()

    async def stop(self) -> None:
        """Stop accepting and answering, then close coordinators, partitions, logs and the store."""
        watch = stopwatch(self.clock)
        begun_s = watch()
        await self._exits.aclose()
        if self._closed_cleanly:
            self._closed_cleanly = False
            log.info("stopped in %.1f s, the logs are closed cleanly", watch() - begun_s)

    async def _start_storage(self, exits: AsyncExitStack) -> None:
        """The log directories and the metadata, as the last run left them."""
        if self._own_disk is not None:
            exits.callback(self._own_disk.close)
        take = partial(LogManager.take, self.disk, self.config.data_dirs, node_id=self.broker_id)
        self.logs = await self.disk.run(take)
        exits.push_async_callback(self._close_logs)
        self.store = self._given_store or open_store(self.config, self.disk, syncs=self._syncs)
        exits.push_async_callback(self.store.close)
        exits.callback(self._say, "closing the metadata")
        self.feed = MetadataFeed(self.store, self.broker_id, self._follow, self.clock, self.rng)
        self.member = ClusterMember(
            self.config,
            self.store,
            self.feed,
            self.peers,
            self.clock,
            self.rng,
            self.logs.may_take_over,
            self.stop_because,
        )
        exits.push_async_callback(self._end_session)
        self.membership = self.member.membership
        self.controller = self.member.controller
        cluster_id = await find_cluster(
            self.store,
            self.logs.cluster_id,
            fresh_kafka_uuid(self.rng),
            has_logs=bool(len(self.logs) or self.logs.lost),
        )
        new_id = partial(fresh_kafka_uuid, self.rng)
        await self.disk.run(partial(self.logs.claim, cluster_id, self.broker_id, new_id))
        await self.feed.load(cluster_id)
        image = self.image
        problem = stored_config_problem(image) or partition_count_problem(image, self.config)
        if problem is not None:
            raise OncelogError(problem)
        now_ms = self.clock.now_ms()
        await self.disk.run(partial(open_logs, self.logs, image, self.config, now_ms))

    def _start_parts(self, exits: AsyncExitStack) -> None:
        """Start the parts that use the logs and follow the image."""
        config = self.config
        self.partitions = PartitionManager(
            self.broker_id, config, self.logs, self.disk, self.clock, self.rng
        )
        exits.callback(self.partitions.close)
        self.life = LifeNotes(config, self.logs, self.disk, self.partitions.folder_failed)
        self.partitions.on_folder_failed = self.life.write_again
        self.producer_ids = ProducerIds(self.store)
        self.markers = MarkerWriter(LocalLeaders(self.partitions), self.stop_because)
        exits.push_async_callback(self.markers.close)
        self.transactions = transaction_coordinator(
            config,
            self.partitions,
            self.producer_ids,
            self.markers.handle,
        )
        exits.callback(self.transactions.close)
        self._coordinators = LocalCoordinators(self.transactions)
        self.meters = CoordinatorMeters()
        self.groups = group_coordinator(
            config,
            self.partitions,
            self.producer_ids,
            self.meters.groups,
        )
        exits.callback(self.groups.close)
        self.deletions = DeletionsWatch(
            self.broker_id,
            self.logs,
            self.partitions,
            self.feed,
            self.controller,
            self.transactions,
            self.groups,
            self.disk,
            self.clock,
        )
        self.mover = PartitionMover(self.partitions, self.logs, self.disk, self.feed.tell_again)
        self.server = Server(config, self.network, self.clock, self.rng)

    async def _start_serving(self, exits: AsyncExitStack) -> None:
        """Register, lead, and open the socket; from here on requests come."""
        exits.push_async_callback(self.feed.close)
        self.partitions.on_off_line = self._directory_failed
        self.partitions.on_leading = self._keep_isr
        self.partitions.make_fetchers = self._make_fetchers
        exits.push_async_callback(self._end_replication)
        exits.push_async_callback(self._leave_cluster)
        # Of a start that fails from here on. A stop in order comes to the one below first.
        exits.push_async_callback(self.server.stop)
        described = partial(
            described_life, self.logs, self.config, self._incarnation, await self.server.bind()
        )
        await self.feed.start(await self.member.join(described, self._begin_life))
        for warning in group_config_warnings(self.config, self.image.group_configs):
            log.warning("%s", warning)
        context = Context(
            broker_id=self.broker_id,
            config=self.config,
            clock=self.clock,
            disk=self.disk,
            logs=self.logs,
            mover=self.mover,
            feed=self.feed,
            controller=self.controller,
            partitions=self.partitions,
            producer_ids=self.producer_ids,
            transactions=self.transactions,
            transaction_coordinators=self._coordinators,
            received_markers=self._receive_markers,
            groups=self.groups,
            meters=self.meters,
            server=self.server,
            rng=self.rng,
        )
        watch = None if self.config.metrics_address is None else stopwatch(self.clock)
        self.dispatcher = Dispatcher(context, apis.find, self.stop_because, watch)
        if self.config.authorizer is not None:
            from oncelog.broker.access import Guard  # A plain broker does without it.

            acls, counts = (lambda: self.image.acls), self.server.decisions
            guard = Guard(self.clock, acls, self.config.authorizer, counts)
            self.dispatcher.wrap(Layer.ACCESS, guard.asking)
        self._quotas = QuotaFollower(self.config, self.clock, self.dispatcher)
        self._quotas.follow(self.image)
        self._show_metrics(exits, context)
        background = asyncio.create_task(self._run())
        exits.push_async_callback(_end, background)
        exits.callback(self._say, "ending the work in the background")
        exits.push_async_callback(self.server.stop)
        await self.server.open(self.dispatcher, lambda: self.image)
        exits.push_async_callback(self._give_up_leadership)

    def _begin_life(self, broker_epoch: int) -> None:
        self.life.begin(broker_epoch, self.feed.known.stored)

    def _directory_failed(self, partitions: list[TopicPartition]) -> None:
        """Have the partitions shown without a leader, and the controller elect others."""
        self.feed.take_off_line(partitions)
        self.controller.report(DirectoryFailed(self.broker_id, tuple(partitions)))

    def _keep_isr(self, partition: Partition) -> None:
        """Keep the ISR of a partition that this broker leads among others."""
        if self._isr is None:
            # Imported here because a lone broker leads no other replica.
            from oncelog.broker.replication.isr import IsrKeeper

            self._isr = IsrKeeper(
                self.broker_id,
                lambda: self.membership.broker_epoch,
                self.controller.submit,
                self.clock,
                lag_max_ms=self.config.get_int("replica.lag.time.max.ms"),
                on_bug=self.stop_because,
                meter=self.partitions.isr_meter,
            )
        self._isr.lead(partition)

    def _make_fetchers(self, following: Following) -> ReplicaFetchers:
        from oncelog.broker.replication.fetchers import make_fetchers

        return make_fetchers(following, self.config, self.peers, self.clock, self.feed)

    def _receive_markers(self) -> ReceivedMarkers:
        if self._received_markers is None:
            from oncelog.broker.coordination.received_markers import ReceivedMarkers

            self._received_markers = ReceivedMarkers(LocalLeaders(self.partitions))
        return self._received_markers

    async def _end_replication(self) -> None:
        if self._isr is not None:
            self._isr.close()
        if self._others is not None:
            await self._others.close()

    def _know_others(self) -> OtherBrokers:
        """Ask other brokers about transactions from now on: the second one is registered."""
        from oncelog.broker.others import OtherBrokers

        others = OtherBrokers(
            self.membership, self.feed, self.peers, self.rng, self.transactions, self.stop_because
        )
        self._coordinators.use(others.coordinators)
        self.markers.join(others.leaders)
        self.transactions.catch_up = self.groups.catch_up = self.feed.catch_up
        return others

    async def _start_metrics(self, exits: AsyncExitStack) -> None:
        """Listen at the address of the metrics first, so that a long recovery is seen there."""
        if self.config.metrics_address is not None:
            # Imported here because most brokers have no such address.
            from oncelog.broker.metrics import MetricsServer

            self.metrics = MetricsServer(self.network, self.clock)
            await self.metrics.start(self.config.metrics_address, exits)

    def _show_metrics(self, exits: AsyncExitStack, context: Context) -> None:
        if self.config.metrics_address is not None:
            from oncelog.broker.metrics import Parts, show

            parts = Parts(context, self.dispatcher, self.membership)
            exits.callback(show(self.metrics, parts, lambda: self.stopping))

    async def _follow(self, delta: ImageDelta) -> FolderTask | None:
        """Apply a step of the metadata, and return what it leaves to do in the folders.

        Partitions follow first, then the coordinators that live on them.
        """
        if self._quotas is not None:
            self._quotas.follow(self.feed.known.image)
        await self.life.follow(self.feed.known.image)
        work = await self.partitions.take_roles(delta, self.feed.known.image)
        self._coordinators_follow(delta)
        carry_out = partial(self._make_folders, work)
        return None if work.is_empty else FolderTask(work.unserved, carry_out)

    async def _make_folders(self, work: FolderWork) -> dict[TopicPartition, StorageFailure]:
        """Carry out a step in the folders; coordinators on new partitions are loaded then."""
        unmade = await self.partitions.make_folders(work)
        self._coordinators_follow(ImageDelta())
        return unmade

    def _coordinators_follow(self, delta: ImageDelta) -> None:
        image = self.feed.known.image
        if self._others is None and len(image.brokers) > 1:
            self._others = self._know_others()
        self.markers.apply(image)
        metadata = metadata_of(image, self.config)
        self.transactions.apply(delta, image, metadata)
        self.groups.apply(delta, image, metadata)
        if self._others is not None:
            self._others.apply()

    def _say(self, step: str) -> None:
        self.stopping = step

    async def _close_logs(self) -> None:
        # After a violated invariant the next start has to recover everything.
        if self.stopped_because is not None or self._is_killed:
            await self.disk.run(partial(self.logs.abandon, by_a_kill=self._is_killed))
            return
        self._say(f"closing and syncing {len(self.logs)} logs")
        failure = await close_logs(self.logs, self.disk)
        self._closed_cleanly = failure is None
        if failure is not None:
            log.error("not closed in order, so the next start recovers: %s", failure)
            self.stopped_because = self.stopped_because or failure

    async def _run(self) -> None:
        """The background work of all parts. If any of it ends with an error, the broker stops."""
        parts = self.feed, self.controller
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.life.run())
                tasks.create_task(balance_leaders(self.broker_id, self.config, *parts, self.clock))
                tasks.create_task(self.partitions.run())
                tasks.create_task(self.transactions.run())
                tasks.create_task(self.groups.run())
                tasks.create_task(self.feed.make_unmade())
                tasks.create_task(self.server.run())
                tasks.create_task(self.deletions.run())
                tasks.create_task(make_replicas_again(self.broker_id, self.logs, *parts))
                tasks.create_task(self.mover.run())
                tasks.create_task(import_machines(self.clock))
        except BaseExceptionGroup as failures:
            self.stop_because(failures.exceptions[0])

    async def _give_up_leadership(self) -> None:
        """Have other brokers lead before this one stops, unless it stops at once."""
        self._say("ending requests")
        if self.stopped_because is None and not self._is_killed:
            self._say("moving leaderships to other brokers")
            is_in_use = is_coordinator_in_use(self.transactions, self.clock.now_ms())
            await self.member.give_up_leadership(is_coordinator_in_use=is_in_use)

    async def _leave_cluster(self) -> None:
        await self.member.stop(at_once=self._is_killed)

    async def _end_session(self) -> None:
        if not self._is_killed:
            await self.membership.leave()

    def stop_because(self, error: BaseException) -> None:
        """Ask the owner to stop: no request may be acknowledged any more.

        Connections are closed.
        """
        if self.stopped_because is not None:
            return
        if isinstance(error, StorageFailure):
            log.critical("stopping, as no log directory is left: %s", error)
        else:
            bug = None if isinstance(error, BrokerIdTaken) else error
            log.critical("stopping: %s", error, exc_info=bug)
        self.stopped_because = error
        self.server.abort()
        self._stop_requested.set()

    def kill(self) -> None:
        """Have `stop` leave the log directories as the death of this process would.

        Connections are cut, what was not answered is not answered any more.
        """
        self._is_killed = True
        self.server.abort()
        self._stop_requested.set()

    def let_go_in_child(self) -> None:
        """Close the parent's sockets in a forked child."""
        self.server.let_go_in_child()
        if self.config.metrics_address is not None:
            self.metrics.let_go_in_child()

    def request_stop(self) -> None:
        """Ask for a clean stop (a signal handler's call)."""
        self._stop_requested.set()

    async def wait_until_stop_is_requested(self) -> None:
        """Return when `request_stop` or `stop_because` was called."""
        await self._stop_requested.wait()


async def _end(background: asyncio.Task[None]) -> None:
    background.cancel()
    await asyncio.wait([background])

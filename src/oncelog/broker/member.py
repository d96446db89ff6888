"""Keeps this broker registered in the cluster, life after life.

A registration is written before the broker leads, and the controller decides on each: to it, it is
the end of the broker's life before. When the session ends while the broker lives, it serves what it
leads until the metadata says otherwise, and registers again.

The stop in order is a controlled shutdown: the controller moves leaderships to other brokers first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from oncelog.broker.controller.office import Office
from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership, Describe
from oncelog.broker.membership.stores import session_timeout_ms
from oncelog.controller.decision import ChangeOutcome
from oncelog.controller.events import BrokerRegistered, BrokerShuttingDown
from oncelog.controller.image import BrokerImage, MetadataImage
from oncelog.controller.reach import OTHERS_COUNT_MIN
from oncelog.core.cluster_limits import CONTROLLER_WAIT_MS_MAX, HANDOVER_LINGER_MS
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import STORE_RETRY_MS_MAX, STORE_RETRY_MS_MIN
from oncelog.metadata.store import MetadataStore, StoreFailure
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.clock import Clock

if TYPE_CHECKING:
    from oncelog.broker.controller.forwarding import Forwarding
    from oncelog.broker.controller.reach import ReachWatch
    from oncelog.broker.handover import Handover
    from oncelog.broker.peers.connections import PeerNetwork

__all__ = ["ClusterMember"]

log = logging.getLogger(__name__)


class ClusterMember:
    """The broker as the cluster sees it.

    `may_take_over` is that of `ClusterMembership`; `stop_because` is called with what ends the work
    in the background, which is a bug.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        feed: MetadataFeed,
        network: PeerNetwork,
        clock: Clock,
        rng: random.Random,
        may_take_over: Callable[[int], bool],
        stop_because: Callable[[BaseException], None],
    ) -> None:
        self.broker_id = broker_id = config.get_int("node.id")
        self.membership = membership = ClusterMembership(
            broker_id, store, feed, session_timeout_ms(config), may_take_over
        )
        office = Office(config, store, feed, membership, clock, rng)

        def forwarding() -> Forwarding:
            # Imported here because a lone broker sends no events.
            from oncelog.broker.controller.forwarding import Forwarding

            return Forwarding(network, config, feed, membership, clock, rng)

        def reach_watch() -> ReachWatch:
            # Imported here because most brokers have no two others.
            from oncelog.broker.controller.reach import ReachWatch

            timeout_ms = session_timeout_ms(config)
            return ReachWatch(broker_id, office, feed, network, timeout_ms, clock, rng)

        def handover() -> Handover:
            # Imported here because a lone broker hands nothing over.
            from oncelog.broker.handover import Handover

            return Handover(broker_id, feed, network, clock, rng)

        self.controller = ControllerShell(feed, membership, office, forwarding, rng)
        self._make_reach_watch = reach_watch
        self._make_handover = handover
        self._office = office
        self._config = config
        self._feed = feed
        self._clock = clock
        self._stop_because = stop_because
        self._backoff = Backoff(STORE_RETRY_MS_MIN, STORE_RETRY_MS_MAX, rng.uniform)
        self._decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._following: asyncio.Task[None] | None = None
        self._on_life: Callable[[int], None]
        self._describe: Callable[[MetadataImage], tuple[BrokerImage, BrokerRegistered]]

    async def join(
        self,
        describe: Callable[[MetadataImage], tuple[BrokerImage, BrokerRegistered]],
        on_life: Callable[[int], None],
    ) -> frozenset[TopicPartition]:
        """Begin the first life; return once the controller has decided on it.

        Returns which replicas are off line here, as the controller was told: where the metadata has
        changed since, it counts on the others.

        `describe` makes the registration, its epoch the last one that this broker knows of, and the
        event, from the metadata as it is before the registration. `on_life` is called with the
        epoch of each life that has every record, or of which the controller has decided what it
        lacks: the next start may take that life's records for complete. Raises `StoreFailure`, and
        `OncelogError` when the controller refuses the broker.
        """
        self._describe, self._on_life = describe, on_life
        events: list[BrokerRegistered] = []

        def described(image: MetadataImage) -> BrokerImage:
            own, event = describe(image)
            events.append(event)
            return own

        own = await self._register(described)
        event = replace(events[-1], broker_epoch=own.broker_epoch)
        self._following = asyncio.create_task(self._follow(own, event))
        await asyncio.wait({self._decided, self._following}, return_when=asyncio.FIRST_COMPLETED)
        if not self._decided.done():
            raise self._following.exception() or OncelogError("the broker is not in the cluster")
        self._decided.result()
        return event.off_line

    async def give_up_leadership(self, *, is_coordinator_in_use: bool) -> None:
        """Have the controller move leaderships to other brokers, as far as others can lead.

        Asked again while another broker could lead what this one leads, so often and after such
        pauses as the configs say. Where no controller answers it waits as long as all these pauses,
        and once. It returns when the others name the leaders after this one (`Handover`), and a
        moment later where producers have used this broker as their coordinator.
        """
        config = self._config
        is_alone = self._feed.known.stored.is_alone(self.broker_id)
        if config.get_bool("controlled.shutdown.enable") and not is_alone:
            retries_count = config.get_int("controlled.shutdown.max.retries")
            pause_ms = config.get_int("controlled.shutdown.retry.backoff.ms")
            wait_ms = min(max(retries_count, 1) * pause_ms, CONTROLLER_WAIT_MS_MAX)
            handover = self._make_handover()
            led = handover.led()
            for number in range(1 + retries_count):
                if number:
                    await self._clock.sleep(pause_ms)
                if await self._is_done(wait_ms) or not self._is_replaceable():
                    break
            if given_up := led - handover.led():
                await handover.heard(given_up)
                if is_coordinator_in_use:
                    await self._clock.sleep(HANDOVER_LINGER_MS)
        # Not before: the last brokers of a cluster that stops have to find a controller.
        self._office.is_wanted = False

    async def stop(self, *, at_once: bool = False) -> None:
        """End the work in the background; see `ControllerShell.close`."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self.controller.close(at_once=at_once)

    async def _follow(self, own: BrokerImage, event: BrokerRegistered) -> None:
        """The work of a member of the cluster, from its first registration on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._feed.run())
                tasks.create_task(self._feed.watch())
                tasks.create_task(self._office.run())
                tasks.create_task(self._watch_reach())
                tasks.create_task(self._live(own, event))
        except BaseExceptionGroup as failures:
            self._stop_because(failures.exceptions[0])
            raise failures.exceptions[0] from failures

    async def _watch_reach(self) -> None:
        """Once two others are registered, see to it that the controller reaches any."""
        while len((image := self._feed.known.stored).brokers) < 1 + OTHERS_COUNT_MIN:
            await self._feed.moved_past(image.revision)
        await self._make_reach_watch().run()

    async def _live(self, own: BrokerImage, event: BrokerRegistered) -> None:
        """Have the controller decide on each life, and begin the next one when it is over."""
        while True:
            ended = asyncio.ensure_future(self.membership.wait_ended())
            deciding = self.controller.report(event)
            is_decided = False
            try:
                await asyncio.wait({ended, deciding}, return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    is_decided = not deciding.result().error
                    if is_decided and not own.is_clean:
                        self._on_life(own.broker_epoch)
                    self._note(deciding.result())
                    await ended
            finally:
                ended.cancel()
                deciding.cancel()
            log.warning(
                "the session with the metadata store has ended: broker %d registers again",
                self.broker_id,
            )
            if is_decided:
                # The process has kept its logs, but for directories that have failed.
                own = replace(own, is_clean=True)
                _, now = self._describe(self._feed.known.stored)
                event = replace(event, is_clean=True, uncertain={}, off_line=now.off_line)
            own = await self._register_again(own)
            event = replace(event, broker_epoch=own.broker_epoch)

    async def _register(self, describe: Describe) -> BrokerImage:
        own = await self.membership.register(describe, self._office.claim)
        self._feed.announce(own)
        if own.is_clean:
            self._on_life(own.broker_epoch)
        return own

    async def _register_again(self, own: BrokerImage) -> BrokerImage:
        for attempt in count():
            try:
                return await self._register(lambda _: own)
            except StoreFailure as failure:
                self._feed.health.failed(failure)
            await self._clock.sleep(self._backoff.delay_ms(attempt))
        raise AssertionError

    def _note(self, outcome: ChangeOutcome) -> None:
        """Note the controller's decision on a life; one that is over already does not matter."""
        if not outcome.error:
            if not self._decided.done():
                self._decided.set_result(None)
        elif outcome.error is not ErrorCode.stale_broker_epoch:
            problem = outcome.message or "the broker cannot be registered"
            if self._decided.done():
                log.error("the controller refuses this broker: %s", problem)
            else:
                self._decided.set_exception(OncelogError(problem))

    async def _is_done(self, wait_ms: int) -> bool:
        """Ask the controller once; whether nothing is left to move, or no broker answers."""
        event = BrokerShuttingDown(self.broker_id, self.membership.broker_epoch)
        asking = self.controller.report(event)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                outcome = await asking
        except TimeoutError:
            log.warning("stopping without a controller that moves leaderships")
            return True
        if outcome.error or outcome.remaining_count:
            log.info(
                "asked the controller to move leaderships: %s, %d are left",
                *(outcome.error.name.upper(), outcome.remaining_count),
            )
        return not outcome.error and not outcome.remaining_count

    def _is_replaceable(self) -> bool:
        """Whether another live broker has a replica of what this one leads."""
        image, me = self._feed.known.stored, self.broker_id
        live = {one.broker_id for one in image.brokers.values() if not one.is_shutting_down}
        return any(
            partition.leader == me and live.intersection(partition.replicas) - {me}
            for topic in image.topics.values()
            for partition in topic.partitions
        )

"""The controller's office: claims it, and decides on events as long as this broker holds it.

The store knows who holds it: the value at `CONTROLLER_PATH` is bound to the session of the broker
that wrote it, and each claim raises the controller epoch. Every write of a decision depends on the
version of that epoch: a controller that was replaced, and does not know it, changes nothing.

`oncelog.controller.decisions` decides on what is known, the store takes the writes only where
nothing they replace has changed since.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from oncelog.broker.controller.meters import ElectionMeter
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.controller import layout
from oncelog.controller.decision import ControllerDecision, ControllerEvent, DecisionContext, Put
from oncelog.controller.decisions import decide, refused
from oncelog.controller.events import BrokerRegistered, BrokersChanged, CreateTopics
from oncelog.controller.image import MetadataImage
from oncelog.controller.layout import CONTROLLER_EPOCH_PATH as EPOCH_PATH
from oncelog.controller.layout import CONTROLLER_PATH
from oncelog.controller.states import elected_by
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import TopicId
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import (
    Check,
    Conflict,
    Fenced,
    MetadataStore,
    SessionExpired,
    SessionId,
    StoreFailure,
    Write,
    WriteLimit,
)
from oncelog.runtime.clock import Clock
from oncelog.runtime.ids import fresh_uuid

__all__ = ["EventVerdict", "Office"]

log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")


class EventVerdict(NamedTuple, Generic[ReplyT]):
    """What became of an event: its reply once it is decided, else the error why it is not."""

    reply: ReplyT | None = None
    """None: it was not decided on. With an error: it may take effect yet, and says so."""
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    revision: int = -1
    """That of the metadata which the reply is about."""


class Office:
    """The office as this broker sees it. One event is decided at a time, in their order."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        feed: MetadataFeed,
        membership: ClusterMembership,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.is_wanted = True
        """Whether this broker claims the office when it is free: not while it stops."""
        self.is_left = False
        """Whether it leaves the office to others, because it reaches none of them."""
        self.on_elected: Callable[[int], None] = lambda _: None
        """Called with the revision of the metadata once leaders of it were elected."""
        self.config = config
        self.elections = ElectionMeter()
        self._store = store
        self._feed = feed
        self._membership = membership
        self._clock = clock
        self._rng = rng
        self._claimed_epoch = -1
        """The controller epoch of the last claim, if it was written."""
        self._begun_epoch = -1
        """The one in which everything was brought in order."""
        self._registered: dict[int, int] = {}
        """The epochs of the brokers that were registered then."""
        self._over: dict[int, int] = {}
        """The last epochs of those that were not."""
        # Events are decided on in the order in which they came: the lock is fair.
        self._deciding = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        image = self._feed.known.stored
        return (
            image.controller_epoch == self._claimed_epoch
            and image.controller_id == self._membership.broker_id
            and self._membership.is_alive
        )

    def claim(self, session: SessionId) -> list[Write]:
        """Return the writes of a claim; none while another broker holds the office.

        Whether they were written is seen in the metadata.
        """
        known = self._feed.known
        image = known.stored
        is_free = image.controller_id in (-1, self._membership.broker_id)
        if not self.is_wanted or self.is_left or not is_free:
            return []
        self._claimed_epoch = image.controller_epoch + 1
        epoch = layout.encode_number(self._claimed_epoch)
        named = layout.encode_controller(self._membership.broker_id)
        return [
            Write(EPOCH_PATH, epoch, known.version_of(EPOCH_PATH)),
            Write(CONTROLLER_PATH, named, known.version_of(CONTROLLER_PATH), session),
        ]

    async def run(self) -> None:
        """Claim the office when it is free, and see to brokers that are gone, until cancelled."""
        while True:
            revision = self._feed.known.stored.revision
            try:
                await self.look()
            except StoreFailure as failure:
                self._feed.health.failed(failure)
                await self._clock.sleep(self._feed.health.pause_ms)
            else:
                await self._feed.moved_past(revision)

    async def decide(self, event: ControllerEvent[ReplyT]) -> EventVerdict[ReplyT]:
        """Decide on an event, and write what is decided. The caller has seen `is_held`."""
        async with self._deciding:
            health = self._feed.health
            if not health.pause_ms:
                try:
                    if self._begun_epoch != self._claimed_epoch and not self._is_own_life(event):
                        begun = await self._begin()
                        if begun.error:
                            return EventVerdict(None, begun.error, begun.message)
                    return await self._write_decision(event)
                except StoreFailure as failure:
                    health.failed(failure)
            return EventVerdict(None, ErrorCode.request_timed_out, str(health.failure))

    def refusal(
        self,
        event: ControllerEvent[ReplyT],
        error: ErrorCode,
        message: str,
        image: MetadataImage | None = None,
    ) -> ReplyT:
        """Return the reply to an event that is not decided on, as of an image of the metadata.

        What would be refused anyway is refused for its own reason.
        """
        decision = self._decide(event, self._fresh_ids(event), image or self._feed.known.stored)
        return refused(decision.reply, error, message)

    async def look(self) -> None:
        """Do what the metadata asks for. Raises `StoreFailure`."""
        image = self._feed.known.stored
        session = self._membership.session_id
        if self.is_held:
            own = image.brokers.get(self._membership.broker_id)
            is_new = self._begun_epoch != self._claimed_epoch and (own is None or own.is_clean)
            if is_new or self._has_lost(image):
                async with self._deciding:
                    verdict = await self._begin()
                if verdict.error is ErrorCode.request_timed_out:
                    raise StoreFailure(verdict.message or "the store does not answer")
        elif session is not None and (writes := self.claim(session)):
            try:
                await self._store.write_all(writes)
            except (Conflict, SessionExpired):
                log.debug("another broker was faster, or the session has ended")
            await self._feed.read()

    async def resign(self) -> None:
        """Give the office up if it is held; an event that is being decided on comes before.

        Raises `StoreFailure`.
        """
        async with self._deciding:
            if not self.is_held:
                return
            version_of = self._feed.known.version_of
            leaving = Write(CONTROLLER_PATH, None, version_of(CONTROLLER_PATH))
            try:
                await self._store.write_all(
                    [leaving], fence=Check(EPOCH_PATH, version_of(EPOCH_PATH))
                )
            except (Conflict, Fenced):
                log.debug("another broker has the office already")
            await self._feed.read()

    def _is_own_life(self, event: ControllerEvent[Any]) -> bool:
        """Whether it is about a new life of the controller's own broker.

        It is decided on first, because a broker that may have lost records leads nothing before.
        """
        me = self._membership.broker_id
        return isinstance(event, BrokerRegistered) and event.broker_id == me

    def _has_lost(self, image: MetadataImage) -> bool:
        """Whether a life that was registered is over."""
        brokers = image.brokers
        # One that was registered since this controller looked last may be gone again already.
        if any(self._over.get(broker_id) != epoch for broker_id, epoch in _over(image).items()):
            return True
        return any(
            broker_id not in brokers or brokers[broker_id].broker_epoch != epoch
            for broker_id, epoch in self._registered.items()
        )

    async def _begin(self) -> EventVerdict[Any]:
        """Bring every partition in order that relies on a broker which is gone.

        A new controller reads everything before. Raises `StoreFailure`.
        """
        epoch = self._claimed_epoch
        await self._feed.read()
        if not self.is_held:
            return _NOT_CONTROLLER
        if self._begun_epoch != epoch:
            is_alone = self._feed.known.stored.is_alone(self._membership.broker_id)
            level = logging.DEBUG if is_alone else logging.INFO
            log.log(level, "this broker is the controller (epoch %d)", epoch)
        verdict = await self._write_decision(BrokersChanged())
        if not verdict.error:
            self._begun_epoch = epoch
            image = self._feed.known.stored
            self._registered = {one.broker_id: one.broker_epoch for one in image.brokers.values()}
            self._over = _over(image)
        return verdict

    async def _write_decision(self, event: ControllerEvent[ReplyT]) -> EventVerdict[ReplyT]:
        """Decide until no other broker has written in between. Raises `StoreFailure`."""
        fresh_ids = self._fresh_ids(event)
        epoch = self._claimed_epoch
        fence = Check(EPOCH_PATH, self._feed.known.version_of(EPOCH_PATH))
        if not self.is_held:
            return _NOT_CONTROLLER
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
            known = self._feed.known
            before, began_ms = known.stored, self._clock.monotonic_ms()
            revision = before.revision
            decision = self._decide(event, fresh_ids, known.stored)
            if not decision.writes:
                # What changes nothing is answered from the newest metadata only.
                await self._feed.read()
                if known.stored.revision != revision:
                    continue
                if self._claimed_epoch != epoch or not self.is_held:
                    return _NOT_CONTROLLER
                return EventVerdict(decision.reply, revision=revision)
            writes = [Write(*put, known.version_of(put.path)) for put in decision.writes]
            if (refusal := _refusal(decision.reply, writes, self._store.write_limit)) is not None:
                return refusal
            parts = _parts(writes, self._store.write_limit)
            done_count = 0
            try:
                for part in parts:
                    checks = _same_lives(part, known.version_of)
                    await self._store.write_all(part, checks=checks, fence=fence)
                    done_count += 1
            except Conflict:
                await self._feed.read()
                continue
            except Fenced as fenced:
                await self._feed.read()
                if done_count:
                    # The next controller finishes what was begun, or undoes it.
                    return _left_open(decision.reply, fenced)
                return _NOT_CONTROLLER
            except StoreFailure as failure:
                self._feed.health.failed(failure)
                return _left_open(decision.reply, failure)
            for notice in decision.notices:
                log.log(logging.WARNING if notice.is_warning else logging.INFO, notice.text)
            try:
                await self._feed.read()
            except StoreFailure as failure:
                self._feed.health.failed(failure)
                return _left_open(decision.reply, failure)
            self._count(before, decision.writes, began_ms)
            return EventVerdict(decision.reply, revision=known.stored.revision)
        text = "Too many brokers change this at once."
        return EventVerdict(None, ErrorCode.request_timed_out, text)

    def _count(self, before: MetadataImage, writes: Sequence[Put], began_ms: float) -> None:
        elected = elected_by(before, writes)
        if elected.leaders_count:
            elapsed_ms = int(self._clock.monotonic_ms() - began_ms)
            self.elections.elected(elected.unclean_count, elapsed_ms)
            self.on_elected(self._feed.known.stored.revision)

    def _decide(
        self, event: ControllerEvent[ReplyT], fresh_ids: tuple[TopicId, ...], image: MetadataImage
    ) -> ControllerDecision[ReplyT]:
        failures = self._feed.unmade.values()
        no_room = next(map(str, failures), None)
        context = DecisionContext(self.config, fresh_ids, no_room)
        return decide(image, event, context)

    def _fresh_ids(self, event: ControllerEvent[Any]) -> tuple[TopicId, ...]:
        count = len(event.topics) if isinstance(event, CreateTopics) else 0
        return tuple(fresh_uuid(self._rng) for _ in range(count))


def _over(image: MetadataImage) -> dict[int, int]:
    """Return the last epoch of each broker that is not registered."""
    return {
        broker_id: epoch
        for broker_id, epoch in image.broker_epochs.items()
        if broker_id not in image.brokers
    }


def _same_lives(writes: Sequence[Write], version_of: Callable[[str], int]) -> list[Check]:
    """Return the checks that each registration to be written is of the life that is known.

    Its own version does not tell: it starts at 1 where a life begins without a registration.
    """
    written = [one.path for one in writes if one.path.startswith(layout.BROKERS_PREFIX)]
    ids = [int(path.removeprefix(layout.BROKERS_PREFIX)) for path in written]
    return [Check(path, version_of(path)) for path in map(layout.broker_epoch_path, ids)]


_NOT_CONTROLLER: EventVerdict[Any] = EventVerdict(
    None, ErrorCode.not_controller, "another broker is the controller"
)


def _left_open(reply: ReplyT, failure: OncelogError) -> EventVerdict[ReplyT]:
    """Return the verdict on an event that may be written all the same, or in part.

    The feed may have brought it already: decided on again, a topic would exist to the client that
    created it.
    """
    error, text = ErrorCode.request_timed_out, str(failure)
    return EventVerdict(refused(reply, error, text), error, text)


def _refusal(
    reply: ReplyT, writes: Sequence[Write], limit: WriteLimit | None
) -> EventVerdict[ReplyT] | None:
    """Return the verdict on an event with a value that the store takes in no step."""
    if limit is None or limit.fits(writes):
        return None
    for write in writes:
        if not limit.fits([write]):
            text = f"the metadata store does not take the value at {write.path}: it is too large"
            error = ErrorCode.policy_violation
            return EventVerdict(refused(reply, error, text), error, text)
    return None


def _parts(writes: Sequence[Write], limit: WriteLimit | None) -> Sequence[Sequence[Write]]:
    """Cut the writes of a decision to what the store takes in one step.

    A decision has them in such an order that each beginning of them is valid.
    """
    if limit is None or limit.fits(writes):
        return [writes]
    parts: list[list[Write]] = [[]]
    size = 0
    for write in writes:
        bytes_count = len(write.path) + len(write.value or b"")
        is_full = len(parts[-1]) == limit.writes_count or size + bytes_count > limit.bytes_count
        if is_full and size:
            parts.append([])
            size = 0
        parts[-1].append(write)
        size += bytes_count
    return parts

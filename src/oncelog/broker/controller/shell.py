"""Has the controller decide on events, wherever it is: here or on another broker.

Every change of the metadata takes this way. The reply is given once this broker has applied the
change, and those others that answer soon: a client that created a topic can use it at once, at
whichever broker. A change of ACLs is answered once all brokers have applied it: no broker lets in
by then whom it locks out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.broker.controller.office import EventVerdict, Office
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import (
    AlterClientQuotas,
    AlterGroupConfigs,
    AlterReassignments,
    AlterScramCredentials,
    AlterTopicConfigs,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopic,
    ElectLeaders,
    UpdateFeatures,
)
from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.controller.placement import known_brokers
from oncelog.controller.topics import TopicOutcome, TopicToCreate, new_internal_topic
from oncelog.core.cluster_limits import CONTROLLER_WAIT_MS_MAX, CONTROLLER_WAIT_MS_MIN
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import INTERNAL_TOPICS, TopicId
from oncelog.core.limits import CONTROLLER_EVENTS_COUNT_MAX, TOPICS_CREATED_TOGETHER_COUNT_MAX
from oncelog.runtime.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.controller.forwarding import Forwarding

__all__ = ["ControllerShell"]

log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

RETRY_MS_MIN, RETRY_MS_MAX = 20, 1_000
"""Pause before the controller is looked for again, unless the metadata says sooner who it is."""
_ASK_AGAIN: Final = frozenset({ErrorCode.not_controller, ErrorCode.stale_broker_epoch})
"""The event was not decided on: another broker is the controller, or a life of this one is over."""
_NO_ANSWER: Final = frozenset({ErrorCode.request_timed_out, ErrorCode.broker_not_available})
"""The event may take effect, or no broker can decide on it now."""
_EVERYWHERE: Final = (CreateAcls, DeleteAcls, AlterScramCredentials, AlterClientQuotas)
"""Events that are answered once what they change is in force on every broker."""
_ON_OTHERS: Final = (
    AlterGroupConfigs,
    AlterReassignments,
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopic,
    ElectLeaders,
    UpdateFeatures,
)
"""Events of clients, who may ask another broker next."""


class ControllerShell:
    """Takes events by `submit` and `report`, on every broker.

    `forwarding` makes the way to the other brokers, with the first event that needs it.
    """

    def __init__(
        self,
        feed: MetadataFeed,
        membership: ClusterMembership,
        office: Office,
        forwarding: Callable[[], Forwarding],
        rng: random.Random,
        wait_ms_max: float = CONTROLLER_WAIT_MS_MAX,
    ) -> None:
        self.office = office
        office.on_elected = self._tell_others
        self._feed = feed
        self._membership = membership
        self._make_forwarding = forwarding
        self._forwarding: Forwarding | None = None
        self._loop = asyncio.get_running_loop()
        self._wait_s_max = wait_ms_max / 1000
        self._backoff = Backoff(RETRY_MS_MIN, RETRY_MS_MAX, rng.uniform)
        self._changes: set[asyncio.Task[Any]] = set()
        """Events of this broker that are not answered."""
        self._decisions: set[asyncio.Task[Any]] = set()
        """Those, and events of other brokers, that are being decided on here."""
        self._reports: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def due_s(self, timeout_ms: float) -> float:
        """Return until when a client's request waits for a controller; see `submit`."""
        wait_s = max(timeout_ms, CONTROLLER_WAIT_MS_MIN) / 1000
        return self._loop.time() + min(wait_s, self._wait_s_max)

    async def submit(self, event: ControllerEvent[ReplyT], due_s: float | None = None) -> ReplyT:
        """Have an event decided on and apply it here; returns the decision's reply.

        REQUEST_TIMED_OUT when no controller has answered by `due_s` (of the event loop; None: as
        late as possible), and when this broker stops. An event is never sent again when it may have
        taken effect. A cancelled caller does not cut it: librdkafka closes its bootstrap connection
        with a request in flight, and its next connection should find the whole topic.
        """
        if self._is_closed or len(self._changes) >= CONTROLLER_EVENTS_COUNT_MAX:
            text = _STOPS if self._is_closed else _TOO_MANY
            return self.office.refusal(event, ErrorCode.request_timed_out, text)
        due_s = self._loop.time() + self._wait_s_max if due_s is None else due_s
        return await asyncio.shield(_begin(self._changes, self._submitted(event, due_s)))

    def report(self, event: ControllerEvent[ReplyT]) -> asyncio.Task[ReplyT]:
        """Have an event decided on that may be decided on twice; asked again until it is.

        The result is the decision's reply. Cancel it to give up.
        """
        return _begin(self._reports, self._repeated(event))

    async def take(
        self, broker_id: int, broker_epoch: int, event: ControllerEvent[ReplyT]
    ) -> EventVerdict[ReplyT]:
        """Decide on an event of another broker, in that life of it."""
        refusal = await self.check_sender(broker_id, broker_epoch)
        if refusal is not None:
            return refusal
        if self._is_closed or len(self._decisions) >= CONTROLLER_EVENTS_COUNT_MAX:
            text = _STOPS if self._is_closed else _TOO_MANY
            return EventVerdict(None, ErrorCode.request_timed_out, text)
        return await self._decide(event)

    async def check_sender(self, broker_id: int, broker_epoch: int) -> EventVerdict[Any] | None:
        """Return why an event of that life of a broker is not decided on here; None: it is."""
        if not self.office.is_held:
            return EventVerdict(None, ErrorCode.not_controller, "another broker is the controller")
        if not self._is_registered(broker_id, broker_epoch):
            await self._feed.read()
            if not self._is_registered(broker_id, broker_epoch):
                text = f"broker {broker_id} is not registered in epoch {broker_epoch}"
                return EventVerdict(None, ErrorCode.stale_broker_epoch, text)
        return None

    async def close(self, *, at_once: bool) -> None:
        """Answer the events that wait, and give up reports. None is begun after this.

        What is being decided here is written first, unless this is to end `at_once`.
        """
        self._is_closed = True
        # A task that is cancelled before its first step would answer nothing.
        await asyncio.sleep(0)
        for task in self._changes | self._reports | (self._decisions if at_once else set()):
            task.cancel()
        if waiting := self._changes | self._reports | self._decisions:
            await asyncio.wait(waiting)
        if self._forwarding is not None:
            await self._forwarding.close()

    def _is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._feed.known.stored.brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    async def _submitted(self, event: ControllerEvent[ReplyT], due_s: float) -> ReplyT:
        try:
            return await self._carried_out(event, due_s)
        except asyncio.CancelledError:
            # Only `close` cancels it, and who asked is to be answered all the same.
            return self.office.refusal(event, ErrorCode.request_timed_out, _STOPS)

    async def _carried_out(self, event: ControllerEvent[ReplyT], due_s: float) -> ReplyT:
        before = self._feed.known.stored
        attempts = count()
        while True:
            revision = self._feed.known.stored.revision
            verdict = await self._ask(event, due_s)
            left_s = due_s - self._loop.time()
            if verdict.error not in _ASK_AGAIN or left_s <= 0:
                return await self._concluded(event, verdict, before)
            await self._pause(revision, min(self._backoff.delay_ms(next(attempts)) / 1000, left_s))

    async def _repeated(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        attempts = count()
        while True:
            revision = self._feed.known.stored.revision
            verdict = await self._ask(event)
            if verdict.error not in _ASK_AGAIN | _NO_ANSWER:
                return await self._concluded(event, verdict, self._feed.known.stored)
            await self._pause(revision, self._backoff.delay_ms(next(attempts)) / 1000)

    async def _ask(
        self, event: ControllerEvent[ReplyT], due_s: float | None = None
    ) -> EventVerdict[ReplyT]:
        """Have the controller decide, if it is known who that is."""
        health = self._feed.health
        if health.pause_ms:
            # What is decided elsewhere could not be applied here.
            return EventVerdict(None, ErrorCode.request_timed_out, str(health.failure))
        if self.office.is_held:
            return await self._decide(event)
        controller_id = self._feed.known.stored.controller_id
        if controller_id in (-1, self._membership.broker_id):
            return EventVerdict(None, ErrorCode.not_controller, "no broker is the controller")
        try:
            async with asyncio.timeout_at(due_s):
                return await self._others().send(controller_id, event)
        except TimeoutError:
            text = f"broker {controller_id}, the controller, does not answer"
            return EventVerdict(None, ErrorCode.request_timed_out, text)

    def _others(self) -> Forwarding:
        if self._forwarding is None:
            self._forwarding = self._make_forwarding()
        return self._forwarding

    async def _decide(self, event: ControllerEvent[ReplyT]) -> EventVerdict[ReplyT]:
        return await asyncio.shield(_begin(self._decisions, self.office.decide(event)))

    async def _concluded(
        self, event: ControllerEvent[ReplyT], verdict: EventVerdict[ReplyT], before: MetadataImage
    ) -> ReplyT:
        """Return the reply to an event, once this broker has applied what it is about.

        `before` is the metadata before the event was sent: what it has made since is not a reason
        to refuse it.
        """
        reply = verdict.reply
        if reply is None:
            is_open = verdict.error in _ASK_AGAIN | _NO_ANSWER
            error = ErrorCode.request_timed_out if is_open else verdict.error
            reply = self.office.refusal(event, error, verdict.message or error.name, before)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s_max):
                await self._feed.reach(verdict.revision)
        if verdict.reply is not None and not self._is_alone:
            if isinstance(event, _EVERYWHERE):
                await self._reach_everywhere(verdict.revision)
            elif isinstance(event, _ON_OTHERS):
                # A broker that stops waits for no other one, and says what was done.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._others().reach_others(verdict.revision)
        return reply

    def _tell_others(self, revision: int) -> None:
        """Have the others read who leads now: they find out by themselves some time later."""
        if not self._is_closed and not self._is_alone:
            _begin(self._reports, self._others().reach_others(revision))

    @property
    def _is_alone(self) -> bool:
        return self._feed.known.stored.is_alone(self._membership.broker_id)

    async def _reach_everywhere(self, revision: int) -> None:
        """Wait until all brokers have applied a revision, as far as they can be reached."""
        if behind := await self._others().reach_everywhere(revision):
            log.warning(
                "brokers %s have not said that they go by users, ACLs and quotas as changed: each "
                "does once it has read the metadata",
                sorted(behind),
            )

    async def _pause(self, revision: int, pause_s: float) -> None:
        """Wait until the metadata moves past a revision, for so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._feed.moved_past(revision)

    # --- topics, for callers inside the broker

    async def create_topics(
        self,
        topics: Sequence[TopicToCreate],
        *,
        validate_only: bool = False,
        due_s: float | None = None,
    ) -> list[TopicOutcome]:
        """Create topics, each by itself; what could be created can be used when this returns.

        So can those that existed already. Several are stored and made in one step, because each
        step waits for the disk.
        """
        outcomes: list[TopicOutcome] = []
        for begin in range(0, len(topics), TOPICS_CREATED_TOGETHER_COUNT_MAX):
            part = tuple(topics[begin : begin + TOPICS_CREATED_TOGETHER_COUNT_MAX])
            reply = await self.submit(CreateTopics(part, validate_only), due_s)
            outcomes += reply
        return outcomes

    async def delete_topic(self, topic_id: TopicId) -> ErrorCode:
        """Delete a topic by its identity; `unknown_topic_id` when there is none (any more)."""
        return (await self.submit(DeleteTopic(topic_id))).error

    async def internal_topic(self, name: str) -> TopicImage:
        """Return one of Kafka's internal topics, creating it on first use.

        Clients ask again soon, so this does not wait long for a controller. Raises `OncelogError`
        when that fails.
        """
        topic = self._feed.image.topic(name)
        if topic is None:
            new = [self._new_internal(name)]
            (outcome,) = await self.create_topics(new, due_s=self.due_s(CONTROLLER_WAIT_MS_MIN))
            topic = self._feed.image.topic(name)
            if topic is None:
                raise OncelogError(f"cannot create {name}: {outcome.message}")
        return topic

    def _new_internal(self, name: str) -> TopicToCreate:
        count = len(known_brokers(self._feed.image))
        return new_internal_topic(name, self.office.config, count)

    async def auto_create(self, name: str, due_s: float) -> ErrorCode:
        """Create a topic because a client named it.

        What Metadata answers for it meanwhile comes back.
        """
        new = self._new_internal(name) if name in INTERNAL_TOPICS else TopicToCreate(name)
        (outcome,) = await self.create_topics([new], due_s=due_s)
        if outcome.error is ErrorCode.topic_already_exists:
            return ErrorCode.none
        if outcome.error in (ErrorCode.request_timed_out, ErrorCode.not_controller):
            # As in Kafka, until the topic is there: clients ask for their metadata again.
            return ErrorCode.unknown_topic_or_partition
        return outcome.error


_TOO_MANY: Final = "Too many changes wait for the controller."
_STOPS: Final = "The broker stops."


def _begin(
    tasks: set[asyncio.Task[Any]], change: Coroutine[Any, Any, ReplyT]
) -> asyncio.Task[ReplyT]:
    task = asyncio.get_running_loop().create_task(change)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

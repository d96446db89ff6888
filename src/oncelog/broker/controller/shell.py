"""Carries out the controller's decisions: one event after the other, in one atomic step each.

Every change of the metadata takes this way. `oncelog.controller.decisions` decides on what is
known, the store takes the writes only where nothing they replace has changed since, and the reply
is given once this broker has applied them: a client that created a topic can use it at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from oncelog.broker.controller.claim import claim_controller
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerEvent,
    DecisionContext,
)
from oncelog.controller.decisions import decide, refused
from oncelog.controller.events import BrokerRegistered, CreateTopics, DeleteTopic
from oncelog.controller.image import TopicImage
from oncelog.controller.topics import TopicOutcome, TopicToCreate, new_internal_topic
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import INTERNAL_TOPICS, TopicId
from oncelog.core.limits import (
    CONTROLLER_EVENTS_COUNT_MAX,
    METADATA_WRITE_ATTEMPTS_MAX,
    TOPICS_CREATED_TOGETHER_COUNT_MAX,
)
from oncelog.metadata.store import (
    Check,
    Conflict,
    Fenced,
    MetadataStore,
    StoreFailure,
    Write,
)
from oncelog.runtime.ids import fresh_uuid

__all__ = ["ControllerShell"]

log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")


class ControllerShell:
    """Takes events by `submit`. It is the controller from `start` on, until another starts."""

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, feed: MetadataFeed, rng: random.Random
    ) -> None:
        self._config = config
        self._store = store
        self._feed = feed
        self._rng = rng
        self._fence: Check | None = None
        # Events are decided on in the order in which they came: the lock is fair.
        self._deciding = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()

    async def start(self, registration: BrokerRegistered) -> None:
        """Claim the office, which fences every earlier controller, and register this broker.

        Raises `StoreFailure`, and `OncelogError` when the registration is refused.
        """
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
            self._fence = await claim_controller(self._store, registration.broker_id)
            await self._feed.read()
            outcome = await self._write_decision(registration)
            # Another broker may start at the same time.
            if outcome.error is not ErrorCode.not_controller:
                break
        if outcome.error:
            problem = OncelogError(outcome.message or "the broker cannot be registered")
            raise self._feed.health.failure or problem

    async def submit(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        """Decide on an event, write it and apply it; returns the decision's reply.

        A cancelled caller does not cut it: librdkafka closes its bootstrap connection with a
        request in flight, and its next connection should find the whole topic.
        """
        if len(self._changes) >= CONTROLLER_EVENTS_COUNT_MAX:
            text = "Too many changes wait for the controller."
            return self._refused(event, ErrorCode.request_timed_out, text)
        return await asyncio.shield(self._begin(self._carry_out(event)))

    def report(self, event: ControllerEvent[ChangeOutcome]) -> None:
        """Submit an event without waiting for its reply."""
        self._begin(self._carry_out(event))

    async def close(self) -> None:
        """Wait for changes that are under way. None is started after this."""
        if self._changes:
            await asyncio.wait(self._changes)

    def _begin(self, change: Coroutine[Any, Any, ReplyT]) -> asyncio.Task[ReplyT]:
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def _carry_out(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        async with self._deciding:
            reply = await self._answer(event)
        await self._feed.follow_known()
        return reply

    async def _answer(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        health = self._feed.health
        if not health.pause_ms:
            try:
                return await self._write_decision(event)
            except StoreFailure as failure:
                health.failed(failure)
        return self._refused(event, ErrorCode.request_timed_out, str(health.failure))

    async def _write_decision(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        """Decide until no other broker has written in between, and return the reply."""
        fresh_ids = self._fresh_ids(event)
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
            known = self._feed.known
            revision = known.stored.revision
            decision = self._decide(event, fresh_ids)
            if not decision.writes:
                # What changes nothing is answered from the newest metadata only.
                await self._feed.read()
                if known.stored.revision != revision:
                    continue
                return decision.reply
            writes = [Write(*put, known.version_of(put.path)) for put in decision.writes]
            try:
                await self._store.write_all(writes, fence=self._fence)
            except Conflict:
                await self._feed.read()
                continue
            except Fenced as fenced:
                return refused(decision.reply, ErrorCode.not_controller, str(fenced))
            except StoreFailure as failure:
                return self._left_open(decision.reply, failure)
            for notice in decision.notices:
                log.log(logging.WARNING if notice.is_warning else logging.INFO, notice.text)
            try:
                await self._feed.read()
            except StoreFailure as failure:
                return self._left_open(decision.reply, failure)
            return decision.reply
        text = "Too many brokers change this at once."
        return self._refused(event, ErrorCode.request_timed_out, text)

    def _left_open(self, reply: ReplyT, failure: StoreFailure) -> ReplyT:
        """Return the reply to an event that may be written all the same.

        The feed may have brought it already: decided on again, a topic would exist to the client
        that created it.
        """
        self._feed.health.failed(failure)
        return refused(reply, ErrorCode.request_timed_out, str(failure))

    def _decide(
        self, event: ControllerEvent[ReplyT], fresh_ids: tuple[TopicId, ...]
    ) -> ControllerDecision[ReplyT]:
        failures = self._feed.unmade.values()
        no_room = next(map(str, failures), None)
        context = DecisionContext(self._config, fresh_ids, no_room)
        return decide(self._feed.known.stored, event, context)

    def _fresh_ids(self, event: ControllerEvent[Any]) -> tuple[TopicId, ...]:
        count = len(event.topics) if isinstance(event, CreateTopics) else 0
        return tuple(fresh_uuid(self._rng) for _ in range(count))

    def _refused(self, event: ControllerEvent[ReplyT], error: ErrorCode, message: str) -> ReplyT:
        return refused(self._decide(event, self._fresh_ids(event)).reply, error, message)

    # --- topics, for callers inside the broker

    async def create_topics(
        self, topics: Sequence[TopicToCreate], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics, each by itself; what could be created can be used when this returns.

        So can those that existed already. Several are stored and made in one step, because each
        step waits for the disk.
        """
        outcomes: list[TopicOutcome] = []
        for begin in range(0, len(topics), TOPICS_CREATED_TOGETHER_COUNT_MAX):
            part = tuple(topics[begin : begin + TOPICS_CREATED_TOGETHER_COUNT_MAX])
            reply = await self.submit(CreateTopics(part, validate_only))
            outcomes += reply
        return outcomes

    async def delete_topic(self, topic_id: TopicId) -> ErrorCode:
        """Delete a topic by its identity; `unknown_topic_id` when there is none (any more)."""
        return (await self.submit(DeleteTopic(topic_id))).error

    async def internal_topic(self, name: str) -> TopicImage:
        """Return one of Kafka's internal topics, creating it on first use.

        Raises `OncelogError` when that fails.
        """
        topic = self._feed.image.topic(name)
        if topic is None:
            (outcome,) = await self.create_topics([self._new_internal(name)])
            topic = self._feed.image.topic(name)
            if topic is None:
                raise OncelogError(f"cannot create {name}: {outcome.message}")
        return topic

    def _new_internal(self, name: str) -> TopicToCreate:
        return new_internal_topic(name, self._config, len(self._feed.image.brokers))

    async def auto_create(self, name: str) -> ErrorCode:
        """Create a topic because a client named it.

        What Metadata answers for it meanwhile comes back.
        """
        new = self._new_internal(name) if name in INTERNAL_TOPICS else TopicToCreate(name)
        (outcome,) = await self.create_topics([new])
        if outcome.error is ErrorCode.topic_already_exists:
            return ErrorCode.none
        if outcome.error in (ErrorCode.request_timed_out, ErrorCode.not_controller):
            # As in Kafka, until the topic is there: clients ask for their metadata again.
            return ErrorCode.unknown_topic_or_partition
        return outcome.error

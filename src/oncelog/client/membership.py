"""Keeps a consumer in its group: carries out what `machines` of members decide.

Two tasks run beside the application: one sends what the machine wants next, and one sends the
heartbeats of a classic member, also while JoinGroup or SyncGroup wait for other members. Everything
that touches partitions happens in `advance`, which `Consumer.poll` calls: so callbacks and commits
never run beside the application's work on records.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from oncelog.client.cluster import GROUP, Cluster
from oncelog.client.errors import ClientError, RetriableError
from oncelog.client.machines.membership import (
    NEVER_MS,
    Action,
    ChangeKind,
    CoordinatorRequest,
    GroupMachine,
    Look,
    MemberSettings,
    OwnershipChange,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["Membership", "RebalanceListener", "Subscribed"]

METADATA_MAX_AGE_MS = 300_000.0
MISSING_TOPIC_REFRESH_MS = 1_000.0
"""How soon metadata is asked for again while a subscribed topic does not exist."""

LEAVE_TIMEOUT_MS = 5_000.0
_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


class RebalanceListener:
    """What an application may do when partitions come and go; each method may be a coroutine.

    They are called inside `Consumer.poll`, `unsubscribe` and `close`, one at a time. An exception
    ends that call, and the change counts as carried out.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Before partitions go to another member. What was done can still be committed."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """After partitions came; under cooperative assignment these are the new ones only."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """After the member was expelled: another one may have them. By default: as revoked."""
        return self.on_partitions_revoked(partitions)


class Subscribed:
    """What a consumer subscribed to: names, or a pattern.

    A compiled pattern is matched by the client, as Java's `subscribe(Pattern)`; a text is matched
    by the broker (RE2) under the new protocol and by the client under the classic one.
    """

    def __init__(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        *,
        is_matched_by_broker: bool = False,
    ) -> None:
        self.topics = tuple(sorted(set(topics)))
        self.broker_pattern: str | None = None
        self.pattern: re.Pattern[str] | None = None
        if isinstance(pattern, str) and is_matched_by_broker:
            self.broker_pattern = pattern
        if pattern is not None and self.broker_pattern is None:
            self.pattern = re.compile(pattern)

    @property
    def needs_all_topics(self) -> bool:
        """Whether the names of all topics have to be known."""
        return self.pattern is not None or self.broker_pattern is not None

    def matched(self, names: Iterable[str]) -> tuple[str, ...]:
        """The topics of the subscription among all that there are."""
        if self.pattern is None:
            return self.topics
        return tuple(sorted(name for name in names if self.pattern.fullmatch(name)))


class Membership:
    """One consumer's place in its group.

    `carry_out` is the consumer's part of a change: commits, positions, and the listener.
    """

    def __init__(
        self,
        cluster: Cluster,
        machine: GroupMachine,
        settings: MemberSettings,
        carry_out: Callable[[OwnershipChange], Awaitable[None]],
        *,
        metadata_max_age_ms: float = METADATA_MAX_AGE_MS,
    ) -> None:
        self._cluster = cluster
        self.machine = machine
        self._group_id = settings.group_id
        self._carry_out = carry_out
        self._metadata_max_age_ms = metadata_max_age_ms
        self._subscribed = Subscribed()
        self._failure: Exception | None = None
        """Why a task of this object ended; the next `advance` raises it."""
        self._wake_steps = asyncio.Event()
        self._wake_beats = asyncio.Event()
        self._progress = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._missing: dict[str, float] = {}
        """Topics of the subscription that do not exist, and since when."""

    # --- what the consumer does -------------------------------------------------------

    @property
    def subscribed(self) -> Subscribed:
        """The present subscription."""
        return self._subscribed

    def subscribe(self, subscribed: Subscribed) -> None:
        """Read other topics from the next `advance` on."""
        self._subscribed = subscribed
        names = [name for name, topic in self._known_topics() if not topic.is_internal]
        self.machine.subscribe(subscribed.matched(names), subscribed.broker_pattern)
        self._wake()

    async def advance(self, deadline_ms: float, *, wait: bool) -> None:
        """Carry out what is due. With `wait`, until an assignment is there or the time is over.

        Raises the error because of which this member can never be in the group again.
        """
        self._start()
        while True:
            self.machine.polled(self._now_ms())
            if not self.machine.is_settled:
                self._wake()
            await self._carry_out_changes()
            if error := self.machine.error or self._failure:
                raise error
            if not wait or self.machine.ownership.owned:
                return
            self._progress.clear()
            if not await self._woken(self._progress, deadline_ms):
                return

    async def _carry_out_changes(self) -> None:
        while (change := self.machine.ownership.begin()) is not None:
            try:
                await self._carry_out(change)
            finally:
                self.machine.carried_out()
                self._wake()

    async def close(self) -> None:
        """Give everything up and leave the group. Callbacks run once more; commits are theirs."""
        await self._stop()
        ownership = self.machine.ownership
        is_lost = self.machine.identity.generation < 0
        kind = ChangeKind.LOST if is_lost else ChangeKind.REVOKED
        ownership.plan(OwnershipChange(kind, ownership.owned))
        try:
            if (change := ownership.begin()) is not None:
                try:
                    await self._carry_out(change)
                finally:
                    ownership.end()
        finally:
            request = self.machine.leave()
            if request is not None:
                await self._leave(request)

    async def _leave(self, ask: CoordinatorRequest) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                # Not as a member: a JoinGroup that waits would hold it up.
                await self._cluster.ask_coordinator(GROUP, self._group_id, ask.api, ask.request)
        except (ClientError, TimeoutError):
            # The coordinator finds out when the session ends.
            pass

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- the tasks --------------------------------------------------------------------

    def _start(self) -> None:
        if not self._tasks:
            loops = (self._take_steps(), self._send_heartbeats(), self._watch_metadata())
            self._tasks = [asyncio.create_task(self._guarded(each)) for each in loops]

    async def _guarded(self, loop: Awaitable[None]) -> None:
        try:
            await loop
        except Exception as error:  # noqa: BLE001 - the application's next call raises it
            self._failure = error
            self._progress.set()

    async def _take_steps(self) -> None:
        attempt = 0
        while True:
            action = self.machine.next(self._now_ms())
            is_done = await self._take_step(action)
            self._progress.set()
            self._wake_beats.set()
            if is_done:
                attempt = 0
            else:
                await self._cluster.clock.sleep(self._cluster.backoff.delay_ms(attempt))
                attempt += 1

    async def _take_step(self, action: Action) -> bool:
        """Carry out one step; False: it has to be tried again after a pause."""
        if isinstance(action, CoordinatorRequest):
            answer = await self._ask(action)
            if answer is None:
                self.machine.failed(self._now_ms())
                return False
            return self.machine.answered(answer, self._now_ms())
        if isinstance(action, Look):
            try:
                await self._refresh(action.topics or None)
            except RetriableError:
                return False
            known = ((name, self._cluster.metadata.partition_count(name)) for name in action.topics)
            self.machine.looked({name: count for name, count in known if count is not None})
            return True
        await self._woken(self._wake_steps, action.until_ms)
        self._wake_steps.clear()
        return True

    async def _send_heartbeats(self) -> None:
        while True:
            action = self.machine.next_heartbeat(self._now_ms())
            if isinstance(action, CoordinatorRequest):
                if (answer := await self._ask(action)) is not None:
                    self.machine.heartbeat_answered(answer, self._now_ms())
                    self._wake_steps.set()
                    self._progress.set()
                continue
            until_ms = NEVER_MS if isinstance(action, Look) else action.until_ms
            await self._woken(self._wake_beats, until_ms)
            self._wake_beats.clear()

    async def _ask(self, ask: CoordinatorRequest) -> Any:
        """Send one request; None without an answer. Errors that no retry mends are raised."""
        try:
            answer = await self._cluster.ask_coordinator(
                GROUP,
                self._group_id,
                ask.api,
                ask.request,
                as_member=True,
                timeout_ms=ask.timeout_ms,
            )
        except RetriableError:
            return None
        if answer.error_code in _MOVED:
            self._cluster.forget_coordinator(GROUP, self._group_id)
        return answer

    async def _watch_metadata(self) -> None:
        """Let the machine know of topics that come, grow and go."""
        while True:
            try:
                wanted = None if self._subscribed.needs_all_topics else self._subscribed.topics
                await self._refresh(wanted)
            except RetriableError:
                await self._cluster.clock.sleep(self._cluster.backoff.delay_ms(1))
                continue
            self._note_missing()
            pause_ms = MISSING_TOPIC_REFRESH_MS if self._missing else self._metadata_max_age_ms
            await self._cluster.clock.sleep(pause_ms)

    def _note_missing(self) -> None:
        known, now_ms = self._cluster.metadata.topics, self._now_ms()
        self._missing = {
            name: self._missing.get(name, now_ms)
            for name in self._subscribed.topics
            if name not in known
        }

    def take_missing(self) -> str | None:
        """A topic of the subscription that does not exist for ``unknown_topic_ms``, now and then.

        Metadata is asked for it all the while.
        """
        patience_ms, now_ms = self._cluster.unknown.patience_ms, self._now_ms()
        for name, since_ms in self._missing.items():
            if now_ms - since_ms >= patience_ms:
                self._missing[name] = now_ms
                return name
        return None

    async def _refresh(self, topics: Iterable[str] | None) -> None:
        refused = await self._cluster.refresh(topics)
        for name in sorted(refused.keys() & self._subscribed.topics):
            if refused[name].code is ErrorCode.topic_authorization_failed:
                raise refused[name]
        known = self._known_topics()
        counts = {name: len(topic.partitions) for name, topic in known}
        names = {topic.topic_id: name for name, topic in known if topic.topic_id is not None}
        if self._subscribed.pattern is not None:
            visible = [name for name, topic in known if not topic.is_internal]
            self.machine.subscribe(self._subscribed.matched(visible))
        self.machine.metadata_changed(counts, names)
        self._wake()

    def _known_topics(self) -> list[tuple[str, Any]]:
        return sorted(self._cluster.metadata.topics.items())

    # --- waiting ----------------------------------------------------------------------

    def _now_ms(self) -> float:
        return self._cluster.clock.monotonic_ms()

    def _wake(self) -> None:
        self._wake_steps.set()
        self._wake_beats.set()
        self._progress.set()

    async def _woken(self, event: asyncio.Event, until_ms: float) -> bool:
        """Wait for an event; False if the time was over before."""
        if until_ms == NEVER_MS:
            await event.wait()
            return True
        left_ms = until_ms - self._now_ms()
        if left_ms <= 0:
            return event.is_set()
        waiting = asyncio.ensure_future(event.wait())
        sleeping = asyncio.ensure_future(self._cluster.clock.sleep(left_ms))
        try:
            await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
            return event.is_set()
        finally:
            waiting.cancel()
            sleeping.cancel()


def method_for(
    listener: RebalanceListener | None, kind: ChangeKind
) -> Callable[[list[TopicPartition]], object] | None:
    """The method to call for a change; without one for lost partitions that of a revocation."""
    method: Callable[[list[TopicPartition]], object] | None
    method = getattr(listener, f"on_partitions_{kind.value}", None)
    if method is None and kind is ChangeKind.LOST:
        method = getattr(listener, "on_partitions_revoked", None)
    return method


async def call_listener(listener: RebalanceListener | None, change: OwnershipChange) -> None:
    """Let a listener hear of a change, if it has a method for it."""
    if (method := method_for(listener, change.kind)) is not None:
        outcome = method(list(change.partitions))
        if inspect.isawaitable(outcome):
            await outcome

"""Keeps the in-sync replicas of the partitions that this broker leads (KIP-497).

A follower is asked into the ISR when it has fetched all that may be committed, and out of it when
it has not been caught up for `replica.lag.time.max.ms`, or at once when it has lost records. One
AlterPartition at a time is on its way to the controller, with the wishes of all partitions.

What the answer says is not taken: the state that the controller wrote comes by the metadata feed,
before the answer. Who was asked in counts for the high watermark until a newer state (INV-1). So an
answer that is lost or refuses changes nothing, with one exception: INELIGIBLE_REPLICA means that a
life of a member has ended, so that the request can never be granted: its next life is asked in at
once. After any other answer the same is asked again, a while later. `oncelog.replication.leader`
decides; this module sends.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple

from oncelog.broker.partitions.meters import IsrMeter
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.events import AlterPartition, IsrChange, IsrMember, IsrOutcome
from oncelog.core.cluster_limits import (
    ISR_ANSWER_MS_MAX,
    ISR_CHANGES_TOGETHER_COUNT_MAX,
    ISR_RETRY_MS,
)
from oncelog.core.errors import ErrorCode
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import IsrMembers, ReplicaState
from oncelog.runtime.clock import Clock

__all__ = ["IsrKeeper"]

log = logging.getLogger(__name__)

Submit = Callable[[AlterPartition], Awaitable[tuple[IsrOutcome, ...]]]


class _Asked(NamedTuple):
    """What is asked for one partition, and by which state of it."""

    partition: Partition
    by: LeaderState
    members: IsrMembers

    @property
    def is_settled(self) -> bool:
        """Whether a newer state says what became of it, or the partition is led no more."""
        return (
            _epochs(self.partition.state) > _epochs(self.by) or not self.partition.state.is_leader
        )

    @property
    def change(self) -> IsrChange:
        by = self.by
        members = tuple(IsrMember(*each) for each in self.members)
        number = self.partition.topic_partition.partition
        return IsrChange(by.topic_id, number, by.leader_epoch, by.partition_epoch, members)


class _Pause(NamedTuple):
    """Until when nothing is asked for a partition, for it was not given what it asked."""

    until_ms: float
    refused: IsrMembers
    """The members, where the life of one has ended."""

    def is_over(self, follower: int, broker_epoch: int) -> bool:
        """Whether it ends early: a follower that was refused has begun another life."""
        return any(each == follower and life != broker_epoch for each, life in self.refused)


class IsrKeeper:
    """Begins with the first partition that this broker leads among others; one per broker.

    `submit` carries an event to the controller, `on_bug` is called with what must not happen.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        submit: Submit,
        clock: Clock,
        *,
        lag_max_ms: int,
        on_bug: Callable[[BaseException], None],
        meter: IsrMeter,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._submit = submit
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._on_bug = on_bug
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._led: dict[Partition, None] = {}
        self._wishes: dict[Partition, dict[int, int]] = {}
        """The followers that may join, each with the broker epoch at its fetch."""
        self._due: dict[Partition, None] = {}
        """The partitions to look at, in this order."""
        self._pauses: dict[Partition, _Pause] = {}
        self._lost: dict[tuple[Partition, int], int] = {}
        """The lives of brokers of which a loss of records was said."""
        self._sending: asyncio.Task[None] | None = None
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._look_ms = clock.monotonic_ms()
        """When it is to look who lags."""
        self._spares_until_ms = 0.0

    def lead(self, partition: Partition) -> None:
        """Keep the ISR of a partition, which has just taken a state."""
        partition.follower_watch = self.fetched
        self._led[partition] = None
        self._pauses.pop(partition, None)
        self._look_later()
        if partition.state.asked:
            # Asked before the role was given up, for a move: what became of it is not known.
            self._due[partition] = None
            self._ask()

    def fetched(self, partition: Partition, follower: int) -> None:
        """See whether a follower that has just fetched is to join the ISR, or to leave it."""
        state = partition.state
        if not isinstance(state, LeaderState):
            return  # What was committed by this fetch has ended the role: a disk has failed.
        progress = state.followers[follower]
        if progress.has_lost_records:
            self._say_lost(partition, follower, progress.broker_epoch, progress.end_offset)
        elif progress.log_start_offset < partition.log.log_start_offset:
            return  # As a leader it would bring deleted records back.
        elif state.may_join(follower, progress.end_offset):
            self._wishes.setdefault(partition, {})[follower] = progress.broker_epoch
            pause = self._pauses.get(partition)
            if pause is not None and pause.is_over(follower, progress.broker_epoch):
                del self._pauses[partition]
        else:
            return
        self._due[partition] = None
        self._ask()

    def close(self) -> None:
        """Ask for nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _say_lost(self, partition: Partition, follower: int, life: int, offset: int) -> None:
        if self._lost.get((partition, follower)) != life:
            self._lost[partition, follower] = life
            log.error(
                "broker %d has lost records of %s that it had fetched: it goes on at offset %d, "
                "and leaves the ISR",
                *(follower, partition.topic_partition, offset),
            )

    def _call_later(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Call once after the delay, unless that is arranged already."""

        def ring() -> None:
            del self._timers[call]
            call()

        if call not in self._timers:
            self._timers[call] = self._loop.call_later(delay_ms / 1000, ring)

    def _look_who_lags(self) -> None:
        """Look at all partitions; again later as long as any is led."""
        self._led = {each: None for each in self._led if isinstance(each.state, LeaderState)}
        self._lost = {key: life for key, life in self._lost.items() if key[0] in self._led}
        if self._led:
            self._due |= self._led
            self._ask()
            self._look_later()

    def _look_later(self) -> None:
        if self._look_who_lags not in self._timers:
            self._look_ms = self._clock.monotonic_ms() + self._lag_max_ms / 2
            self._call_later(self._lag_max_ms / 2, self._look_who_lags)

    def _lag_ms(self, now_ms: float) -> float:
        """Return after how long a follower lags.

        Where this process was stopped or blocked, what followers sent meanwhile is not read yet:
        no follower lags then for as long as it takes to look again.
        """
        if now_ms > self._look_ms + self._lag_max_ms / 4:
            self._spares_until_ms = now_ms + self._lag_max_ms / 2
        return math.inf if now_ms < self._spares_until_ms else self._lag_max_ms

    def _ask(self) -> None:
        """Send what is wished, unless a request is on its way."""
        if self._sending is None and (asked := list(islice(self._wanted(), _TOGETHER))):
            self._sending = self._loop.create_task(self._send(asked))
            self._sending.add_done_callback(self._sent)

    def _wanted(self) -> Iterator[_Asked]:
        """Take what is to be asked from what is due, and count it from now on."""
        now_ms = self._clock.monotonic_ms()
        lag_ms = self._lag_ms(now_ms)
        epoch = self._broker_epoch()
        for partition in tuple(self._due):
            state = partition.state
            pause = self._pauses.get(partition)
            if pause is not None and pause.until_ms > now_ms:
                self._call_later(max(pause.until_ms - now_ms, 1), self._ask)
                continue
            del self._due[partition]
            self._pauses.pop(partition, None)
            wishes = self._wishes.pop(partition, {})
            if not isinstance(state, LeaderState):
                continue
            members = state.wanted_isr(epoch, wishes, now_ms, lag_ms)
            if members is not None:
                state.ask(members)
                yield _Asked(partition, state, members)

    async def _send(self, asked: list[_Asked]) -> None:
        errors = await self._answers(tuple(each.change for each in asked))
        for each, error in zip(asked, errors, strict=True):
            self._answered(each, error)

    def _sent(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if bug := task.exception():
            self._on_bug(bug)
            return
        self._sending = None
        self._ask()

    async def _answers(self, changes: tuple[IsrChange, ...]) -> list[ErrorCode]:
        """Return what became of each change, as far as it is known."""
        event = AlterPartition(self._broker_id, self._broker_epoch(), changes)
        try:
            async with asyncio.timeout(ISR_ANSWER_MS_MAX / 1000):
                outcomes = await self._submit(event)
        except TimeoutError:
            outcomes = ()
        if len(outcomes) != len(changes):
            return [ErrorCode.request_timed_out] * len(changes)
        return [outcome.error for outcome in outcomes]

    def _answered(self, asked: _Asked, error: ErrorCode) -> None:
        partition = asked.partition
        if error is ErrorCode.none:
            members = {broker for broker, _ in asked.members}
            self._meter.shrinks += not members >= asked.by.isr
            self._meter.expands += not members <= asked.by.isr
        else:
            self._meter.failures += 1
        if asked.is_settled:
            log.info("%s: the ISR is %s", partition.topic_partition, sorted(partition.state.isr))
            return
        log.info(
            "%s: the ISR %s is not granted (yet): %s",
            *(partition.topic_partition, [each for each, _ in asked.members], error.name),
        )
        refused: IsrMembers = ()
        if error is ErrorCode.ineligible_replica:
            refused = asked.members
            partition.isr_refused(refused)
        self._pauses[partition] = _Pause(self._clock.monotonic_ms() + ISR_RETRY_MS, refused)
        self._due[partition] = None


_TOGETHER = ISR_CHANGES_TOGETHER_COUNT_MAX


def _epochs(state: ReplicaState) -> tuple[int, int]:
    return state.leader_epoch, state.partition_epoch

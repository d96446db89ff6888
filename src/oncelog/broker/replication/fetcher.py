"""Fetches from one leader, for all partitions that follow it on this connection.

One connection, one fetch session, one fetch in flight. What a partition asks and what an answer
means is its `FollowerState`'s; here it is carried out. Records are appended in the event loop, as
those of a Produce request are; what blocks (syncs, truncations) runs in the executor, and the next
fetch waits for it, at most as long as a fetch waits: a partition whose disk hangs then leaves the
session until it is done.

A partition that moves to another leader is dropped here at once. An answer that is under way then
is not for it any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from oncelog.broker.partitions.following import Following
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.peers.connections import REFUSED, PeerNetwork
from oncelog.broker.replication.session import FollowerSession, Key
from oncelog.controller.image import BrokerImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.limits import PARTITIONS_PER_TURN_COUNT_MAX
from oncelog.core.listeners import Endpoint
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.replication.follower import (
    FetchAnswer,
    FollowerState,
    HeldLog,
    Pause,
    Phase,
    RestartAt,
    TakeRecords,
    Truncate,
)
from oncelog.runtime.clock import Clock
from oncelog.runtime.framed import DisconnectedError

__all__ = ["FetchSettings", "FetcherParts", "ReplicaFetcher"]

log = logging.getLogger(__name__)


class FetchSettings(NamedTuple):
    """The configs of fetching. Sizes in bytes, times in ms."""

    min_bytes: int
    wait_ms: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """Read them."""
        return cls(
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.backoff.ms"),
            config.get_int("replica.socket.timeout.ms"),
        )


class FetcherParts(NamedTuple):
    """What all fetchers of a broker use."""

    broker_id: int
    settings: FetchSettings
    network: PeerNetwork
    clock: Clock
    broker_of: Callable[[int], BrokerImage | None]
    """A registered broker, by its id."""
    broker_epoch: Callable[[], int]
    """This broker's own."""
    following: Following


class ReplicaFetcher:
    """One connection to a leader."""

    def __init__(self, leader_id: int, parts: FetcherParts) -> None:
        self.leader_id = leader_id
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[Key, Partition] = {}
        self._touched: set[Key] = set()
        """Partitions whose next question may be another one."""
        self._busy: set[Key] = set()
        """Partitions of the last answer whose log is being synced or cut."""
        self._awaited: set[Key] = set()
        """Partitions that say when their log is synced."""
        self._woken = asyncio.Event()
        self._session = FollowerSession()
        self._connection: Connection | None = None
        self._registered: BrokerImage | None = None
        self._address: Endpoint | None = None
        self._said: dict[Key, str] = {}
        """What was last said of a partition that has erred."""
        self._broker_epoch = -1
        """The life of this broker in which it fetches."""
        self._is_away = False
        """Whether the leader's broker does not answer, which is said once."""
        self._is_refused = False
        """Whether it takes this broker for a client, which is said once."""

    def __len__(self) -> int:
        return len(self._partitions)

    # ---- what it fetches ----

    def follow(self, partition: Partition) -> None:
        """Fetch for this partition, by its state as it is now."""
        key = key_of(partition)
        self._partitions[key] = partition
        self.touch(key)

    def drop(self, partition: Partition) -> None:
        """Fetch for this partition no more."""
        key = key_of(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._said.pop(key, None)
            self.touch(key)

    def touch(self, key: Key) -> None:
        """Look at this partition before the next fetch."""
        self._touched.add(key)
        self._busy.discard(key)
        self._woken.set()

    # ---- its life ----

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                await self._step()
        finally:
            self._disconnect("the broker stops")

    async def _step(self) -> None:
        """Fetch once, or wait until there is something to fetch."""
        if self._busy:
            await self._settled()
        self._look()
        if not len(self._session):
            if not self._partitions:
                self._disconnect("nothing is fetched from it")
            await self._woken.wait()
            return
        try:
            connection = await self._connected()
            response = await self._ask(connection)
        except (DisconnectedError, ProtocolError) as error:
            await self._lost(error)
            return
        self._is_away = False
        was_lost = self._session.was_lost(response.error)
        if self._session.answered(response.error, response.session_id):
            await self._take(response)
        elif not was_lost:
            await self._lost(ProtocolError(response.error, "fetch"))

    async def _settled(self) -> None:
        """Wait for the disk, where it is at work for the last answer, but not for one that hangs.

        Else the next fetch would leave these partitions out, and wait at the leader meanwhile.
        """
        until_ms = self._parts.clock.monotonic_ms() + self._parts.settings.wait_ms
        while self._busy:
            left_ms = until_ms - self._parts.clock.monotonic_ms()
            if left_ms <= 0:
                self._busy.clear()
                return
            self._woken.clear()
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                self._busy.clear()

    def _look(self) -> None:
        """Ask what each partition wants to ask now."""
        self._woken.clear()
        now_ms = self._parts.clock.monotonic_ms()
        broker_epoch = self._parts.broker_epoch()
        if broker_epoch != self._broker_epoch:
            # A partition that is not listed counts as fetched too, in this life from now on.
            self._broker_epoch = broker_epoch
            self._session.reset()
            self._touched.update(self._partitions)
        touched, self._touched = self._touched, set()
        for key in touched:
            partition = self._partitions.get(key)
            wanted = None if partition is None else self._wanted(key, partition, now_ms)
            self._session.want(key, wanted)

    def _wanted(self, key: Key, partition: Partition, now_ms: float) -> FetchPartition | None:
        state = partition.state
        if not isinstance(state, FollowerState):
            return None
        held = held_log(partition)
        position = state.position(held, now_ms)
        if position is not None and not state.has_told(self._broker_epoch):
            state.judge_absence(held, self._parts.following.absence_of(partition))
            position = state.position(held, now_ms)
        if position is None:
            if state.phase is Phase.ERRED:
                self._loop.call_later((state.retry_ms - now_ms) / 1000, self.touch, key)
            elif state.log_end_offset < partition.log.log_end_offset:
                self._await_sync(key, partition)
            return None
        return FetchPartition(
            key[1],
            position.offset,
            self._parts.settings.partition_bytes_max,
            position.leader_epoch,
            position.last_fetched_epoch,
            position.log_start_offset,
            None,
            position.high_watermark,
        )

    # ---- the connection ----

    async def _connected(self) -> Connection:
        """Return the connection to where the leader's broker is registered now."""
        parts = self._parts
        broker = parts.broker_of(self.leader_id)
        if broker is None:
            raise DisconnectedError(f"broker {self.leader_id} is not registered")
        held = self._connection
        if held is not None and not held.is_closed and broker is self._registered:
            return held
        address = broker.endpoint_of(parts.network.listener)
        if address is None:
            raise DisconnectedError(
                f"broker {self.leader_id} has no listener {parts.network.listener}"
            )
        self._registered = broker
        if held is not None and not held.is_closed and address == self._address:
            return held
        self._disconnect("it is registered elsewhere")
        self._connection = await parts.network.open(
            address, f"broker-{parts.broker_id}-fetcher", parts.settings.timeout_ms
        )
        self._address = address
        self._look()  # Another question may be due by now.
        return self._connection

    def _disconnect(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)
            self._connection = None
        self._session.reset()

    async def _ask(self, connection: Connection) -> FetchResponse:
        parts = self._parts
        session_id, epoch, topics, forgotten = self._session.next()
        self._note_told(topics)
        request = FetchRequest(
            max_wait_ms=parts.settings.wait_ms,
            min_bytes=parts.settings.min_bytes,
            max_bytes=parts.settings.response_bytes_max,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics=forgotten,
            replica_id=parts.broker_id,
            replica_epoch=self._broker_epoch,
        )
        version = connection.version_for(ApiKey.FETCH)
        frame = encode_fetch_request(
            version, connection.next_correlation_id(), connection.client_id, request
        )
        answer = await connection.submit(ApiKey.FETCH, version, (frame,))
        return parse_fetch_response(answer, version, 0)

    def _note_told(self, topics: Sequence[FetchTopic]) -> None:
        for topic in topics:
            for asked in topic.partitions:
                assert topic.topic_id is not None
                state = self._partitions[topic.topic_id, asked.partition].state
                if isinstance(state, FollowerState):
                    state.tells(self._broker_epoch)

    async def _lost(self, error: OncelogError) -> None:
        """Begin again after the backoff: the leader does not answer, or not as a leader does."""
        self._disconnect(str(error))
        if not self._is_away:
            self._is_away = True
            log.warning(
                "no fetch from broker %d for %d partitions: %s",
                *(self.leader_id, len(self._partitions), error),
            )
        # One that could not tell the leader anything yet may have been away too long by now.
        self._touched.update(self._partitions)
        await self._parts.clock.sleep(self._parts.settings.backoff_ms)

    # ---- answers ----

    async def _take(self, response: FetchResponse) -> None:
        """Carry out what each partition's answer means."""
        count = 0
        for topic in response.topics:
            for answer in topic.partitions:
                if topic.topic_id is not None:
                    self._take_one((topic.topic_id, answer.partition), answer)
                count += 1
                if count % PARTITIONS_PER_TURN_COUNT_MAX == 0:
                    await self._parts.clock.sleep(0)

    def _take_one(self, key: Key, given: FetchPartitionResponse) -> None:
        partition, asked = self._partitions.get(key), self._session.asked.get(key)
        if partition is None or asked is None or not isinstance(partition.state, FollowerState):
            return
        self._touched.add(key)
        answer = FetchAnswer(
            ErrorCode(given.error),
            given.high_watermark,
            given.log_start_offset,
            given.diverging_epoch,
        )
        step = partition.state.answered(
            asked.current_leader_epoch, asked.fetch_offset, answer, held_log(partition)
        )
        if step is None:
            return
        if isinstance(step, TakeRecords):
            # What is decoded is one buffer, or nothing.
            records = cast("memoryview | None", given.records)
            self._append(key, partition, answer, records or memoryview(b""))
        elif isinstance(step, Pause):
            self._pause(key, partition, step)
        else:
            self._cut(key, partition, step)

    def _append(
        self, key: Key, partition: Partition, answer: FetchAnswer, records: memoryview
    ) -> None:
        result = partition.append_as_follower(
            records,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
            now_ms=self._parts.clock.now_ms(),
        )
        if result.error is not ErrorCode.none:
            self._pause(key, partition, Pause(result.error, result.message or "not appended"))
            return
        self._said.pop(key, None)
        self._is_refused = False
        end = partition.log.log_end_offset
        if end >= answer.high_watermark:
            self._parts.following.has_all(partition)
        if partition.state.log_end_offset < end:
            self._busy.add(key)
            self._await_sync(key, partition)

    def _await_sync(self, key: Key, partition: Partition) -> None:
        """Look at a partition again once all of its log counts as appended."""

        def synced(_error: ErrorCode) -> None:
            self._awaited.discard(key)
            self.touch(key)

        if key not in self._awaited:
            self._awaited.add(key)
            partition.on_synced(partition.log.log_end_offset, synced)

    def _pause(self, key: Key, partition: Partition, pause: Pause) -> None:
        """Leave a partition out until the backoff has passed, and say the reason once."""
        state = partition.state
        if not isinstance(state, FollowerState):
            return  # Its log directory has just failed.
        now_ms, backoff_ms = self._parts.clock.monotonic_ms(), self._parts.settings.backoff_ms
        state.paused(pause.error, now_ms, backoff_ms)
        if pause.error is ErrorCode.topic_authorization_failed:
            # It is so of all partitions: one line says it.
            if not self._is_refused:
                self._is_refused = True
                log.error(REFUSED, self.leader_id)
            return
        text = f"{pause.error.name}: {pause.reason}"
        if self._said.get(key) != text:
            self._said[key] = text
            log.log(
                logging.INFO if pause.error in _ORDINARY else logging.ERROR,
                "%s does not follow broker %d for now: %s",
                *(partition.topic_partition, self.leader_id, text),
            )

    def _cut(self, key: Key, partition: Partition, step: Truncate | RestartAt) -> None:
        end, label = partition.log.log_end_offset, partition.topic_partition
        self._busy.add(key)
        if isinstance(step, Truncate):
            log.info("%s is truncated from %d to %d, as its leader's", label, end, step.offset)
            self._parts.following.truncate(partition, step.offset)
        else:
            log.warning("%s starts again at %d (end %d): %s", label, step.offset, end, step.reason)
            self._parts.following.restart_at(partition, step.offset)


_ORDINARY = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""What leaders answer while the news of a change reaches one broker after the other."""


def key_of(partition: Partition) -> Key:
    """Return what a partition is called in a fetch."""
    return partition.state.topic_id, partition.topic_partition.partition


def held_log(partition: Partition) -> HeldLog:
    """Return what its log holds."""
    held = partition.log
    return HeldLog(held.log_start_offset, held.log_end_offset, held.epochs.entries())

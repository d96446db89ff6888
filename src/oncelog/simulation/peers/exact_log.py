"""Judges every answer about a few logs that one client alone writes, reads and cuts.

It knows each byte of them (`exact_logs`), so it can say of each Produce, Fetch, ListOffsets,
DeleteRecords and OffsetForLeaderEpoch, in every version, what every field has to be. It
sends single requests, many at once on one connection (answered in order, D13), fetches that wait,
good and bad batches with acks=0, 1 and -1, and keeps fetch sessions (`exact_sessions`).

A log whose change got no answer is left for a new one.

At the end, when all faults are over, answers have to come in time as well.

Parameters: `strict` (False), `pace_ms` (50), those of `wire`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import create_topics, delete_topics, describe_log_dirs, metadata
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import EXACT_DEFAULTS, NotSentError
from oncelog.simulation.peers.exact_log_base import MESSAGE_BYTES_MAX, SentRequest
from oncelog.simulation.peers.exact_log_changes import LogChanges
from oncelog.simulation.peers.exact_logs import KnownLog
from oncelog.simulation.peers.exact_sessions import SessionQuestions
from oncelog.simulation.peers.exact_topics import KnownTopic
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["run"]

_TOPICS_COUNT_MAX: Final = 6
"""After so many logs whose end is not known the client only waits for its end."""
_BATCHES_COUNT_MAX: Final = 60
_AT_ONCE_COUNT_MAX: Final = 8
_CALM_STEPS_COUNT: Final = 15


async def run(context: ClientContext) -> None:
    """Write and read until told to stop; then look at all once more, and delete the topic."""
    reader = ExactLogs(context.with_defaults(EXACT_DEFAULTS))
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 50)))
        await reader.act()
    await reader.wait_for_calm()
    for _ in range(_CALM_STEPS_COUNT):
        await reader.act()
    attempt = 0
    while not await reader.has_looked_at_everything():
        await context.back_off(attempt)
        attempt += 1
    await reader.delete_topic()
    reader.close()
    context.progress("settled")


class ExactLogs(SessionQuestions, LogChanges):
    """One client and its present topic."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context, PeerWire(context, JAVA))
        self._topics_count = 0
        self.close_session()

    async def act(self) -> None:
        """Do one thing, with a new topic if the last one is in doubt."""
        try:
            if not self.logs and not await self._begin():
                return
            connection = await self._known_connection()
            if self.total_batches >= _BATCHES_COUNT_MAX:
                await self.delete_topic()
                return
            step = self.context.rng.choices(
                (
                    self._one,
                    self._many,
                    self.wait_alone,
                    self.wait_for_news,
                    self.use_session,
                    self.cut,
                    self.look_at_sizes,
                ),
                (8, 4, 1, 2, 6, 1, 1),
            )[0]
            await step(connection)
        except LostError:
            # A session's request may have arrived.
            self.close_session()
            if self.is_in_doubt:
                self.forget()

    async def has_looked_at_everything(self) -> bool:
        """Ask for all that there is; return whether it was answered."""
        try:
            if self.logs:
                connection = await self._known_connection()
                for index in range(len(self.logs)):
                    for ask in (self.list_by_time, self.fetch, self.epoch_ends):
                        await self.carry_out(ask(connection, index))
                await self.look_at_sizes(connection)
        except LostError:
            return False
        return True

    async def delete_topic(self) -> None:
        """Delete the topic and begin without one; a lost answer does no harm."""
        name = self.topic
        self.forget()
        if name:
            state = delete_topics.DeleteTopicState(name=name)
            request = delete_topics.DeleteTopicsRequest(topics=(state,), timeout_ms=30_000)
            try:
                await self.ask(ApiKey.DELETE_TOPICS, request)
            except LostError:
                return

    def forget(self) -> None:
        """Leave the topic alone from now on."""
        self.logs.clear()
        self.topic = ""
        self.is_in_doubt = False
        self.close_session()

    # --- its topic --------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Create a topic of our own; return whether it is there."""
        if self._topics_count >= _TOPICS_COUNT_MAX:
            return False
        rng = self.context.rng
        self._topics_count += 1
        name = f"{self.prefix}log{self._topics_count}"
        count = rng.choice((1, 2, 3))
        config = {
            "segment.ms": "604800000",
            "segment.index.bytes": "10485760",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            "cleanup.policy": "delete",
        }
        if rng.random() < 0.4:
            config["message.timestamp.before.max.ms"] = "3600000"
        self.refuses_old_records = "message.timestamp.before.max.ms" in config
        request = create_topics.CreateTopicsRequest(
            topics=(
                create_topics.CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=1,
                    configs=tuple(
                        create_topics.CreatableTopicConfig(name=key, value=value)
                        for key, value in config.items()
                    ),
                ),
            ),
            timeout_ms=30_000,
        )
        try:
            answer = await self.ask(ApiKey.CREATE_TOPICS, request)
        except NotSentError:
            self._topics_count -= 1
            raise
        (result,) = answer.response.topics
        if result.error_code is not ErrorCode.none:
            self.expect(False, lambda: f"a new topic got {result}")
            return False
        self.topic = name
        self.logs = [KnownLog() for _ in range(count)]
        self.model.topics = {name: KnownTopic(name, count, config)}
        self.seen_on = None
        return True

    async def _known_connection(self) -> Connection:
        """Return a connection on which the leader epochs are known. Raises `LostError`."""
        connection = await self.wire.open()
        if connection is self.seen_on:
            return connection
        if self.cluster_id is None and not await self.is_ready():
            raise LostError("the cluster is not known")
        entry = metadata.MetadataRequestTopic(name=self.topic)
        request = metadata.MetadataRequest(topics=(entry,), allow_auto_topic_creation=False)
        answer = await self.ask(ApiKey.METADATA, request, least=10)
        (told,) = answer.response.topics
        wanted = self._described(answer, self.model.topics[self.topic], told)
        self._compare_metadata(answer, [told], [wanted])
        self._learn_ids([told])
        self.epochs = [p.leader_epoch for p in told.partitions]
        if told.topic_id is None or len(self.epochs) != len(self.logs):
            raise LostError("the topic is not known")
        self.topic_id = told.topic_id
        self.seen_on = answer.connection
        return answer.connection

    # --- steps ------------------------------------------------------------------------

    async def _one(self, connection: Connection) -> None:
        await self.carry_out(self._something(connection))

    def _something(self, connection: Connection) -> SentRequest:
        ask = self.context.rng.choices(
            (self.produce, self.fetch, self.list_by_time, self.epoch_ends), (5, 4, 3, 1)
        )[0]
        return ask(connection, self.context.rng.randrange(len(self.logs)))

    async def write_elsewhere(self, index: int) -> None:
        """Write a batch on another connection. Raises `LostError`."""
        other = await self.wire.open(lane="writer")
        await self.carry_out(self.produce_one(other, index))

    async def _many(self, connection: Connection) -> None:
        """Send several requests at once: each is answered in its turn."""
        count = self.context.rng.randint(2, _AT_ONCE_COUNT_MAX)
        sent = [self._something(connection) for _ in range(count)]
        order: list[int] = []
        for place, each in enumerate(sent):
            each.future.add_done_callback(partial(_note, order, place))
        try:
            for each in sent:
                await self.carry_out(each)
        except LostError:
            self.is_in_doubt = self.is_in_doubt or any(each.changes for each in sent)
            raise
        self.expect(order == sorted(order), lambda: f"requests were answered in the order {order}")

    async def look_at_sizes(self, connection: Connection) -> None:
        """DescribeLogDirs: as many bytes as were written, unless the log was cut."""
        asked = describe_log_dirs.DescribableLogDirTopic(
            topic=self.topic, partitions=tuple(range(len(self.logs)))
        )
        request = describe_log_dirs.DescribeLogDirsRequest(topics=(asked,))
        answer = await self.ask(ApiKey.DESCRIBE_LOG_DIRS, request)
        told = {
            p.partition_index: (p.partition_size, p.offset_lag, p.is_future_key)
            for result in answer.response.results
            for topic in result.topics
            for p in topic.partitions
        }
        wanted = {index: (log.size_bytes, 0, False) for index, log in enumerate(self.logs)}
        for index, log in enumerate(self.logs):
            if log.start > 0 and index in told:
                wanted[index] = (told[index][0], 0, False)
        self.expect(
            told == wanted,
            lambda: f"DescribeLogDirs of {self.topic} gave {told}, wanted {wanted}",
        )


def _note(order: list[int], place: int, future: asyncio.Future[memoryview]) -> None:
    if not future.cancelled() and future.exception() is None:
        order.append(place)

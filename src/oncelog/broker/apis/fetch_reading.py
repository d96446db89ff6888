"""Reads the partitions of one fetch request, and waits for more; for consumers and followers alike.

`oncelog.broker.apis.fetch` says what holds for all of them, `fetch_follower` what is different for
a follower.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from oncelog.broker.apis.fetch_answers import diverging, not_led, out_of_range
from oncelog.broker.apis.fetch_cold import ColdPartition, ColdRead, read_cold
from oncelog.broker.apis.responses import absent, leader_endpoints
from oncelog.broker.net.request import Buffers, Request
from oncelog.broker.partitions.damage import note_damage
from oncelog.broker.partitions.delayed import DelayedFetch, FetchIsolation, Watched
from oncelog.broker.partitions.fetch_sessions import FetchContext
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import CROWDED_FETCH_BYTES_MAX, UNREAD_REPLIES_BYTES_HIGH
from oncelog.core.pending import Pending
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    FetchTopicResponse,
    encode_fetch_response,
)
from oncelog.protocol.produce import NodeEndpoint
from oncelog.protocol.wire import Buffer
from oncelog.runtime.disk import NotCached, StorageFailure
from oncelog.storage import OffsetOutOfRange

if TYPE_CHECKING:
    from uuid import UUID

    from oncelog.broker.apis.context import Context

__all__ = ["Reading", "names_of"]

_READ_COMMITTED = 1

DENIED: Final = "\0denied"
"""Stands for the name of a topic that the client may not read: no partition has it."""

_ABSENT = frozenset(
    {
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
    }
)


class Reading:
    """One fetch request of a consumer and the result of its last attempt to read."""

    __slots__ = (
        "_bytes",
        "_context",
        "_deadline_s",
        "_ends_wait",
        "_fetch",
        "_has_uncommitted",
        "_limit",
        "_rack_id",
        "_read_committed",
        "_reply",
        "_request",
        "_resolved",
        "_session",
        "_topics",
        "_unknown",
        "cold",
    )

    is_follower: ClassVar[bool] = False
    """Whether a follower fetches: it reads to the log's end."""

    def __init__(
        self,
        context: Context,
        request: Request[memoryview],
        fetch: FetchRequest,
        session: FetchContext | None = None,
        denied: Container[tuple[str | None, UUID | None]] = (),
    ) -> None:
        self._context = context
        self._request = request
        self._fetch = fetch
        self._session = session
        self._read_committed = fetch.isolation_level == _READ_COMMITTED
        self._rack_id = fetch.rack_id if context.partitions.selects_by_rack else ""
        self._topics: list[FetchTopicResponse] = []
        self._bytes = 0
        self.cold: list[ColdPartition] = []
        """Partitions that have to be read in the executor."""
        self._ends_wait = False
        self._has_uncommitted = False
        """Whether a log has records that it may not return yet."""
        self._unknown: set[tuple[str | None, UUID | None, int]] = set()
        """The partitions that the metadata did not have at the first read, or may not be read."""
        self._limit = 0
        self._deadline_s = 0.0
        self._reply: Pending[Buffers] | None = None
        self._resolved = names_of(context, fetch.topics)
        if denied:
            self._resolved = [
                DENIED if topic[:2] in denied else name
                for topic, name in zip(fetch.topics, self._resolved, strict=True)
            ]

    @property
    def _isolation(self) -> FetchIsolation:
        """The end up to which it reads, whose move wakes it."""
        if self.is_follower:
            return FetchIsolation.LOG_END
        if self._read_committed:
            return FetchIsolation.TXN_COMMITTED
        return FetchIsolation.HIGH_WATERMARK

    @property
    def is_enough(self) -> bool:
        """Whether the reply can be sent: enough bytes, or what a reader has to know at once."""
        return self._ends_wait or self._bytes >= self._fetch.min_bytes

    @property
    def waits_for_nothing(self) -> bool:
        """Whether no partition of the request is there to be read, so that nothing can wake it."""
        if self._fetch.topics and not self._unknown:
            return False
        return all(given.error in _ABSENT for topic in self._topics for given in topic.partitions)

    def read(self) -> None:
        """Read every partition, in the order of the request, until the limits are used up."""
        fetch = self._fetch
        self._ends_wait = self._has_uncommitted = False
        self._bytes = 0
        self.cold = []
        self._topics = []
        limit = min(fetch.max_bytes, self._context.partitions.fetch_bytes_max)
        if self._context.server.unread_bytes > UNREAD_REPLIES_BYTES_HIGH:
            limit = min(limit, CROWDED_FETCH_BYTES_MAX)
        self._limit = limit
        for topic, name in zip(fetch.topics, self._resolved, strict=True):
            answers: list[FetchPartitionResponse] = []
            for wanted in topic.partitions:
                answer = self._read_partition(name, wanted, limit - self._bytes, answers)
                if answer.error and not self._was_unknown(topic, answer):
                    self._ends_wait = True
                answers.append(answer)
            self._topics.append(FetchTopicResponse(topic.name, topic.topic_id, answers))

    def _was_unknown(self, topic: FetchTopic, answer: FetchPartitionResponse) -> bool:
        """Whether the request could not have this partition when it came."""
        key = topic.name, topic.topic_id, answer.partition
        if self._reply is None and answer.error in _ABSENT:
            self._unknown.add(key)
        return key in self._unknown

    def _read_partition(
        self,
        name: str | None,
        wanted: FetchPartition,
        limit: int,
        answers: list[FetchPartitionResponse],
    ) -> FetchPartitionResponse:
        index = wanted.partition
        if name is None:
            return FetchPartitionResponse(index, ErrorCode.unknown_topic_id)
        partition = self._context.partitions.get(name, index)
        if partition is None:
            return self._elsewhere(name, index)
        error = partition.state.leader_error(wanted.current_leader_epoch)
        if self.is_follower and error is ErrorCode.none:
            error = self._refusal(partition, wanted)
        if error is not ErrorCode.none and not self._reads_follower(partition, error):
            return not_led(index, error, partition.state, self._request.version)
        partition.meter.fetches += 1
        if self._rack_id and (preferred := self._preferred(partition, wanted)):
            self._ends_wait = True
            return preferred
        log = partition.log
        offset = wanted.fetch_offset
        if wanted.last_fetched_epoch >= 0:
            parting = diverging(partition, wanted)
            if parting is not None:
                self._ends_wait = True
                if self.is_follower:
                    partition.state.diverged(self._fetch.replica_id)
                return parting
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return out_of_range(partition, index)
        if self.is_follower:
            error = self._record(partition, wanted)
            if error is not ErrorCode.none:
                return not_led(index, error, partition.state, self._request.version)
            end = log.log_end_offset
        else:
            end = partition.readable_end(self._read_committed)
            self._has_uncommitted |= end < log.log_end_offset
        records = None
        if offset < end and (limit > 0 or self._bytes == 0):
            try:
                if self.cold:
                    # The limits are used up in the order of the request.
                    raise NotCached(name)
                records = log.read(
                    offset,
                    max(0, min(wanted.partition_max_bytes, limit)),
                    upper_bound=end,
                    min_one=self._bytes == 0,
                    cached_only=True,
                )
                self._bytes += len(records)
            except NotCached:
                self.cold.append(ColdPartition(answers, len(answers), name, partition, wanted, end))
            except (ProtocolError, StorageFailure) as unread:
                return FetchPartitionResponse(index, note_damage(partition, unread))
        return self._answer(partition, wanted, end, records)

    def _refusal(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        """Return why a follower's fetch is refused. Asked for each read of a follower."""
        raise NotImplementedError

    def _record(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        """Record how far a follower is, before it is answered; return why it errs."""
        raise NotImplementedError

    def _reads_follower(self, partition: Partition, error: ErrorCode) -> bool:
        """Whether a consumer may read from this replica, though it does not lead (KIP-392)."""
        is_other = error is ErrorCode.not_leader_or_follower and partition.state.is_follower
        # While its log is being cut, a read would wait for the disk.
        return is_other and bool(self._rack_id) and not partition.is_being_cut

    def _preferred(
        self, partition: Partition, wanted: FetchPartition
    ) -> FetchPartitionResponse | None:
        """Name the replica in the consumer's rack that it should read from (KIP-392)."""
        brokers, listener = self._context.image.brokers, self._request.connection.listener
        racks = {
            each: brokers[each].rack
            for each in partition.state.isr
            if each in brokers and brokers[each].endpoint_of(listener) is not None
        }
        nearest = partition.state.nearest_replica(wanted.fetch_offset, self._rack_id, racks)
        if nearest is None:
            return None
        answer = self._answer(partition, wanted, wanted.fetch_offset, None)
        return answer._replace(preferred_read_replica=nearest)

    def _answer(
        self, partition: Partition, wanted: FetchPartition, end: int, records: Buffer | None
    ) -> FetchPartitionResponse:
        return FetchPartitionResponse(
            wanted.partition,
            0,
            partition.state.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            self._aborted(partition, wanted.fetch_offset, end, records)
            if self._read_committed
            else None,
            records,
        )

    def _aborted(
        self, partition: Partition, offset: int, end: int, records: Buffer | None
    ) -> list[tuple[int, int]]:
        """Return the aborted transactions in the range read, for read_committed."""
        if not records or not partition.log.aborted_transactions(offset, end):
            return []
        next_offset = end
        try:
            for _, header in iter_headers(records):
                next_offset = header.next_offset
        except ProtocolError:
            # After a damaged header list all that may follow: a client skips the others.
            next_offset = end
        return [
            (aborted.producer_id, aborted.first_offset)
            for aborted in partition.log.aborted_transactions(offset, next_offset)
        ]

    def _elsewhere(self, name: str, index: int) -> FetchPartitionResponse:
        if name is DENIED:
            return FetchPartitionResponse(index, ErrorCode.topic_authorization_failed)
        error = absent(self._context.image, self._context.broker_id, name, index)
        image = self._context.image.partition(name, index)
        if image is None:
            return FetchPartitionResponse(index, error)
        return not_led(index, error, image, self._request.version)

    def encode(self) -> Buffers:
        """Return the reply's buffers; records are referred to, not copied."""
        request = self._request
        has_errors = False
        if self._bytes or self._ends_wait or self._unknown:
            # Inlined: this is the hot path.
            meters = self._context.partitions.meters.by_topic
            for topic, name in zip(self._topics, self._resolved, strict=True):
                meter = meters.get(name)
                for given in topic.partitions:
                    if given.error:
                        self._tell(topic.partitions, given)
                        has_errors = True
                    elif given.records and meter is not None and not self.is_follower:
                        meter.bytes_out += len(given.records)
        nodes: Sequence[NodeEndpoint] = ()
        if has_errors:
            listener = request.connection.listener
            nodes = leader_endpoints(self._context.image, listener, self._topics)
        if self._session is None:
            return encode_fetch_response(
                request.version, request.correlation_id, self._topics, node_endpoints=nodes
            )
        answer = self._session.answer(self._topics, self._context.clock.now_ms())
        if answer.error:
            request.meter.told(answer.error)
        return encode_fetch_response(
            request.version,
            request.correlation_id,
            answer.topics,
            error=answer.error,
            session_id=answer.session_id,
            node_endpoints=nodes,
        )

    def _tell(
        self, answers: Sequence[FetchPartitionResponse], given: FetchPartitionResponse
    ) -> None:
        """Count a partition's error, and replace one that the client's version does not know."""
        error = ErrorCode(given.error)
        told = self._request.meter.told(error)
        if told is not error:
            assert isinstance(answers, list)
            answers[answers.index(given)] = given._replace(error=told)

    def wait(self) -> Pending[Buffers]:
        """Park the request until there is enough, or until its wait time has passed."""
        loop = self._context.partitions.loop
        self._deadline_s = loop.time() + self._fetch.max_wait_ms / 1000
        reply = self._promise()
        self._park(reply, self._fetch.max_wait_ms)
        return reply

    def _promise(self) -> Pending[Buffers]:
        self._reply = Pending(self._response, holds_back=False)
        return self._reply

    def _response(self, bug: Exception | None) -> Buffers:
        if bug is not None:
            raise bug
        return self.encode()

    def _parked_at(self) -> dict[TopicPartition, Partition]:
        """The partitions that can wake it, where it waits."""
        partitions = {}
        for topic, name in zip(self._fetch.topics, self._resolved, strict=True):
            for wanted in topic.partitions:
                partition = (
                    None if name is None else self._context.partitions.get(name, wanted.partition)
                )
                if partition is not None:
                    partitions[partition.topic_partition] = partition
        return partitions

    def _watched(self) -> Iterable[Watched]:
        """What can wake it."""
        return self._parked_at().values()

    def _park(self, reply: Pending[Buffers], wait_ms: float) -> DelayedFetch:
        delayed = DelayedFetch(
            self._attempt,
            self._watched(),
            isolation=self._isolation,
            missing_bytes=self._missing_bytes,
            wants_high_watermark=self.is_follower and self._context.partitions.selects_by_rack,
        )
        reply.on_drop = delayed.cancel
        delayed.park(self._context.partitions.loop, wait_ms)
        return delayed

    @property
    def _missing_bytes(self) -> int:
        """How many bytes have to be appended before another read can find enough."""
        return 0 if self._has_uncommitted else self._fetch.min_bytes - self._bytes

    def _attempt(self, final: bool) -> int | None:
        """Read again; reply when there is enough or when this is the last attempt.

        Returns the bytes still missing; None also while records are read in the executor, which
        ends the parking.
        """
        self.read()
        if self.cold:
            if final:
                self._deadline_s = 0.0
            self._ask_the_disk()
            return None
        if final or self.is_enough:
            self._complete(None)
            return None
        return self._missing_bytes

    def _complete(self, bug: Exception | None) -> None:
        # Break the reference cycle, which would hold the records until garbage collection.
        reply, self._reply = self._reply, None
        assert reply is not None
        reply.complete(bug)

    # --- reads from disk

    def wait_for_disk(self) -> Pending[Buffers]:
        """Read in the executor what is not in memory, then reply or park for the time left."""
        loop = self._context.partitions.loop
        self._deadline_s = loop.time() + self._fetch.max_wait_ms / 1000
        reply = self._promise()
        self._ask_the_disk()
        return reply

    def _ask_the_disk(self) -> None:
        cold, self.cold = self.cold, []
        assert self._reply is not None
        read = self._context.partitions.cold_reads.start(
            partial(read_cold, cold, self._limit, self._bytes), partial(self._disk_answered, cold)
        )
        self._reply.on_drop = read.cancel

    def _disk_answered(self, cold: list[ColdPartition], found: list[ColdRead] | Exception) -> None:
        if isinstance(found, Exception):
            self._complete(found)
            return
        for each, records in zip(cold, found, strict=True):
            answer = self._cold_answer(each, records)
            if answer.error:
                self._ends_wait = True
            self._bytes += len(answer.records or b"")
            each.answers[each.slot] = answer
        left_s = self._deadline_s - self._context.partitions.loop.time()
        if self.is_enough or left_s <= 0:
            self._complete(None)
        else:
            assert self._reply is not None
            self._park(self._reply, left_s * 1000)

    def _cold_answer(self, cold: ColdPartition, records: ColdRead) -> FetchPartitionResponse:
        partition, index = cold.partition, cold.wanted.partition
        if self._context.partitions.get(cold.name, index) is not partition:
            return self._elsewhere(cold.name, index)
        error = partition.state.leader_error(cold.wanted.current_leader_epoch)
        if error is not ErrorCode.none and not self._reads_follower(partition, error):
            return not_led(index, error, partition.state, self._request.version)
        if isinstance(records, OffsetOutOfRange):
            return out_of_range(partition, index)
        if isinstance(records, (ProtocolError, StorageFailure)):
            return FetchPartitionResponse(index, note_damage(partition, records))
        return self._answer(partition, cold.wanted, cold.end, records)


def names_of(context: Context, topics: Sequence[FetchTopic]) -> list[str | None]:
    """Return the name of each topic; None where there is none with its id."""
    names: list[str | None] = []
    for topic in topics:
        name = topic.name
        if name is None:
            found = context.image.topic_by_id(topic.topic_id)
            name = None if found is None else found.name
        names.append(name)
    return names

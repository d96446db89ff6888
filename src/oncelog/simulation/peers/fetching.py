"""Fetches as stock consumers do, with or without sessions, and returns the visible records.

It has its own filter for read_committed (INV-3): a producer's batches are left out from the first
offset of its aborted transaction to its abort marker. It also checks responses: no record is at or
above the high watermark, for read_committed the last stable offset (INV-7), and offsets ascend.

If the flavor compares leader epochs (KIP-320), a position is validated before a fetch when its
leader has a new epoch: the epoch of the batch before it must end at or after the position.

Sources: `CompletedFetch`, `FetchSessionHandler`, `OffsetFetcher`, `SubscriptionState` (Java).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from oncelog.client import requests
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.batch import BatchHeader, check_crc, iter_headers
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.record import iter_records, read_end_marker
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Polled, Positioned, Value
from oncelog.simulation.peers.wire import Address, LostError, PeerWire

__all__ = ["Fetcher", "Read", "read_batches"]

BY_NAME_MAX: Final = 12
_CORRUPT_COUNT_MAX: Final = 20

_RETRY: Final = frozenset(
    {
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_server_error,
        ErrorCode.corrupt_message,
    }
)
_MOVED: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.replica_not_available,
        ErrorCode.leader_not_available,
    }
)
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.unknown_topic_id,
    }
)


@dataclass(frozen=True, slots=True)
class Read:
    """The visible records of one partition's response, and the next offset."""

    records: tuple[tuple[int, Value], ...]
    position: int
    leader_epoch: int = -1
    """The leader epoch of the last batch, -1 if there was none."""


def read_batches(
    buffer: bytes | memoryview, position: int, aborted: Iterable[tuple[int, int]] | None
) -> Read:
    """Return the visible records from `position` on; `aborted` holds (producer id, first offset).

    Raises `ProtocolError` for batches that are invalid, damaged or not in order, `ValueError` for a
    record that no client of the run wrote.
    """
    pending = sorted((first, producer_id) for producer_id, first in aborted or ())
    hidden: set[int] = set()
    found: list[tuple[int, Value]] = []
    reached = leader_epoch = -1
    for start, header in iter_headers(buffer, allow_partial=True):
        if header.base_offset < reached:
            text = f"offset {header.base_offset} after {reached - 1}"
            raise ProtocolError(ErrorCode.invalid_request, text)
        reached, leader_epoch = header.next_offset, header.leader_epoch
        if not check_crc(buffer, start, header):
            raise ProtocolError(ErrorCode.corrupt_message, f"offset {header.base_offset}: CRC")
        while pending and pending[0][0] <= header.last_offset:
            hidden.add(pending.pop(0)[1])
        if header.is_control:
            if _ends_an_abort(buffer, start, header):
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            found += [
                (record.offset, Value.decode(record.value))
                for record in iter_records(buffer, start, header)
                if record.offset >= position and record.value is not None
            ]
    return Read(tuple(found), max(position, reached), leader_epoch)


def _ends_an_abort(buffer: bytes | memoryview, start: int, header: BatchHeader) -> bool:
    for record in iter_records(buffer, start, header):
        marker = read_end_marker(record)
        return marker is not None and not marker.commit
    return False


@dataclass(slots=True)
class _Session:
    """A fetch session with one broker (KIP-227), as the client keeps it."""

    session_id: int = 0
    epoch: int = 0
    known: dict[TopicPartition, tuple[int, UUID | None, int]] = field(default_factory=dict)
    """(position, topic id, leader epoch) as last sent."""


class Fetcher:
    """Reads partitions from its own positions.

    `high_watermarks` has each partition's last known one, also of partitions no longer read: a
    fetch session does not repeat an unchanged one.
    """

    def __init__(self, context: ClientContext, wire: PeerWire, *, committed: bool) -> None:
        self.context = context
        self.wire = wire
        self.committed = committed
        self.positions: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.has_sessions = bool(context.get("sessions", wire.flavor.fetch_sessions))
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch of the batch before each position, where it is known."""
        self._validated: dict[TopicPartition, int] = {}
        """The leader epoch under which each position was validated or reached."""
        self._ids: dict[TopicPartition, UUID | None] = {}
        self._sessions: dict[Address, _Session] = {}
        self._to_reset: set[TopicPartition] = set()
        self._corrupt: dict[TopicPartition, int] = {}
        self._attempt = 0

    # --- positions --------------------------------------------------------------------

    def seek(self, at: TopicPartition, offset: int, reason: str, epoch: int = -1) -> None:
        """Set the position, which follows a batch of that leader epoch."""
        self.positions[at] = offset
        self._epochs[at] = epoch
        self._ids[at] = self.wire.topic_id(at.topic)
        self._to_reset.discard(at)
        self.context.record(Positioned, at, offset, reason)

    def reset(self, at: TopicPartition) -> None:
        """Set the position to the log's current start."""
        self._to_reset.add(at)

    def drop(self, at: TopicPartition) -> None:
        """Stop reading this partition."""
        self.positions.pop(at, None)
        self._to_reset.discard(at)
        self._corrupt.pop(at, None)

    def is_caught_up(self) -> bool:
        """Return whether each partition was read to the end that its last response had."""
        return not any(self._is_there(at) for at in self._to_reset) and all(
            self.high_watermarks.get(at, position + 1) <= position
            or self._corrupt.get(at, 0) >= _CORRUPT_COUNT_MAX
            or not self._is_there(at)
            for at, position in self.positions.items()
        )

    def _is_there(self, at: TopicPartition) -> bool:
        """Return whether the topic, which may have been created again, has this partition."""
        view = self.wire.topics.get(at.topic)
        return view is None or at.partition in view.leaders

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Return offsets by timestamp (or earliest, latest), without partitions with an error."""
        found: dict[TopicPartition, int] = {}
        leaders: dict[Address, dict[TopicPartition, int]] = {}
        for at in sorted(wanted):
            leader = self.wire.leader(at)
            if leader is not None:
                leaders.setdefault(leader, {})[at] = wanted[at]
        for leader, timestamps in leaders.items():
            request = requests.list_offsets_request(timestamps, isolation_level, 5_000)
            try:
                answer = await self.wire.ask(ApiKey.LIST_OFFSETS, request, to=leader)
            except LostError:
                continue
            for topic in answer.topics:
                for p in topic.partitions:
                    at = TopicPartition(str(topic.name), int(p.partition_index))
                    if p.error_code is ErrorCode.none:
                        found[at] = int(p.offset)
                    elif p.error_code in _MOVED:
                        self.wire.topics.pop(at.topic, None)
        return found

    async def _reset_positions(self) -> None:
        wanted = dict.fromkeys(sorted(self._to_reset), requests.EARLIEST)
        found = await self.list_offsets(wanted)
        for at, offset in found.items():
            if at in self._to_reset:
                self.seek(at, offset, "reset to earliest")

    # --- reading ----------------------------------------------------------------------

    async def poll(self, max_wait_ms: int = 200) -> dict[TopicPartition, Read]:
        """Run one round of fetches; record the result and advance the positions."""
        await self._learn()
        if self._to_reset:
            await self._reset_positions()
        leaders: dict[Address, list[TopicPartition]] = {}
        for at in sorted(self.positions):
            leader = self.wire.leader(at)
            if leader is None or at in self._to_reset:
                continue
            if await self._is_valid(leader, at):
                leaders.setdefault(leader, []).append(at)
        if not leaders:
            await self.context.back_off(self._attempt)
            self._attempt += 1
            return {}
        given: dict[TopicPartition, Read] = {}
        for leader, partitions in leaders.items():
            answer = await self._fetch(leader, partitions, max_wait_ms)
            if answer is None:
                await self.context.back_off(self._attempt)
                self._attempt += 1
                continue
            self._attempt = 0
            await self._take(answer, given)
        return given

    async def _is_valid(self, leader: Address, at: TopicPartition) -> bool:
        """Return whether the position is valid. A position above a truncated log is reset first."""
        epoch, now = self._epochs.get(at, -1), self._leader_epoch(at)
        if epoch < 0 or now < 0 or self._validated.get(at) == now:
            self._validated[at] = now
            return True
        request = requests.offset_for_leader_epoch_request({at: (now, epoch)})
        try:
            answer = await self.wire.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, to=leader)
        except LostError:
            return False
        ((told,),) = [topic.partitions for topic in answer.topics]
        if told.error_code is not ErrorCode.none:
            if told.error_code in _MOVED:
                self.wire.topics.pop(at.topic, None)
            elif told.error_code not in _RETRY:
                self.context.stuck(f"the end of an epoch of {at}: {told.error_code.name}")
            return False
        self._validated[at] = now
        if told.leader_epoch < 0 or told.end_offset < 0:
            self.reset(at)
        elif told.end_offset < self.positions.get(at, -1):
            self.seek(at, int(told.end_offset), "truncated", int(told.leader_epoch))
        return at not in self._to_reset

    def _leader_epoch(self, at: TopicPartition) -> int:
        return self.wire.leader_epoch(at) if self.wire.flavor.compares_epochs else -1

    async def _learn(self) -> None:
        """Request metadata of unknown topics; read a topic that is new from its beginning."""
        topics = sorted({at.topic for at in self.positions})
        if any(topic not in self.wire.topics for topic in topics):
            await self.wire.refresh(topics)
        for at in self.positions:
            topic_id, known = self.wire.topic_id(at.topic), self._ids.get(at)
            if topic_id is not None and known is not None and topic_id != known:
                self.reset(at)
            if topic_id is not None:
                self._ids[at] = topic_id

    async def _fetch(
        self, leader: Address, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> FetchResponse | None:
        """Send one request and return its response; None if there is no usable one."""
        try:
            connection = await self.wire.open(leader)
            by_id = all(self.wire.topic_id(at.topic) is not None for at in partitions)
            at_most = None if by_id else BY_NAME_MAX
            version = self.wire.version(connection, ApiKey.FETCH, at_most)
            request, session = self._request(leader, partitions, version, max_wait_ms)
            frame = encode_fetch_request(
                version, connection.next_correlation_id(), self.context.name, request
            )
            future = connection.submit(ApiKey.FETCH, version, (frame,))
            body = await self.wire.wait(connection, future, max_wait_ms + self.wire.timeout_ms)
        except LostError:
            # The session's epoch is unknown now, so a new session replaces it.
            if leader in self._sessions:
                self._sessions[leader].epoch = 0
            return None
        try:
            answer = parse_fetch_response(body, version, 0)
        except ProtocolError as error:
            self.wire.broken(f"Fetch v{version}: {error}")
            return None
        if answer.error is not ErrorCode.none:
            if answer.error not in _SESSION_LOST | _RETRY:
                self.context.stuck(f"Fetch answered {answer.error.name}")
            if answer.error in _MOVED:
                self.wire.topics.clear()
            self._sessions.pop(leader, None)
            return None
        if session is not None:
            session.session_id = answer.session_id
            session.epoch = session.epoch % (2**31 - 1) + 1 if answer.session_id else 0
        return answer

    def _request(
        self,
        leader: Address,
        partitions: Sequence[TopicPartition],
        version: int,
        max_wait_ms: int,
    ) -> tuple[FetchRequest, _Session | None]:
        rng = self.context.rng
        session = None
        asked = list(partitions)
        forgotten: list[TopicPartition] = []
        if self.has_sessions and version >= 7:
            session = self._sessions.setdefault(leader, _Session())
            now = {
                at: (self.positions[at], self._ids.get(at), self._validated.get(at, -1))
                for at in partitions
            }
            if session.epoch > 0:
                asked = [at for at in partitions if session.known.get(at) != now[at]]
                forgotten = [
                    at
                    for at, (_offset, topic_id, _epoch) in session.known.items()
                    if at not in now or now[at][1] != topic_id
                ]
            session.known, known = now, session.known
        sizes = {at: rng.choice((300, 2_000, 100_000, 1_000_000)) for at in asked}
        request = FetchRequest(
            max_wait_ms,
            rng.choice((0, 1, 1, 200)),
            rng.choice((500, 1_000_000, 50_000_000)),
            isolation_level=1 if self.committed else 0,
            session_id=session.session_id if session else 0,
            session_epoch=session.epoch if session else -1,
            topics=[
                FetchTopic(
                    name,
                    self.wire.topic_id(name),
                    [
                        FetchPartition(
                            index, self.positions[at], sizes[at], self._validated.get(at, -1)
                        )
                        for index in indexes
                        for at in [TopicPartition(name, index)]
                    ],
                )
                for name, indexes in requests.by_topic(asked).items()
            ],
            forgotten_topics=[
                ForgottenTopic(at.topic, known[at][1], [at.partition]) for at in forgotten
            ],
        )
        return request, session

    # --- answers ----------------------------------------------------------------------

    async def _take(self, answer: FetchResponse, given: dict[TopicPartition, Read]) -> None:
        names = {self.wire.topic_id(at.topic): at.topic for at in self.positions}
        has_moved = False
        for topic in answer.topics:
            name = names.get(topic.topic_id, "") if topic.name is None else topic.name
            for partition in topic.partitions:
                at = TopicPartition(name, partition.partition)
                if at not in self.positions:
                    continue
                code = ErrorCode(partition.error)
                if code is ErrorCode.none:
                    self._give(at, partition, given)
                elif code is ErrorCode.offset_out_of_range:
                    self.reset(at)
                elif code in _MOVED:
                    has_moved = True
                    self.wire.topics.pop(name, None)
                elif self.context.may_lack(code):
                    has_moved = True
                elif code not in _RETRY:
                    self.context.stuck(f"Fetch of {at} answered {code.name}")
        if has_moved:
            await self.context.back_off()

    def _give(
        self, at: TopicPartition, answer: FetchPartitionResponse, given: dict[TopicPartition, Read]
    ) -> None:
        """Record the records of one partition's response."""
        position = self.positions[at]
        if answer.high_watermark >= 0:
            self.high_watermarks[at] = answer.high_watermark
        records = answer.records if isinstance(answer.records, memoryview) else b""
        aborted = answer.aborted_transactions if self.committed else None
        try:
            read = read_batches(records, position, aborted)
        except ProtocolError as error:
            self._cannot_read(at, error)
            return
        except ValueError as error:
            self.context.stuck(f"{at}@{position}: a record that nobody wrote ({error})")
            return
        self._corrupt.pop(at, None)
        end = answer.last_stable_offset if self.committed else answer.high_watermark
        if read.position > max(end, position):
            self.context.stuck(f"{at}: read up to {read.position}, beyond {end} (INV-7)")
        if answer.last_stable_offset > answer.high_watermark:
            self.context.stuck(
                f"{at}: LSO {answer.last_stable_offset} > HW {answer.high_watermark} (INV-7)"
            )
        if read.position > position:
            self.positions[at] = read.position
            epoch = read.leader_epoch if self.wire.flavor.compares_epochs else -1
            self._epochs[at] = epoch
            self.context.record(Polled, at, self.committed, read.records, read.position, epoch)
            given[at] = read

    def _cannot_read(self, at: TopicPartition, error: ProtocolError) -> None:
        """Handle unreadable batches: fetch them again, as Kafka's consumers never skip them."""
        count = self._corrupt.get(at, 0) + 1
        self._corrupt[at] = count
        if error.code is not ErrorCode.corrupt_message:
            self.context.stuck(f"{at}: {error}")
        elif count == _CORRUPT_COUNT_MAX:
            self.context.progress(f"corrupt: {at}@{self.positions[at]}")

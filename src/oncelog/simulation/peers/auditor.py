"""Compares what a broker says about a log with the log itself, over the wire, while others write.

It reads a whole partition, asks for everything that follows from its batches, and looks again: if
neither the log nor the connection has changed meanwhile, every answer has to agree with what
`WrittenLog` works out. It fetches in all versions, from odd offsets and in odd sizes.

Parameters: `flavor`, `topics`, `pace_ms` (400).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from oncelog.client import requests
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.messages import describe_producers
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Progress
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.log_view import SeenBatch, WrittenLog, read_whole_batches
from oncelog.simulation.peers.wire import Address, LostError, PeerWire

__all__ = ["run"]

_SIZES: Final = (1, 1, 100, 500, 3_000, 100_000)
_FETCH_MIN: Final = 4
_LOOKS_LAST_COUNT: Final = 6
_BATCHES_COUNT_MAX: Final = 400
"""A longer log is not audited: the run would spend its time on it."""


_COMMIT_S_MAX: Final = 10.0
"""After this time a record has moved the high watermark that waits for its sync, or for a follower
that is cut off and leaves the ISR.
"""


class _Changed(Exception):  # noqa: N818 - no error
    """The log, its leader or the connection is another one by now."""


class _SeenMarks(NamedTuple):
    start: int
    stable: int
    high: int


async def run(context: ClientContext) -> None:
    """Audit random partitions until told to stop, then some more."""
    auditor = _Auditor(context)
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 400)))
        await auditor.look()
    for _ in range(_LOOKS_LAST_COUNT):
        await auditor.look()
    auditor.close()
    context.progress("settled")


class _Auditor:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._found: list[str] = []

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    async def look(self) -> None:
        """Audit one partition, unless it changes meanwhile."""
        topics = self._context.get("topics", ("t",))
        try:
            if not await self._wire.refresh(topics):
                return
            known = self._wire.partitions(topics)
            if not known:
                return
            at = self._context.rng.choice(known)
            leader = self._wire.leader(at)
            if leader is not None:
                await _Audit(self._context, self._wire, at, leader).carry_out()
        except (LostError, ProtocolError, _Changed):
            return


class _Audit:
    """One audit of one partition, on one connection."""

    def __init__(
        self, context: ClientContext, wire: PeerWire, at: TopicPartition, leader: Address
    ) -> None:
        self._context = context
        self._rng = context.rng
        self._wire = wire
        self._at = at
        self._leader = leader
        self._topic_id = wire.topic_id(at.topic)
        self._found: list[str] = []

    async def carry_out(self) -> None:
        """Raises `_Changed` or `LostError` where nothing can be said."""
        connection = await self._wire.open(self._leader)
        marks = await self._marks()
        log = await self._read(connection, marks)
        if marks.start == 0 or marks.stable != marks.start:
            # A transaction whose records retention has deleted holds it at the log's start.
            self._compare("the last stable offset", marks.stable, log.last_stable_offset)
        for _ in range(self._rng.randint(1, 4)):
            await self._fetch_committed(connection, marks, log)
        for check in self._rng.sample((self._times, self._epochs, self._producers), 2):
            await check(log)
        again = await self._marks()
        await self._wire.refresh([self._at.topic])
        is_same = self._wire.topic_id(self._at.topic) == self._topic_id
        if connection.is_closed or again != marks or not is_same:
            return
        for text in self._found:
            self._context.record(Progress, f"differs: {self._at}, {text}")

    def _compare(self, what: str, told: object, wanted: object) -> None:
        if told != wanted:
            self._found.append(f"{what} is {told}, by the log {wanted}")

    async def _ask(self, api: ApiKey, request: Any) -> Any:
        return await self._wire.ask(api, request, to=self._leader)

    # --- the log ----------------------------------------------------------------------

    async def _marks(self) -> _SeenMarks:
        start = await self._offset(requests.EARLIEST, 0)
        stable = await self._offset(requests.LATEST, 1)
        high = await self._offset(requests.LATEST, 0)
        return _SeenMarks(start[1], stable[1], high[1])

    async def _offset(self, time_ms: int, isolation: int) -> tuple[int, int]:
        """Return (time, offset) as ListOffsets says."""
        request = requests.list_offsets_request({self._at: time_ms}, isolation, 5_000)
        answer = await self._ask(ApiKey.LIST_OFFSETS, request)
        partition = answer.topics[0].partitions[0]
        if partition.error_code is not ErrorCode.none:
            raise _Changed
        return int(partition.timestamp), int(partition.offset)

    async def _read(self, connection: Connection, marks: _SeenMarks) -> WrittenLog:
        batches: list[SeenBatch] = []
        position = marks.start
        while position < marks.high:
            answer = await self._fetch(connection, position, 100_000, 0)
            found = read_whole_batches(_bytes_of(answer))
            if not found or len(batches) > _BATCHES_COUNT_MAX:
                raise _Changed
            batches += [b for b in found if b.header.last_offset < marks.high]
            position = found[-1].header.next_offset
        return WrittenLog(marks.start, marks.high, batches)

    async def _fetch(
        self, connection: Connection, offset: int, size: int, isolation: int
    ) -> FetchPartitionResponse:
        """Fetch in a random version. Raises `_Changed` for an error."""
        newest = self._wire.version(connection, ApiKey.FETCH)
        if self._topic_id is None:
            newest = min(newest, 12)
        version = self._rng.randint(min(_FETCH_MIN, newest), newest)
        partition = FetchPartition(self._at.partition, offset, size)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=self._rng.choice((0, 1)),
            max_bytes=self._rng.choice((size, 1_000_000)),
            isolation_level=isolation,
            topics=[FetchTopic(self._at.topic, self._topic_id, [partition])],
        )
        frame = encode_fetch_request(
            version, connection.next_correlation_id(), connection.client_id, request
        )
        future = connection.submit(ApiKey.FETCH, version, (frame,))
        body = await self._wire.wait(connection, future, self._wire.timeout_ms)
        answer = parse_fetch_response(body, version, 0)
        found = [p for topic in answer.topics for p in topic.partitions]
        if answer.error is not ErrorCode.none or len(found) != 1 or found[0].error:
            raise _Changed
        return found[0]

    # --- what follows from it -----------------------------------------------------------

    async def _fetch_committed(
        self, connection: Connection, marks: _SeenMarks, log: WrittenLog
    ) -> None:
        """Whole batches from the offset on up to the last stable offset, and their aborts."""
        if marks.high == marks.start:
            return
        isolation = self._rng.choice((0, 1, 1))
        offset = self._rng.randint(marks.start, marks.high)
        if log.aborted and self._rng.random() < 0.5:
            abort = self._rng.choice(log.aborted)
            offset = self._rng.choice((abort.first_offset, *abort.data, abort.marker_offset))
        end = marks.stable if isolation else marks.high
        answer = await self._fetch(connection, offset, self._rng.choice(_SIZES), isolation)
        what = f"a fetch from {offset}, isolation {isolation}"
        self._compare(f"{what}, its high watermark", answer.high_watermark, marks.high)
        if isolation:
            stable = answer.last_stable_offset
            self._compare(f"{what}, its last stable offset", stable, marks.stable)
        told = [batch.header for batch in read_whole_batches(_bytes_of(answer))]
        wanted = [b.header for b in log.from_offset(offset) if b.header.last_offset < end]
        self._compare(what, [h[:6] for h in told], [h[:6] for h in wanted[: len(told)]])
        if wanted and not told:
            self._found.append(f"{what} gave nothing below {end}")
        if isolation and told:
            aborted = {(int(p), int(o)) for p, o in answer.aborted_transactions or ()}
            needed = log.aborts_in(told[0].base_offset, told[-1].last_offset)
            real = {(abort.producer_id, abort.first_offset) for abort in log.aborted}
            odd = {one for one in aborted - real if one[1] >= marks.start}
            # One that began below the log's start is told by its true beginning.
            cut = {producer_id for producer_id, first in aborted if first < marks.start}
            missing = {one for one in needed - aborted if one[0] not in cut}
            self._compare(f"{what}, its aborted transactions miss", missing, set())
            self._compare(f"{what}, its aborted transactions invent", odd, set())

    async def _times(self, log: WrittenLog) -> None:
        """ListOffsets by time."""
        times = sorted({time_ms for batch in log.batches for _, time_ms in batch.times})
        if not times:
            return
        asked = self._rng.choice(times) + self._rng.choice((-1, 0, 0, 1))
        if asked < 0:
            return
        told = await self._offset(asked, 0)
        wanted = log.at_or_after(asked)
        if told not in wanted:
            self._found.append(f"the first record at {asked} ms is {told}, by the log {wanted}")

    async def _epochs(self, log: WrittenLog) -> None:
        """OffsetForLeaderEpoch of an epoch that has batches."""
        epochs = sorted({batch.header.leader_epoch for batch in log.batches})
        if not epochs:
            return
        epoch = self._rng.choice(epochs)
        request = requests.offset_for_leader_epoch_request({self._at: (-1, epoch)})
        answer = await self._ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
        told = answer.topics[0].partitions[0]
        if told.error_code is ErrorCode.none:
            end = (int(told.leader_epoch), int(told.end_offset))
            wanted = (epoch, log.end_of_epoch(epoch))
            if wanted[1] < log.high_watermark or end < wanted:
                # The newest epoch may have batches above the high watermark.
                self._compare(f"the end of epoch {epoch}", end, wanted)

    async def _producers(self, log: WrittenLog) -> None:
        """DescribeProducers: the open transactions, and each producer's last batch."""
        topic = describe_producers.DescribeProducersTopic(
            name=self._at.topic, partition_indexes=(self._at.partition,)
        )
        request = describe_producers.DescribeProducersRequest(topics=(topic,))
        answer = await self._ask(ApiKey.DESCRIBE_PRODUCERS, request)
        told = answer.topics[0].partitions[0]
        if told.error_code is not ErrorCode.none or log.start > 0:
            return
        began = {
            int(p.producer_id): int(p.current_txn_start_offset)
            for p in told.active_producers
            if 0 <= p.current_txn_start_offset < log.high_watermark
        }
        if began != log.open:
            # A marker may be above the high watermark, which it moves once it is committed.
            await asyncio.sleep(_COMMIT_S_MAX)
        self._compare("the open transactions", began, log.open)
        last = {b.header.producer_id: b for b in log.batches if b.header.producer_id >= 0}
        for producer in told.active_producers:
            batch = last.get(producer.producer_id)
            if batch is None or batch.marker:
                continue
            state = (int(producer.producer_epoch), int(producer.last_sequence))
            wanted = (batch.header.producer_epoch, batch.header.last_sequence)
            if state < wanted:
                # A later state is that of batches above the high watermark.
                self._compare(f"producer {producer.producer_id}", state, wanted)


def _bytes_of(answer: FetchPartitionResponse) -> bytes:
    records = answer.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b""

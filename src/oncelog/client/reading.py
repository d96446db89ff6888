"""Where a consumer stands in its partitions, and what it fetches from there.

`machines.fetching` decides which records are visible (INV-3); the state here is each partition's
position, and what was fetched beyond it. Each broker has at most one fetch in flight. A call does
not wait for those that have nothing, or do not answer, once another has given records or its time
is over: later calls take their answers. Nothing else happens between calls.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from oncelog.client import requests
from oncelog.client.batch_reads import BatchReads, ReaderOptions, unreadable, wanted_at
from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ClientError,
    IllegalStateError,
    OffsetOutOfRangeError,
    most_severe,
)
from oncelog.client.fetching import fetch_from
from oncelog.client.machines.failures import ReadFailures
from oncelog.client.machines.fetch_room import FetchRoom, held_size
from oncelog.client.machines.fetching import read_records
from oncelog.client.machines.positions import NO_EPOCH, Diverged, Position, compare
from oncelog.client.offsets import list_offsets
from oncelog.client.validation import truncation, validate_each
from oncelog.client.values import ConsumerRecord, OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.fetch import FetchPartitionResponse

__all__ = ["AssignedReader"]

log = logging.getLogger("oncelog.client")

Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]]


_GONE = Position(0)
"""Stands for the position of a partition that is no longer read."""


@dataclass(slots=True)
class _Fetched:
    """Fetched records not returned yet; `epoch` is that of the batch before `offset`."""

    records: deque[ConsumerRecord]
    offset: int
    epoch: int
    size: int
    """Bytes in memory; they count until the last of the records was returned."""


@dataclass(slots=True)
class _FetchAsked:
    """A fetch that a broker has not answered, or whose answer is not taken yet."""

    positions: dict[TopicPartition, Position]
    answer: asyncio.Future[list[tuple[TopicPartition, FetchPartitionResponse]]]


class AssignedReader:
    """The partitions that one consumer reads.

    `committed` looks up the offsets of its group, where it has one: reading begins there.
    """

    def __init__(
        self, cluster: Cluster, options: ReaderOptions, committed: Committed | None
    ) -> None:
        self._cluster = cluster
        self._isolation = options.isolation
        self._reset = options.reset
        self._wait_ms = options.wait_ms
        self._partition_bytes = options.partition_bytes
        self._fetch_bytes = options.fetch_bytes
        self._retry_timeout_ms = options.retry_timeout_ms
        self._committed = committed
        self._positions: dict[TopicPartition, Position | None] = {}
        # A partition is fetched again only when all its fetched records were returned.
        self._fetched: dict[TopicPartition, _Fetched] = {}
        self._asked: dict[int, _FetchAsked] = {}
        """By broker."""
        self._paused: set[TopicPartition] = set()
        self._failures = ReadFailures(options.retry_timeout_ms)
        self._room = FetchRoom(options.queued_kbytes * 1024)
        self._rack_id = options.rack_id
        self.batches = BatchReads(cluster, options)
        self._nearest = self.batches.nearest

    # --- which partitions -------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """What is read, in order."""
        return list(self._positions)

    @property
    def paused(self) -> list[TopicPartition]:
        """What is read, but not returned for now."""
        return sorted(self._paused)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that were read before go on."""
        wanted = set(partitions)
        self._positions = {tp: self._positions.get(tp) for tp in sorted(wanted)}
        self._fetched = {tp: held for tp, held in self._fetched.items() if tp in wanted}
        self._paused &= wanted

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions too."""
        self.assign({*self._positions, *partitions})

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions no more."""
        self.assign(self._positions.keys() - set(partitions))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until they are resumed."""
        for topic_partition in partitions:
            self.check_assigned(topic_partition)
            self._paused.add(topic_partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return their records again."""
        self._paused.difference_update(partitions)

    def check_assigned(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` unless the partition is read."""
        if topic_partition not in self._positions:
            raise IllegalStateError(f"{topic_partition} is not assigned")

    # --- positions --------------------------------------------------------------------

    def seek(self, topic_partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """See `Consumer.seek`."""
        self.check_assigned(topic_partition)
        at = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if at.offset < 0:
            raise ValueError(f"{topic_partition}: offset {at.offset} is below 0")
        self._positions[topic_partition] = _position(at)
        self._fetched.pop(topic_partition, None)

    def forget_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on at the committed offsets, or where the reset policy says."""
        for topic_partition in partitions:
            self.check_assigned(topic_partition)
            self._positions[topic_partition] = None
            self._fetched.pop(topic_partition, None)

    async def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `Consumer.positions`."""
        await self._resolve_positions(self._retry_timeout_ms)
        return self.consumed()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions behind what was returned, where they are known."""
        found = {}
        for tp, position in self._positions.items():
            if position is None:
                continue
            at = position
            if held := self._fetched.get(tp):
                first = held.records[0]
                # The epochs of batches that were skipped in between are not known.
                is_known = first.offset == held.offset or first.leader_epoch == held.epoch
                at = Position(first.offset, held.epoch if is_known else NO_EPOCH)
            found[tp] = OffsetAndMetadata(at.offset, "", at.epoch)
        return found

    # --- reading ----------------------------------------------------------------------

    def overdue(self) -> ClientError | None:
        """The error of a partition that has failed for too long."""
        return self._failures.overdue(self._cluster.clock.monotonic_ms())

    # --- inner ------------------------------------------------------------------------

    def take_records(self, max_records: int) -> list[ConsumerRecord]:
        """Return up to `max_records` of what was fetched."""
        records: list[ConsumerRecord] = []
        for topic_partition, held in list(self._fetched.items()):
            if topic_partition in self._paused:
                continue
            while held.records and len(records) < max_records:
                records.append(held.records.popleft())
                held.offset, held.epoch = records[-1].offset + 1, records[-1].leader_epoch
            if not held.records:
                del self._fetched[topic_partition]
        return records

    async def _resolve_positions(self, timeout_ms: float) -> None:
        """Find the positions that are missing. Raises `RetriableError` after `timeout_ms`."""
        missing = [tp for tp, position in self._positions.items() if position is None]
        if missing and self._committed is not None:
            for tp, committed in (await self._committed(missing)).items():
                self._found(tp, committed)
        missing = [tp for tp in missing if self._positions.get(tp, _GONE) is None]
        if missing:
            await self._reset_positions(missing, timeout_ms)

    def _found(self, topic_partition: TopicPartition, at: OffsetAndMetadata) -> None:
        """Begin at a committed offset, unless `seek` or a rebalance came first."""
        if self._positions.get(topic_partition, _GONE) is None:
            self._positions[topic_partition] = _position(at)

    def _reach(self, topic_partition: TopicPartition, position: Position) -> None:
        """Go on at a position, if the partition is still read."""
        if topic_partition in self._positions:
            self._positions[topic_partition] = position

    async def _reset_positions(self, partitions: list[TopicPartition], timeout_ms: float) -> None:
        if self._reset == "none":
            text = f"no offset for {', '.join(map(str, partitions))} and no reset policy"
            raise OffsetOutOfRangeError(ErrorCode.offset_out_of_range, text)
        where = requests.EARLIEST if self._reset == "earliest" else requests.LATEST
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            wanted = dict.fromkeys(partitions, where)
            await list_offsets(self._cluster, wanted, self._isolation, timeout_ms, found)
        finally:
            for tp, at in found.items():
                self._reach(tp, _position(at))

    async def _go_on(
        self, topic_partition: TopicPartition, before: Position, found: Position | Diverged
    ) -> None:
        """Apply the leader's answer about a position: it is valid, or its log was truncated."""
        if self._positions.get(topic_partition) != before:
            return  # The user called `seek` or `assign` during the request.
        if isinstance(found, Position):
            self._positions[topic_partition] = found
        elif self._reset == "none":
            raise truncation(topic_partition, before, found)
        elif found.epoch == NO_EPOCH:
            await self._reset_positions([topic_partition], 0)
        else:
            self._positions[topic_partition] = Position(found.end_offset, found.epoch)

    async def read(self, left_ms: float) -> None:
        """Find positions and fetch, once. Errors are raised only if there are no records."""
        wait_ms = max(0, min(self._wait_ms, int(left_ms)))
        errors: list[ClientError] = []
        try:
            await self._resolve_positions(0)
        except ClientError as error:
            errors.append(error)
        failed = {tp: e for e in errors for tp, at in self._positions.items() if at is None}
        try:
            failed |= await self._fetch_all(wait_ms)
        except ClientError as error:
            errors.append(error)
            failed |= dict.fromkeys(self._positions, error)
        now_ms = self._cluster.clock.monotonic_ms()
        for tp in self._positions:
            if tp not in failed:
                if not any(tp in asked.positions for asked in self._asked.values()):
                    self._failures.succeeded(tp)
            elif self._failures.failed(tp, failed[tp], now_ms):
                log.warning("%s cannot be read: %s; trying again", tp, failed[tp])
        errors += failed.values()
        if errors and not self._has_records:
            raise most_severe(errors)

    @property
    def _has_records(self) -> bool:
        return any(tp not in self._paused for tp in self._fetched)

    async def _fetch_all(self, wait_ms: int) -> dict[TopicPartition, ClientError]:
        """Fetch what is due, and return the errors of single partitions."""
        self._make_room()
        due = {
            tp: position
            for tp in self._room.in_turn(self._positions)
            if tp not in self._fetched
            and tp not in self._paused
            and (position := self._positions[tp]) is not None
        }
        if not due and not self._has_records:
            # Everything is paused, or without a position: a fetch would wait as long.
            await self._cluster.clock.sleep(max(1, wait_ms))
            return {}
        checked, failed = await validate_each(self._cluster, due)
        for tp, found in checked.items():
            try:
                await self._go_on(tp, due[tp], found)
            except ClientError as error:
                failed[tp] = error
        leaders, without = await self._cluster.leaders(tp for tp in due if tp not in failed)
        failed |= without
        sources = {tp: self.batches.source(tp, leader) for tp, leader in leaders.items()}
        self._ask(sources, wait_ms)
        return failed | await self._answers(wait_ms)

    def _ask(self, sources: dict[TopicPartition, int], wait_ms: int) -> None:
        """Send a fetch to each broker that has none in flight."""
        by_node: dict[int, dict[TopicPartition, Position]] = {}
        for tp, node_id in sources.items():
            position = self._positions.get(tp)
            if position is not None and node_id not in self._asked:
                by_node.setdefault(node_id, {})[tp] = position
        max_bytes = min(self._fetch_bytes, self._room.share(len(by_node) + len(self._asked)))
        for node_id, positions in by_node.items():
            fetch = fetch_from(
                self._cluster,
                node_id,
                {tp: wanted_at(tp, at, self._partition_bytes) for tp, at in positions.items()},
                self._isolation,
                wait_ms,
                max_bytes,
                self._rack_id,
            )
            self._asked[node_id] = _FetchAsked(positions, asyncio.ensure_future(fetch))

    async def _answers(self, wait_ms: int) -> dict[TopicPartition, ClientError]:
        """Wait for an answer, and for more while none gives records."""
        failed: dict[TopicPartition, ClientError] = {}
        clock = self._cluster.clock
        # 0, as with less than 1 ms left, would have `poll` call this again and again meanwhile.
        left_ms: float = max(1, wait_ms)
        end_ms = clock.monotonic_ms() + wait_ms
        while self._asked and not self._has_records:
            answers = [asked.answer for asked in self._asked.values()]
            await asyncio.wait(answers, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            for node_id, asked in list(self._asked.items()):
                if asked.answer.done():
                    del self._asked[node_id]
                    failed |= await self._take_answer(asked)
            left_ms = end_ms - clock.monotonic_ms()
            if left_ms <= 0:
                break
        return failed

    async def _take_answer(self, asked: _FetchAsked) -> dict[TopicPartition, ClientError]:
        """Accept what a broker answered about partitions that still stand where it was asked."""
        there = {tp for tp, at in asked.positions.items() if self._is_at(tp, at)}
        try:
            answers = asked.answer.result()
        except ClientError as error:
            return {tp: error for tp in there if not self._nearest.forget(tp)}
        return await self._accept([answer for answer in answers if answer[0] in there])

    def _is_at(self, topic_partition: TopicPartition, position: Position) -> bool:
        is_fetched = topic_partition in self._fetched
        return self._positions.get(topic_partition) == position and not is_fetched

    async def close(self) -> None:
        """Wait for no answer any more."""
        answers = [asked.answer for asked in self._asked.values()]
        self._asked.clear()
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    def _make_room(self) -> None:
        """Forget records of paused partitions that leave no room; `resume` fetches them again."""
        held = sum(each.size for each in self._fetched.values())
        for tp in sorted(self._paused & self._fetched.keys()):
            if held < self._room.size_max:
                break
            self._positions[tp] = _position(self.consumed()[tp])
            held -= self._fetched.pop(tp).size
        self._room.begin(held)

    async def _accept(
        self, answers: list[tuple[TopicPartition, FetchPartitionResponse]]
    ) -> dict[TopicPartition, ClientError]:
        failed: dict[TopicPartition, ClientError] = {}
        for topic_partition, answer in answers:
            position = self._positions.get(topic_partition)
            if position is not None and not (self._room.is_full and answer.records):
                try:
                    await self._accept_one(topic_partition, position, answer)
                except ClientError as error:
                    # What a nearer replica says counts only as far as it gives records.
                    if not self._nearest.forget(topic_partition):
                        failed[topic_partition] = error
        return failed

    async def _accept_one(
        self, topic_partition: TopicPartition, position: Position, answer: FetchPartitionResponse
    ) -> None:
        if answer.preferred_read_replica >= 0:
            self.batches.prefer(topic_partition, answer.preferred_read_replica)
            return
        if answer.diverging_epoch is not None:
            if not self._nearest.forget(topic_partition):
                found = compare(position, *answer.diverging_epoch, position.validated)
                await self._go_on(topic_partition, position, found)
            return
        try:
            fetched = self.batches.visible(topic_partition, position, answer)
        except OffsetOutOfRangeError:
            if self._nearest.forget(topic_partition):
                return  # It may be behind; only the leader says that the offset is gone.
            await self._reset_positions([topic_partition], 0)
            return
        records, bad = read_records(fetched, position.offset)
        reached = Position(fetched.next_offset, fetched.leader_epoch, position.validated)
        if bad is not None:
            if not records:
                raise unreadable(topic_partition, bad)
            reached = Position(bad.offset, records[-1].leader_epoch, position.validated)
        self._positions[topic_partition] = reached
        if records:
            size = held_size(fetched.batches if bad is None else None, records)
            held = _Fetched(deque(records), position.offset, position.epoch, size)
            self._fetched[topic_partition] = held
            self._room.accept(topic_partition, len(fetched.batches), size)


def _position(at: OffsetAndMetadata) -> Position:
    return Position(at.offset, at.leader_epoch)

"""Consumer: reads assigned partitions, record by record or as batches of bytes.

It has no background task: only a call fetches. `machines.fetching` decides which records are
visible (INV-3); this shell's only state is each partition's position. It has no group membership
(subscribe, rebalance); commits are those of a consumer that assigns its partitions itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oncelog.client import requests
from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ClientError,
    FatalError,
    IllegalStateError,
    OffsetOutOfRangeError,
    Operation,
    RetriableError,
    classify,
    most_severe,
)
from oncelog.client.fetching import fetch_from
from oncelog.client.group_offsets import commit_offsets
from oncelog.client.machines.failures import ReadFailures
from oncelog.client.machines.fetching import Aborted, BadBatch, read_records, visible_batches
from oncelog.client.machines.positions import NO_EPOCH, Diverged, Position, compare
from oncelog.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from oncelog.client.settings import Role, kafka_names
from oncelog.client.transactions import fetch_offsets
from oncelog.client.validation import truncation, validate, validate_each
from oncelog.client.values import ConsumerRecord, FetchedPartition, OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.fetch import FetchPartition, FetchPartitionResponse

__all__ = ["Consumer"]

log = logging.getLogger("oncelog.client")

IsolationLevel = Literal["read_committed", "read_uncommitted"]
OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(slots=True)
class _Fetched:
    """Fetched records not returned yet; `epoch` is that of the batch before `offset`."""

    records: deque[ConsumerRecord]
    offset: int
    epoch: int


class Consumer:
    """Reads records from assigned partitions.

    ``async with Consumer("localhost:9092") as consumer: consumer.assign([TopicPartition("topic",
    0)]); await consumer.poll()``

    isolation_level: "read_committed" (default) returns committed transactions only, and no record
    past the oldest open one (INV-3); "read_uncommitted" returns all records below the high
    watermark. auto_offset_reset: where reading starts without position or committed offset, or when
    the position is out of range: "earliest", "latest", or "none" to raise `OffsetOutOfRangeError`.
    A log that lost its tail is detected (KIP-320): the consumer returns to the offset at which the
    log diverges from what it read, and reads the records that replaced the lost ones; under "none"
    it raises `LogTruncationError`, which names that offset. fetch_max_wait_ms: how long a broker
    may wait for data. max_partition_fetch_bytes: bytes of one partition per fetch; a larger batch
    is returned whole. check_crcs: whether to refuse batches that were damaged in transit or on the
    broker's disk: reading raises `FatalError` (corrupt_message) until a `seek` goes past them.
    Further options are those of `Producer` for the connection layer.
    """

    @kafka_names(Role.CONSUMER)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        group_id: str | None = None,
        isolation_level: IsolationLevel = "read_committed",
        auto_offset_reset: OffsetReset = "earliest",
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1024 * 1024,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        retry_timeout_ms: float = 60_000,
        check_crcs: bool = True,
        **cluster_options: Any,
    ) -> None:
        if isolation_level not in ("read_committed", "read_uncommitted"):
            raise ValueError(f"isolation_level {isolation_level!r}")
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ValueError(
                f"auto_offset_reset {auto_offset_reset!r} must be earliest, latest or none"
            )
        self._cluster = Cluster(bootstrap_servers, **cluster_options)
        self._group_id = group_id
        committed = isolation_level == "read_committed"
        self._isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        self._reset = auto_offset_reset
        self._wait_ms = fetch_max_wait_ms
        self._partition_bytes = max_partition_fetch_bytes
        self._fetch_bytes = fetch_max_bytes
        self._retry_timeout_ms = retry_timeout_ms
        self._check_crcs = check_crcs
        self._positions: dict[TopicPartition, Position | None] = {}
        # A partition is fetched again only when all its fetched records were returned.
        self._fetched: dict[TopicPartition, _Fetched] = {}
        self._failures = ReadFailures(retry_timeout_ms)

    async def start(self) -> None:
        """Connect. Raises `ConnectionLostError` if no broker answers for `retry_timeout_ms`."""
        await self._cluster.connect(self._retry_timeout_ms)

    async def close(self) -> None:
        """Close the connections, without a commit."""
        await self._cluster.close()

    async def __aenter__(self) -> "Consumer":
        """Connect."""
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()

    # --- positions --------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others.

        Those that were assigned before retain their positions.
        """
        wanted = set(partitions)
        self._positions = {tp: self._positions.get(tp) for tp in sorted(wanted)}
        self._fetched = {tp: held for tp, held in self._fetched.items() if tp in wanted}

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return list(self._positions)

    def seek(self, topic_partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set a partition's position to `offset`.

        With a leader epoch the consumer first checks that the log before it is still the same.
        """
        self._check_assigned(topic_partition)
        at = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if at.offset < 0:
            raise ValueError(f"{topic_partition}: offset {at.offset} is below 0")
        self._positions[topic_partition] = _position(at)
        self._fetched.pop(topic_partition, None)

    async def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` will return."""
        self._check_assigned(topic_partition)
        return (await self.positions())[topic_partition].offset

    async def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all assigned partitions, as `commit` would commit them."""
        await self._resolve_positions(self._retry_timeout_ms)
        found = {}
        for tp, position in self._positions.items():
            at = position or Position(0)
            if held := self._fetched.get(tp):
                first = held.records[0]
                # The epochs of batches that were skipped in between are not known.
                is_known = first.offset == held.offset or first.leader_epoch == held.epoch
                at = Position(first.offset, held.epoch if is_known else NO_EPOCH)
            found[tp] = OffsetAndMetadata(at.offset, "", at.epoch)
        return found

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets (None: all); partitions without one are left out."""
        return await fetch_offsets(
            self._cluster,
            self._require_group(),
            partitions,
            require_stable,
            self._retry_timeout_ms,
        )

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit the offsets of **next** records, outside any transaction.

        `offsets` None commits the present positions. Raises `FatalError` (unknown_member_id) when
        the group has members of its own.
        """
        group_id = self._require_group()
        if offsets is None:
            offsets = await self.positions()
        wanted = offsets
        await self._cluster.retrying(
            lambda: commit_offsets(self._cluster, group_id, wanted), self._retry_timeout_ms
        )

    # --- reading ----------------------------------------------------------------------

    async def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        """Return up to `max_records` records, as soon as there are any.

        The list is empty if there are none for `timeout_ms`. The records of a partition are in
        offset order. Raises `OffsetOutOfRangeError` when the position is out of range and
        `auto_offset_reset` is "none", and `FatalError` (corrupt_message), with topic, partition and
        offset, at a batch that cannot be read: `seek` past it. A partition whose leader answers
        with an error is tried again, and named in a warning; after ``retry_timeout_ms`` this
        raises `RetriableError`. None of these keeps the other partitions from being read: their
        records are returned first.
        """
        if not self._positions:
            raise IllegalStateError("no partitions are assigned")
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        attempt = 0
        while True:
            if records := self._take(max_records):
                return records
            left_ms = deadline_ms - self._cluster.clock.monotonic_ms()
            if left_ms <= 0 and attempt:
                return []
            try:
                await self._read(max(0, min(self._wait_ms, int(left_ms))))
                attempt = max(attempt, 1)
            except RetriableError:
                if (
                    overdue := self._failures.overdue(self._cluster.clock.monotonic_ms())
                ) is not None:
                    raise overdue from None
                attempt += 1
                delay_ms = self._cluster.backoff.delay_ms(attempt)
                await self._cluster.clock.sleep(max(0.0, min(delay_ms, left_ms)))

    async def fetch_batches(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        max_wait_ms: int | None = None,
        leader_epoch: int = NO_EPOCH,
        topic_id: TopicId | None = None,
    ) -> FetchedPartition:
        """Fetch whole record batches of one partition, once.

        It needs no assignment and changes no position. With `topic_id`, a topic of that name with
        another id raises `FatalError` (inconsistent_topic_id).

        Waits up to `max_wait_ms` (default ``fetch_max_wait_ms``) for data. Retries while the leader
        changes; raises `RetriableError` after ``retry_timeout_ms``, and `OffsetOutOfRangeError`
        when the log does not contain `offset`. `leader_epoch` is that of the batch before `offset`
        (`FetchedPartition.leader_epoch`): if the log lost that batch since, `LogTruncationError` is
        raised.
        """
        wait_ms = self._wait_ms if max_wait_ms is None else max_wait_ms
        at = Position(offset, leader_epoch)

        async def call() -> FetchedPartition:
            nonlocal at
            checked = await validate(self._cluster, {topic_partition: at})
            at = _agreed(topic_partition, at, checked[topic_partition])
            node_id = await self._cluster.leader(topic_partition)
            await self._check_identity(topic_partition.topic, topic_id)
            wanted = {topic_partition: _wanted(topic_partition, at, max_bytes)}
            ((_, answer),) = await fetch_from(
                self._cluster, node_id, wanted, self._isolation, wait_ms, max_bytes
            )
            if answer.diverging_epoch is not None:
                found = compare(at, *answer.diverging_epoch, at.validated)
                at = _agreed(topic_partition, at, found)
            return self._visible(topic_partition, at, answer)

        return await self._cluster.retrying(call, self._retry_timeout_ms)

    # --- inner ------------------------------------------------------------------------

    def _take(self, max_records: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        for topic_partition, held in list(self._fetched.items()):
            while held.records and len(records) < max_records:
                records.append(held.records.popleft())
                held.offset, held.epoch = records[-1].offset + 1, records[-1].leader_epoch
            if not held.records:
                del self._fetched[topic_partition]
        return records

    async def _resolve_positions(self, timeout_ms: float) -> None:
        """Find the positions that are missing. Raises `RetriableError` after `timeout_ms`."""
        missing = [tp for tp, position in self._positions.items() if position is None]
        if missing and self._group_id is not None:
            for tp, committed in (await self.committed(missing)).items():
                self._positions[tp] = _position(committed)
        missing = [tp for tp in missing if self._positions[tp] is None]
        if missing:
            await self._reset_positions(missing, timeout_ms)

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
            self._positions.update({tp: _position(at) for tp, at in found.items()})

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

    async def _read(self, wait_ms: int) -> None:
        """Find positions and fetch, once. Errors are raised only if there are no records."""
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
                self._failures.succeeded(tp)
            elif self._failures.failed(tp, failed[tp], now_ms):
                log.warning("%s cannot be read: %s; trying again", tp, failed[tp])
        errors += failed.values()
        if errors and not self._fetched:
            raise most_severe(errors)

    async def _fetch_all(self, wait_ms: int) -> dict[TopicPartition, ClientError]:
        """Fetch what is due, and return the errors of single partitions."""
        due = {
            tp: position
            for tp, position in self._positions.items()
            if tp not in self._fetched and position is not None
        }
        checked, failed = await validate_each(self._cluster, due)
        for tp, found in checked.items():
            try:
                await self._go_on(tp, due[tp], found)
            except ClientError as error:
                failed[tp] = error
        leaders, without = await self._cluster.leaders(tp for tp in due if tp not in failed)
        failed |= without
        by_node: dict[int, dict[TopicPartition, FetchPartition]] = {}
        for tp, node_id in leaders.items():
            if position := self._positions.get(tp):
                wanted = _wanted(tp, position, self._partition_bytes)
                by_node.setdefault(node_id, {})[tp] = wanted
        answers = await asyncio.gather(
            *(
                fetch_from(
                    self._cluster, node_id, wanted, self._isolation, wait_ms, self._fetch_bytes
                )
                for node_id, wanted in by_node.items()
            ),
            return_exceptions=True,
        )
        for asked, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, ClientError):
                failed |= dict.fromkeys(asked, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                failed |= await self._accept(answer)
        return failed

    async def _accept(
        self, answers: list[tuple[TopicPartition, FetchPartitionResponse]]
    ) -> dict[TopicPartition, ClientError]:
        failed: dict[TopicPartition, ClientError] = {}
        for topic_partition, answer in answers:
            position = self._positions.get(topic_partition)
            if position is not None:
                try:
                    await self._accept_one(topic_partition, position, answer)
                except ClientError as error:
                    failed[topic_partition] = error
        return failed

    async def _accept_one(
        self, topic_partition: TopicPartition, position: Position, answer: FetchPartitionResponse
    ) -> None:
        if answer.diverging_epoch is not None:
            found = compare(position, *answer.diverging_epoch, position.validated)
            await self._go_on(topic_partition, position, found)
            return
        try:
            fetched = self._visible(topic_partition, position, answer)
        except OffsetOutOfRangeError:
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
            held = _Fetched(deque(records), position.offset, position.epoch)
            self._fetched[topic_partition] = held

    def _visible(
        self, topic_partition: TopicPartition, position: Position, answer: FetchPartitionResponse
    ) -> FetchedPartition:
        code = ErrorCode(answer.error)
        if code is not ErrorCode.none:
            if code.retriable:
                self._cluster.metadata.mark_stale(topic_partition.topic)
            raise classify(code, Operation.FETCH, f"{topic_partition} at offset {position.offset}")
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [Aborted(first, pid) for pid, first in answer.aborted_transactions or ()]
        records = answer.records if isinstance(answer.records, bytes | memoryview) else b""
        try:
            visible = visible_batches(
                records, position.offset, aborted, check_crcs=self._check_crcs
            )
        except BadBatch as bad:
            raise unreadable(topic_partition, bad) from bad
        return FetchedPartition(
            topic_partition,
            visible.batches,
            visible.next_offset,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            visible.leader_epoch if visible.next_offset > position.offset else position.epoch,
        )

    async def _check_identity(self, name: str, topic_id: TopicId | None) -> None:
        metadata = self._cluster.metadata
        if topic_id is None or metadata.topic_id(name) in (None, topic_id):
            return
        # The cache may have the id of a deleted topic of that name.
        await self._cluster.refresh([name])
        known = metadata.topic_id(name)
        if known not in (None, topic_id):
            text = f"topic {name} has the id {known}, not {topic_id}"
            raise FatalError(ErrorCode.inconsistent_topic_id, text)

    def _check_assigned(self, topic_partition: TopicPartition) -> None:
        if topic_partition not in self._positions:
            raise IllegalStateError(f"{topic_partition} is not assigned")

    def _require_group(self) -> str:
        if self._group_id is None:
            raise IllegalStateError("the consumer has no group_id")
        return self._group_id


def unreadable(topic_partition: TopicPartition, bad: BadBatch) -> FatalError:
    """Return the error of a batch that cannot be read, with its place."""
    text = f"{topic_partition} cannot be read at offset {bad.offset}: {bad.message}"
    return FatalError(bad.code, text)


def _position(at: OffsetAndMetadata) -> Position:
    return Position(at.offset, at.leader_epoch)


def _wanted(topic_partition: TopicPartition, position: Position, max_bytes: int) -> FetchPartition:
    leader_epoch = NO_EPOCH if position.validated is None else position.validated.leader_epoch
    return FetchPartition(
        topic_partition.partition, position.offset, max_bytes, leader_epoch, position.epoch
    )


def _agreed(
    topic_partition: TopicPartition, position: Position, found: Position | Diverged
) -> Position:
    if isinstance(found, Diverged):
        raise truncation(topic_partition, position, found)
    return found

"""A consumer that records its positions, polls and commits.

It reads with ``auto_offset_reset="none"`` and makes each jump itself, so that the history has all
of them: a start, a seek, a reset, a return to committed offsets. Between two `Positioned` events of
a partition each poll must continue the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from oncelog.client import (
    Admin,
    ClientError,
    Consumer,
    ConsumerRecord,
    IllegalStateError,
    LogTruncationError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    RetriableError,
    TopicPartition,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from oncelog.simulation.history import (
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
    Polled,
    Positioned,
    Value,
)
from oncelog.simulation.workloads.journal import Journal, StuckError

__all__ = ["Isolation", "Reader", "Row", "decode"]

POLL_MS: Final = 500
NO_GENERATION: Final = -1
"""The member of a commit from a consumer outside any group."""

Isolation = Literal["read_committed", "read_uncommitted"]
Row = tuple[TopicPartition, int, Value]
"""One record as read: its partition and offset, and its value."""


class Reader:
    """Reads assigned partitions with `isolation`; `group_id` is "" for no group."""

    def __init__(self, journal: Journal, isolation: Isolation, group_id: str = "") -> None:
        self.positions: dict[TopicPartition, int] = {}
        """The position of each partition, as in the history."""
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epochs of the batches before the positions, if known."""
        self._journal = journal
        self._isolation: Isolation = isolation
        self._group_id = group_id
        self._damaged: dict[TopicPartition, int] = {}
        options = journal.options()
        options["request_timeout_ms"] = 3_000
        self._admin = Admin(journal.bootstrap, timeout_ms=10_000, **options)
        journal.opened(self._admin)
        self._consumer = self._new_consumer()

    def _new_consumer(self) -> Consumer:
        journal = self._journal
        made = Consumer(
            journal.bootstrap,
            group_id=self._group_id or None,
            isolation_level=self._isolation,
            auto_offset_reset="none",
            fetch_max_wait_ms=500,
            max_partition_fetch_bytes=journal.rng.choice((500, 8_000, 1_000_000)),
            retry_timeout_ms=journal.rng.choice((10_000, 20_000)),
            **journal.options(),
        )
        journal.opened(made)
        return made

    async def reopen(self) -> None:
        """Close the consumer and continue at its positions with a new one."""
        await self._journal.close(self._consumer)
        self._consumer = self._new_consumer()
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign(self.positions)
        for topic_partition in self.positions:
            self._consumer.seek(topic_partition, self.at(topic_partition))

    def at(self, topic_partition: TopicPartition) -> OffsetAndMetadata:
        """Return a partition's position for a commit."""
        epoch = self._epochs.get(topic_partition, -1)
        return OffsetAndMetadata(self.positions[topic_partition], "", epoch)

    # --- what is read -----------------------------------------------------------------

    async def discover(self, topics: Iterable[str]) -> bool:
        """Add new partitions of the topics from their start, and drop those of deleted topics.

        Returns False if the metadata is incomplete.
        """
        complete = True
        there: list[TopicPartition] = []
        for topic in topics:
            self._journal.begin("describe_topic")
            try:
                described = await self._admin.describe_topic(topic)
            except IllegalStateError:
                raise
            except ClientError as error:
                if error.code is not ErrorCode.unknown_topic_or_partition:
                    there += [tp for tp in self.positions if tp.topic == topic]
                    complete = False
                continue
            there += [TopicPartition(topic, p.index) for p in described.partitions]
        gone = self.positions.keys() - set(there)
        if gone:
            self.positions = {tp: p for tp, p in self.positions.items() if tp not in gone}
        fresh = [tp for tp in there if tp not in self.positions]
        starts = await self._ask_offsets(fresh, "earliest") if fresh else {}
        for topic_partition, offset in (starts or {}).items():
            self._position(topic_partition, offset, "start")
        self._assign()
        return complete and starts is not None

    async def _ask_offsets(
        self,
        partitions: Iterable[TopicPartition],
        where: Literal["earliest", "latest"],
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, int] | None:
        """Return the start or end of each partition; None without an answer."""
        self._journal.begin("list_offsets")
        try:
            return await self._admin.list_offsets(dict.fromkeys(partitions, where), isolation)
        except IllegalStateError:
            raise
        except ClientError:
            return None

    def _position(
        self, topic_partition: TopicPartition, offset: int, reason: str, leader_epoch: int = -1
    ) -> None:
        self.positions[topic_partition] = offset
        self._epochs[topic_partition] = leader_epoch
        self._journal.record(Positioned, topic_partition, offset, reason)

    def seek(
        self, topic_partition: TopicPartition, offset: int, reason: str, leader_epoch: int = -1
    ) -> None:
        """Jump to `offset`."""
        self._position(topic_partition, offset, reason, leader_epoch)
        self._consumer.seek(topic_partition, self.at(topic_partition))

    async def seek_somewhere(self, topic_partition: TopicPartition) -> None:
        """Jump to an offset between the log's start and its end."""
        starts = await self._ask_offsets([topic_partition], "earliest")
        ends = await self._ask_offsets([topic_partition], "latest")
        if starts is not None and ends is not None:
            low, high = starts[topic_partition], ends[topic_partition]
            self.seek(topic_partition, self._journal.rng.randint(low, max(low, high)), "seek")

    # --- reading ----------------------------------------------------------------------

    async def poll(self, max_records: int = 500) -> list[Row]:
        """Poll once and record it. After a documented error the result is empty."""
        self._journal.begin("poll")
        try:
            records = await self._consumer.poll(POLL_MS, max_records=max_records)
        except IllegalStateError:
            raise
        except ClientError as error:
            await self._survive(error)
            return []
        return await self._polled(records)

    async def _polled(self, records: list[ConsumerRecord]) -> list[Row]:
        by_partition: dict[TopicPartition, list[tuple[int, Value]]] = {}
        for record in records:
            topic_partition = TopicPartition(record.topic, record.partition)
            if record.value is None:
                continue  # A tombstone has no value to record.
            value = decode(topic_partition, record.offset, record.value)
            by_partition.setdefault(topic_partition, []).append((record.offset, value))
        for topic_partition, at in (await self._consumer.positions()).items():
            self._note(topic_partition, by_partition.get(topic_partition, []), at)
        return [(tp, *row) for tp, rows in by_partition.items() for row in rows]

    def _note(
        self, topic_partition: TopicPartition, rows: list[tuple[int, Value]], at: OffsetAndMetadata
    ) -> None:
        if rows or at.offset != self.positions[topic_partition]:
            self.positions[topic_partition] = at.offset
            self._epochs[topic_partition] = at.leader_epoch
            committed = self._isolation == "read_committed"
            self._journal.record(
                Polled, topic_partition, committed, tuple(rows), at.offset, at.leader_epoch
            )
            self._damaged.pop(topic_partition, None)

    async def fetch_batches(self, topic_partition: TopicPartition) -> None:
        """Fetch whole batches once at the current position, and record them as a poll."""
        self._journal.begin("fetch_batches")
        position = self.positions[topic_partition]
        try:
            fetched = await self._consumer.fetch_batches(
                topic_partition,
                position,
                self._journal.rng.choice((1, 500, 100_000)),
                leader_epoch=self.at(topic_partition).leader_epoch,
            )
        except IllegalStateError:
            raise
        except ClientError as error:
            await self._survive(error)
            return
        rows = [
            (record.offset, decode(topic_partition, record.offset, record.value))
            for start, header in iter_headers(fetched.batches)
            for record in iter_records(fetched.batches, start, header)
            if record.offset >= position and record.value is not None
        ]
        at = OffsetAndMetadata(fetched.next_offset, "", fetched.leader_epoch)
        self._note(topic_partition, rows, at)
        self._consumer.seek(topic_partition, self.at(topic_partition))

    async def lag(self) -> str:
        """Name a partition that is not at its end; "" if all are.

        One that stands behind its end has not noticed yet that the log lost what it read.
        """
        ends = await self._ask_offsets(self.positions, "latest", self._isolation)
        if ends is None:
            return "the ends of the partitions are not told"
        elsewhere = [
            f"{tp} stands at {position} of {ends[tp]}"
            for tp, position in self.positions.items()
            if position != ends[tp]
        ]
        return ", ".join(elsewhere)

    # --- after errors -----------------------------------------------------------------

    async def _survive(self, error: ClientError) -> None:
        """Handle an error as documented: wait, seek to available records, or restart."""
        if isinstance(error, LogTruncationError):
            await self._leave_lost_records(error)
        elif isinstance(error, OffsetOutOfRangeError):
            await self._return_into_range()
        elif error.code is ErrorCode.corrupt_message:
            await self._skip_damage()
        elif not isinstance(error, RetriableError):
            await self.reopen()
        await self._journal.think(0.1)

    async def _leave_lost_records(self, error: LogTruncationError) -> None:
        """Continue at the offset where the log diverges, or at its start if that is unknown."""
        there, diverging = error.topic_partition, error.diverging
        if diverging is not None:
            self.seek(there, diverging.offset, "truncated", diverging.leader_epoch)
            return
        starts = await self._ask_offsets([there], "earliest")
        if starts is not None:
            self.seek(there, starts[there], "reset")

    async def _return_into_range(self) -> None:
        starts = await self._ask_offsets(self.positions, "earliest")
        ends = await self._ask_offsets(self.positions, "latest")
        if starts is None or ends is None:
            return
        for topic_partition, position in list(self.positions.items()):
            allowed = max(starts[topic_partition], min(position, ends[topic_partition]))
            if allowed != position:
                self.seek(topic_partition, allowed, "reset")

    async def _skip_damage(self) -> None:
        """Jump over the batch whose bytes are damaged, in growing steps: its end is not known."""
        for topic_partition, position in list(self.positions.items()):
            try:
                await self._consumer.fetch_batches(topic_partition, position, 1, max_wait_ms=0)
            except IllegalStateError:
                raise
            except ClientError as error:
                if error.code is ErrorCode.corrupt_message:
                    step = self._damaged.get(topic_partition, 1)
                    self._damaged[topic_partition] = 2 * step
                    self.seek(topic_partition, position + step, "damaged")

    # --- offsets ----------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit the present positions outside any transaction."""
        offsets = dict(self.positions)
        if not offsets:
            return
        at = {topic_partition: self.at(topic_partition) for topic_partition in offsets}
        who = (self._group_id, "", NO_GENERATION)
        self._journal.begin("commit")
        self._journal.record(OffsetsCommitting, *who, offsets)
        try:
            # Not the consumer's own positions, which are unknown before the call.
            await self._consumer.commit(at)
        except IllegalStateError:
            raise
        except RetriableError:
            # Whether they were committed is unknown.
            return
        except ClientError as error:
            self._journal.record(OffsetsCommitRefused, *who, error.code.name.upper())
        else:
            self._journal.record(OffsetsCommitted, *who, offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's stable offsets of the partitions. Raises `ClientError`."""
        asked_s = self._journal.now_s()
        self._journal.begin("committed")
        found = await self._consumer.committed(partitions, require_stable=True)
        offsets = {tp: at.offset for tp, at in found.items()}
        self._journal.record(OffsetsFetched, self._group_id, offsets, asked_s, True)
        return found

    async def restart(self, partitions: list[TopicPartition]) -> bool:
        """Continue these partitions at their committed offsets or start; return False to try again.

        It uses a new consumer, as a restarted client does.
        """
        self.positions = {}
        await self.reopen()
        try:
            offsets = await self.committed(partitions)
        except IllegalStateError:
            raise
        except ClientError:
            return False
        fresh = [tp for tp in partitions if tp not in offsets]
        starts = await self._ask_offsets(fresh, "earliest") if fresh else {}
        if starts is None:
            return False
        for topic_partition in partitions:
            if topic_partition in offsets:
                at = offsets[topic_partition]
                self._position(topic_partition, at.offset, "committed", at.leader_epoch)
            else:
                self._position(topic_partition, starts[topic_partition], "start")
        self._assign()
        return True


def decode(topic_partition: TopicPartition, offset: int, data: bytes) -> Value:
    """Return a record's value. Raises `StuckError` for one that no client of the run sent."""
    try:
        return Value.decode(data)
    except ValueError as error:
        raise StuckError(f"{topic_partition}@{offset} is a record that nobody sent") from error

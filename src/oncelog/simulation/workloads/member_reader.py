"""A consumer of ours in a group that records what it owns, where it begins, polls and commits.

As `Reader`, it has no reset policy and makes each jump itself; a partition that comes begins at the
group's offset, which the consumer looks up (`member_records`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from oncelog.client import (
    ClientError,
    ConsumerGroupMetadata,
    ConsumerRecord,
    IllegalStateError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from oncelog.simulation.history import Assigned, Revoked
from oncelog.simulation.workloads.journal import Journal, StuckError
from oncelog.simulation.workloads.member_records import GroupRecorder, RecordedConsumer
from oncelog.simulation.workloads.places import topics_of
from oncelog.simulation.workloads.reader import Isolation, Reader, decode

__all__ = ["MemberReader"]

METADATA_MAX_AGE_MS: Final = 1_000.0


class MemberReader(Reader):
    """Reads what the group assigns. `commits`: "auto", "manual", or "never" (another client does).

    Parameters: `topics`; `group_id`; `protocol` ("classic", "consumer"); `strategy`, the names of
    assignors; `server_assignor`; `instance_id` (none: dynamic); `by_pattern`;
    `session_timeout_ms`, `max_poll_interval_ms`.
    """

    def __init__(
        self, journal: Journal, isolation: Isolation, group_id: str, topics: list[str], commits: str
    ) -> None:
        self.journal = journal
        self.topics = topics
        self.commits = commits
        super().__init__(journal, isolation, group_id)

    @property
    def consumer(self) -> RecordedConsumer:
        """The present consumer."""
        return cast("RecordedConsumer", self._consumer)

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self._group_id

    def _new_consumer(self) -> RecordedConsumer:
        journal, rng = self.journal, self.journal.rng
        given = journal.context.parameters
        self.positions = {}
        self._seat = _Seat(self)
        strategy = given.get("strategy", ("range",))
        made = RecordedConsumer(
            journal.bootstrap,
            group_id=self._group_id,
            isolation_level=self._isolation,
            auto_offset_reset="none",
            max_partition_fetch_bytes=rng.choice((500, 8_000, 1_000_000)),
            retry_timeout_ms=rng.choice((10_000, 20_000)),
            group_protocol=given.get("protocol", "classic"),
            group_instance_id=given.get("instance_id"),
            group_remote_assignor=given.get("server_assignor"),
            partition_assignment_strategy=strategy,
            session_timeout_ms=int(journal.number("session_timeout_ms", 4_000)),
            heartbeat_interval_ms=300,
            max_poll_interval_ms=int(journal.number("max_poll_interval_ms", 5_000)),
            enable_auto_commit=self.commits == "auto",
            auto_commit_interval_ms=rng.choice((100, 1_000)),
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            recorder=self._seat,
            **journal.options(),
        )
        journal.opened(made)
        self._seat.consumer = made
        self._subscribe(made, self.topics)
        return made

    def _subscribe(self, consumer: RecordedConsumer, topics: list[str]) -> None:
        listener: Any = self._seat
        if self.journal.context.parameters.get("by_pattern"):
            consumer.subscribe(pattern="|".join(topics), listener=listener)
        else:
            consumer.subscribe(topics, listener=listener)

    def subscribe_to(self, topics: list[str]) -> None:
        """Replace the subscription."""
        self._subscribe(self.consumer, topics)

    def _assign(self) -> None:
        """The group does."""

    async def leave_and_return(self) -> None:
        """Unsubscribe and subscribe again, as the same consumer."""
        self.journal.begin("unsubscribe")
        await self.consumer.unsubscribe()
        self._subscribe(self.consumer, self.topics)

    async def restart(self, partitions: list[TopicPartition]) -> bool:
        """Go on at the committed offsets, as after an aborted transaction."""
        self.positions = {}
        self.consumer.seek_to_committed()
        return True

    def abandon(self) -> None:
        """Continue with another consumer; this one is never polled again, but lives."""
        self._seat.give_up(self.consumer.assignment())
        self._seat.is_abandoned = True
        self._consumer = self._new_consumer()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom the present consumer commits."""
        return self.consumer.group_metadata()

    # --- what the seat finds ------------------------------------------------------------

    def begin(self, topic_partition: TopicPartition, at: OffsetAndMetadata) -> None:
        """A partition begins at the group's offset."""
        self._position(topic_partition, at.offset, "committed", at.leader_epoch)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The positions of these are not known any more."""
        for topic_partition in partitions:
            self.positions.pop(topic_partition, None)

    # --- reading ------------------------------------------------------------------------

    async def _polled(self, records: list[ConsumerRecord]) -> list[tuple[TopicPartition, int, Any]]:
        rows: dict[TopicPartition, list[tuple[int, Any]]] = {}
        paused = set(self.consumer.paused())
        owned = set(self.consumer.assignment())
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            if at not in owned or at in paused:
                raise StuckError(f"poll returned a record of {at}, which is paused or not owned")
            if record.value is not None:
                value = decode(at, record.offset, record.value)
                rows.setdefault(at, []).append((record.offset, value))
        for at, position in self.consumer.consumed().items():
            if at not in self.positions:
                raise StuckError(f"{at} has a position that nobody looked up: {position}")
            self._note(at, rows.get(at, []), position)
        return [(at, *row) for at, those in rows.items() for row in those]

    async def _return_into_range(self) -> None:
        await super()._return_into_range()
        fresh = [at for at in self._seat.without if at not in self.positions]
        starts = await self._ask_offsets(sorted(fresh), "earliest") if fresh else {}
        for at, offset in (starts or {}).items():
            self.seek(at, offset, "start")
        self._seat.without.difference_update(starts or {})

    def has_everything(self) -> bool:
        """Whether the positions of all assigned partitions are known."""
        return set(self.consumer.assignment()) == self.positions.keys()

    async def commit(self) -> None:
        """Commit what was consumed; the recorder writes how that went down."""
        self.journal.begin("commit")
        offsets = self.consumer.consumed()
        try:
            await self.consumer.commit(None if self.journal.chance(0.2) else offsets)
        except IllegalStateError:
            raise
        except ClientError:
            return


class _Seat(GroupRecorder, RebalanceListener):
    """One consumer in the group. The last acts of an abandoned one are not its reader's."""

    consumer: RecordedConsumer

    def __init__(self, reader: MemberReader) -> None:
        super().__init__(reader.journal)
        self.is_abandoned = False
        self.without: set[TopicPartition] = set()
        """Assigned partitions for which the group has no offset."""
        self._reader = reader
        self._member_id = ""

    def offsets_found(
        self, wanted: list[TopicPartition], found: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """See `GroupRecorder`: partitions without a position begin here."""
        if self.is_abandoned:
            return
        owned = self.consumer.assignment()
        for at in wanted:
            if at in owned and at not in self._reader.positions:
                if at in found:
                    self._reader.begin(at, found[at])
                    self.without.discard(at)
                else:
                    self.without.add(at)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """The member owns these too."""
        if self.is_abandoned:
            return
        who = self.consumer.group_metadata()
        self._member_id = who.member_id
        self._reader.forget(partitions)
        self.without.difference_update(partitions)
        owned = tuple(sorted(self.consumer.assignment()))
        self.journal.record(Assigned, who.group_id, who.member_id, who.generation, owned)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """The member gives these up."""
        if self._reader.commits == "manual" and not self.is_abandoned:
            await self._reader.commit()
        self.give_up(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """The member has lost these."""
        self.give_up(partitions)

    def give_up(self, partitions: list[TopicPartition]) -> None:
        """Record that the client reads these no more."""
        if partitions and not self.is_abandoned:
            group_id = self._reader.group_id
            self.journal.record(Revoked, group_id, self._member_id, tuple(partitions))
            self._reader.forget(partitions)
            self.without.difference_update(partitions)


def topics_read(journal: Journal, name: str = "topics") -> list[str]:
    """The topics of a member."""
    return list(topics_of(journal, name))

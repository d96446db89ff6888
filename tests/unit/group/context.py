"""Runs a group shard on a processor over a log in memory, in virtual time.

`Context` plays the shell: it appends, commits at once unless told to hold, keeps the replies, and
can crash and replay. Markers stand in the log too.
"""

import struct
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from oncelog.coordinator import (
    Append,
    CoordinatorMetadata,
    CoordinatorRecord,
    EndTransactionMarker,
    RecordContext,
    marker_context,
)
from oncelog.coordinator.metadata import NoTopics, Topics
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.group import events as e
from oncelog.group.classic_group import ClassicGroup
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.decision import GroupEvent
from oncelog.group.meter import GroupMeter
from oncelog.group.records import decode
from oncelog.group.replies import (
    FetchedOffset,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    OffsetCommitReply,
    OffsetFetchReply,
    SyncReply,
)
from oncelog.group.shard import GroupCoordinatorShard
from tests.support.oracles import Logged
from tests.unit.coordinator.support import AnyOutput, AnyProcessor, processor_of

APPEND_WAIT_MS_MAX = 5_000
"""`offsets.commit.timeout.ms`"""
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0 with empty user data."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", -1)


@dataclass
class Marker:
    producer_id: int
    commit: bool


@dataclass
class Written:
    record: CoordinatorRecord
    timestamp_ms: int
    producer_id: int = -1


def read_again(record: CoordinatorRecord) -> CoordinatorRecord:
    """A record as a load has it, which has to say what the shard that made it applies (D2)."""
    read = CoordinatorRecord(record.key, record.value)
    assert record.decoded in (None, decode(read))
    return read


@dataclass
class Context:
    config: GroupConfig = field(default_factory=GroupConfig)
    now_ms: int = 1_000_000
    hold: bool = False
    topics: Topics = field(default_factory=NoTopics)

    def __post_init__(self) -> None:
        self.log: list[Written | Marker] = []
        self.replies: dict[int, object] = {}
        self.asked: dict[int, GroupEvent] = {}
        self.in_flight: list[tuple[Append, int]] = []
        self.next_token = 0
        self.next_id = 0
        self.meter = GroupMeter()
        shard = GroupCoordinatorShard(self.config, self.meter)
        self.processor = processor_of(shard, APPEND_WAIT_MS_MAX)
        self.processor.activate(self.now_ms)

    @property
    def shard(self) -> GroupCoordinatorShard:
        shard = self.processor.shard
        assert isinstance(shard, GroupCoordinatorShard)
        return shard

    def group(self, group_id: str = "g") -> ClassicGroup:
        return self.shard.store.groups[group_id]

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        return self.shard.store.consumer_groups[group_id]

    # The shell.

    def submit(self, event: GroupEvent) -> int:
        self.next_token += 1
        token = self.next_token
        self.asked[token] = event
        self.show()
        self.handle(self.processor.submit(event, token, self.now_ms))
        return token

    def drop(self, token: int) -> None:
        """The connection of a request that waits closes."""
        after = self.processor.drop(self.asked[token], token)
        if after is not None:
            self.submit_silently(after)

    def show(self) -> None:
        """Give the processor the topics as they are now."""
        self.processor.metadata = CoordinatorMetadata(self.topics)

    def submit_silently(self, event: GroupEvent) -> None:
        self.show()
        self.handle(self.processor.submit(event, None, self.now_ms))

    def handle(self, output: AnyOutput) -> None:
        for append in output.appends:
            self.in_flight.append((append, len(self.log)))
            if self.hold:
                self.processor.delayed(append.append_id, self.now_ms)
            producer_id = append.producer.producer_id if append.producer else -1
            for record in append.records:
                self.log.append(Written(read_again(record), append.timestamp_ms, producer_id))
        for reply in output.replies:
            assert isinstance(reply.token, int)
            assert reply.token not in self.replies, "a request is answered once"
            self.replies[reply.token] = reply.value
        if not self.hold:
            self.commit_all()

    def commit_all(self) -> None:
        while self.in_flight:
            append, base = self.in_flight.pop(0)
            output = self.processor.committed(append.append_id, Offset(base), self.now_ms)
            self.handle(output)

    def fail(self, error: ErrorCode) -> None:
        """The oldest append in flight did not happen. It has to be the last in the log."""
        append, base = self.in_flight.pop(0)
        del self.log[base:]
        self.handle(self.processor.append_failed(append.append_id, error, self.now_ms))

    def marker(self, producer_id: int, commit: bool) -> None:
        self.log.append(Marker(producer_id, commit))
        ended = _end(len(self.log) - 1, producer_id, commit)
        self.processor.replay(ended, marker_context(ended))

    def advance(self, ms: int) -> None:
        """Let virtual time pass, stopping at every deadline."""
        self.show()
        end_ms = self.now_ms + ms
        while (due_ms := self.processor.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.handle(self.processor.tick(self.now_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Crash, and replay what is in the log."""
        self.in_flight.clear()
        self.processor = replayed(self.log, self.config, self.meter)
        self.processor.activate(self.now_ms)

    # Requests, in short.

    def join_event(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        client: str = "c",
        instance: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        kind: str = "consumer",
        topics: tuple[str, ...] = ("t",),
        version: int = 5,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> e.Join:
        self.next_id += 1
        offered = tuple(e.JoinProtocol(name, subscription(*topics)) for name in protocols)
        return e.Join(
            group_id,
            version,
            member_id,
            instance,
            client,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            kind,
            offered,
            str(self.next_id),
        )

    def join(self, member_id: str = "", **options: Any) -> int:
        return self.submit(self.join_event(member_id, **options))

    def new_member(self, **options: Any) -> tuple[str, int]:
        """Ask for an id, then join with it. Returns the id and the token of the waiting join."""
        first = self.joined(self.join(**options))
        assert first.error is ErrorCode.member_id_required
        return first.member_id, self.join(first.member_id, **options)

    def joined(self, token: int) -> JoinReply:
        result = self.replies[token]
        assert isinstance(result, JoinReply)
        return result

    def sync(self, member: str, generation: int = 1, **given: bytes) -> int:
        return self.submit(self.sync_event(member, generation, given))

    def sync_event(
        self,
        member: str,
        generation: int = 1,
        given: dict[str, bytes] | None = None,
        kind: str = "consumer",
    ) -> e.Sync:
        assignments = tuple(e.MemberAssignment(m, a) for m, a in (given or {}).items())
        return e.Sync("g", generation, member, None, kind, "range", assignments)

    def synced(self, token: int) -> SyncReply:
        result = self.replies[token]
        assert isinstance(result, SyncReply)
        return result

    def heartbeat(
        self, member: str, generation: int = 1, instance: str | None = None, group_id: str = "g"
    ) -> ErrorCode:
        result = self.replies[self.submit(e.Heartbeat(group_id, generation, member, instance))]
        assert isinstance(result, HeartbeatReply)
        return result.error

    def leave(self, *members: str, group_id: str = "g") -> list[ErrorCode]:
        leaving = tuple(e.LeavingMember(member) for member in members)
        result = self.replies[self.submit(e.Leave(group_id, leaving))]
        assert isinstance(result, LeaveReply)
        return [member.error for member in result.members]

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """A stable group of that many dynamic members, generation 1, the first one its leader."""
        members, tokens = [], []
        for _ in range(count):
            member, token = self.new_member(**options)
            members.append(member)
            tokens.append(token)
        self.advance(6_000)
        for token in tokens:
            assert self.joined(token).error is ErrorCode.none
        kind = str(options.get("kind", "consumer"))
        followers = [self.submit(self.sync_event(m, kind=kind)) for m in members[1:]]
        given = {member: b"a-" + member.encode() for member in members}
        leader = self.submit(self.sync_event(members[0], 1, given, kind))
        for token in [leader, *followers]:
            assert self.synced(token).error is ErrorCode.none
        return members

    def commit_event(
        self,
        offset: int,
        member: str = "",
        generation: int = -1,
        partition: TopicPartition = T0,
        **options: Any,
    ) -> e.OffsetCommit:
        wanted = e.OffsetToCommit(partition.topic, partition.partition, offset)
        version = int(options.pop("version", 8))
        group_id = str(options.pop("group_id", "g"))
        return e.OffsetCommit(group_id, version, generation, member, (wanted,), **options)

    def commit(self, *args: Any, **options: Any) -> ErrorCode:
        return self.outcome(self.submit(self.commit_event(*args, **options)))

    def txn_commit_event(
        self,
        offset: int,
        producer_id: int = 7,
        member: str = "",
        generation: int = -1,
        partition: TopicPartition = T0,
        **options: Any,
    ) -> e.TxnOffsetCommit:
        wanted = e.OffsetToCommit(partition.topic, partition.partition, offset)
        version = int(options.pop("version", 4))
        group_id = str(options.pop("group_id", "g"))
        return e.TxnOffsetCommit(
            group_id,
            version,
            "x",
            producer_id,
            0,
            generation,
            member,
            (wanted,),
            **options,
        )

    def txn_commit(self, *args: Any, **options: Any) -> ErrorCode:
        return self.outcome(self.submit(self.txn_commit_event(*args, **options)))

    def outcome(self, token: int) -> ErrorCode:
        result = self.replies[token]
        assert isinstance(result, OffsetCommitReply)
        assert len(result.partitions) == 1
        return result.partitions[0].error

    def fetch_all(self, require_stable: bool = False, group_id: str = "g") -> list[FetchedOffset]:
        result = self.replies[self.submit(e.OffsetFetch(group_id, None, require_stable))]
        assert isinstance(result, OffsetFetchReply)
        return list(result.partitions)

    def fetch(
        self, partition: TopicPartition = T0, require_stable: bool = False, group_id: str = "g"
    ) -> FetchedOffset:
        wanted = (e.OffsetToFetch(*partition),)
        result = self.replies[self.submit(e.OffsetFetch(group_id, wanted, require_stable))]
        assert isinstance(result, OffsetFetchReply)
        return result.partitions[0]


def logged(log: list[Written | Marker]) -> list[Logged]:
    """The log as the oracles of the simulation read it."""
    return [
        Logged(None, 0, item.producer_id, item.commit)
        if isinstance(item, Marker)
        else Logged(item.record, item.timestamp_ms, item.producer_id)
        for item in log
    ]


def _end(offset: int, producer_id: int, commit: bool) -> EndTransactionMarker:
    return EndTransactionMarker(offset, ProducerId(producer_id), ProducerEpoch(0), commit)


def topic_deleted(topic_id: UUID) -> e.TopicsDeleted:
    """The topic `t` with this id was deleted, and no newer one is there."""
    return e.TopicsDeleted({"t": frozenset((topic_id, e.ZERO_TOPIC_ID))})


def replayed(
    log: list[Written | Marker],
    config: GroupConfig,
    meter: GroupMeter | None = None,
) -> AnyProcessor:
    """A processor that has read the log, not yet activated."""
    processor = processor_of(GroupCoordinatorShard(config, meter))
    for offset, item in enumerate(log):
        if isinstance(item, Marker):
            ended = _end(offset, item.producer_id, item.commit)
            processor.replay(ended, marker_context(ended))
        else:
            is_transactional = item.producer_id >= 0
            context = RecordContext(
                Offset(offset),
                item.timestamp_ms,
                ProducerId(item.producer_id),
                transactional=is_transactional,
            )
            processor.replay(item.record, context)
    return processor

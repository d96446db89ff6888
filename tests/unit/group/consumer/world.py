"""A consumer group under virtual time, with clients that follow KIP-848 and a log that is replayed.

Every record goes through its bytes. `restart` makes the group again from what compaction leaves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import UUID

from oncelog.coordinator.metadata import Topic
from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.consumer import classic_members, leaving, records
from oncelog.group.consumer.embedded import (
    NamedPartitions,
    Subscription,
    identified,
    read_assignment,
)
from oncelog.group.consumer.events import Beat, Quit
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.heartbeat import heartbeat
from oncelog.group.consumer.members import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
    TopicIdPartition,
)
from oncelog.group.consumer.outcome import (
    BeatReply,
    ConsumerGroupContext,
    Outcome,
    OutcomeResult,
    Refusal,
)
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.consumer.timers import MemberTimer, TimerChange
from oncelog.group.replies import HeartbeatReply, JoinReply, SyncReply
from oncelog.protocol.codec import writer
from oncelog.protocol.records import consumer_group_log
from oncelog.protocol.wire import INT16

GROUP_ID = "group"


def topic_id(name: str) -> UUID:
    """An identity that sorts as the name does."""
    return UUID(bytes=name.encode().ljust(16, b"\0")[:16])


def partitions(name: str, *numbers: int) -> Partitions:
    return frozenset(TopicIdPartition(topic_id(name), number) for number in numbers)


class FakeTopics:
    """Topics by name, with their partition counts."""

    def __init__(self, counts: Mapping[str, int], revision: int = 1) -> None:
        self._topics = {name: Topic(name, topic_id(name), n) for name, n in counts.items()}
        self.revision = revision

    def names(self) -> Iterable[str]:
        return self._topics

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_id(self, topic_id: UUID) -> Topic | None:
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def with_counts(self, **counts: int) -> "FakeTopics":
        known = {name: topic.partition_count for name, topic in self._topics.items()}
        return FakeTopics({**known, **counts}, self.revision + 1)

    def without(self, name: str) -> "FakeTopics":
        known = {each: topic.partition_count for each, topic in self._topics.items()}
        del known[name]
        return FakeTopics(known, self.revision + 1)


@dataclass(slots=True, eq=False)
class Client:
    """A member as a consumer sees itself."""

    member_id: str
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    instance_id: str | None = None
    server_assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: Partitions = frozenset()
    assigned: Partitions = frozenset()
    must_say_all: bool = True
    error: ErrorCode = ErrorCode.none

    def beat(self) -> Beat:
        """The next heartbeat: everything when it joins or lost an answer, else what changed."""
        says_all = self.must_say_all or self.epoch == 0
        return Beat(
            GROUP_ID,
            self.member_id,
            self.epoch,
            "client",
            "/127.0.0.1",
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if says_all else -1,
            topic_names=self.topic_names if says_all else None,
            topic_regex=self.topic_regex if says_all else None,
            server_assignor=self.server_assignor if says_all else None,
            owned=frozenset() if self.epoch == 0 else self.owned,
        )

    def take(self, result: BeatReply) -> None:
        """Act on an answer: abandon everything when fenced, else remember what to own."""
        self.error = result.error
        if result.error is not ErrorCode.none:
            self.abandon()
            return
        self.must_say_all = False
        self.epoch = result.member_epoch
        if result.assigned is not None:
            self.assigned = result.assigned

    def abandon(self) -> None:
        """Stop using every partition, and join again with the next heartbeat."""
        self.epoch, self.must_say_all = 0, True
        self.owned = self.assigned = frozenset()

    def follow(self) -> None:
        """Stop using what it may not use any more, and begin to use what it may.

        Not while an answer is missing: what it said that it does not own may be another's by then.
        KIP-848 has no other way to tell that a member heard of its assignment.
        """
        if not self.must_say_all:
            self.owned = self.assigned


@dataclass(slots=True, eq=False)
class ClassicClient:
    """A cooperative consumer of the classic protocol, as it sees itself."""

    member_id: str
    topic_names: frozenset[str]
    instance_id: str | None = None
    generation_id: int = -1
    owned: Partitions = frozenset()
    error: ErrorCode = ErrorCode.none
    must_join: bool = True

    def beat(self, world: "World") -> None:
        """Join, if it was called to or has just given something up; else heartbeat."""
        if not self.must_join:
            event = e.Heartbeat(GROUP_ID, self.generation_id, self.member_id, self.instance_id)
            result = world.apply(classic_members.heartbeat(world.group, event, world.context))
            assert isinstance(result, HeartbeatReply)
            self._hear(result.error)
        if self.must_join:
            self._join(world)

    def _join(self, world: "World") -> None:
        named: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            topic = world.topics.find_id(topic_id)
            if topic is not None:
                named.setdefault(topic.name, []).append(number)
        subscription = Subscription(
            topics=tuple(sorted(self.topic_names)),
            owned_partitions=tuple(
                NamedPartitions(topic=name, partitions=tuple(numbers))
                for name, numbers in named.items()
            ),
        )
        raw = bytearray(INT16.pack(1))
        writer(Subscription, 1, flexible=False)(raw, subscription)
        offered = (e.JoinProtocol("cooperative-sticky", bytes(raw)),)
        who = (self.member_id, self.instance_id, "client", "/127.0.0.1")
        event = e.Join(GROUP_ID, 9, *who, 45_000, 20_000, "consumer", offered, "fresh")
        result = world.apply(classic_members.join(world.group, event, world.context))
        assert isinstance(result, JoinReply)
        self._hear(result.error)
        if result.error is not ErrorCode.none:
            return
        self.member_id, self.generation_id = result.member_id, result.generation_id
        sync = e.Sync(GROUP_ID, self.generation_id, self.member_id, self.instance_id)
        synced = world.apply(classic_members.sync(world.group, sync, world.context))
        assert isinstance(synced, SyncReply)
        self._hear(synced.error)
        if synced.error is ErrorCode.none:
            found = read_assignment(synced.assignment)
            assert found is not None
            assigned = identified(found.assigned_partitions, world.topics)
            # Who had to give something up joins once more, so that others may have it.
            self.must_join = not self.owned <= assigned
            self.owned = assigned

    def _hear(self, error: ErrorCode) -> None:
        self.error = error
        self.must_join = self.must_join or error is not ErrorCode.none
        if error not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            self.abandon()

    def abandon(self) -> None:
        """Stop using every partition, and join again."""
        self.owned, self.must_join, self.generation_id = frozenset(), True, -1

    def follow(self) -> None:
        """It has, with its SyncGroup."""


AnyClient: TypeAlias = Client | ClassicClient


@dataclass(slots=True)
class World:
    """One group, its log, its timers and the time."""

    topics: FakeTopics
    config: ConsumerGroupConfig = field(
        default_factory=lambda: ConsumerGroupConfig(assignment_interval_ms=0)
    )
    now_ms: int = 1_000_000
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup(GROUP_ID))
    log: list[CoordinatorRecord] = field(default_factory=list)
    deadlines: dict[tuple[MemberTimer, str], int] = field(default_factory=dict)

    @property
    def context(self) -> ConsumerGroupContext:
        return ConsumerGroupContext(self.now_ms, self.topics, self.config)

    def send(self, beat: Beat) -> BeatReply | Refusal:
        """Decide a heartbeat and commit what it writes."""
        context = replace(self.context, may_describe=beat.may_describe)
        outcome = heartbeat(self.group, beat, context)
        if isinstance(outcome, Refusal):
            return outcome
        result = self.apply(outcome)
        assert isinstance(result, BeatReply)
        return result

    def apply(self, outcome: Outcome) -> OutcomeResult:
        """Commit what was decided."""
        self.commit(outcome.records)
        self.plan(outcome.timers)
        return outcome.result

    def turn(self, client: AnyClient) -> None:
        """One heartbeat of a client of either protocol."""
        if isinstance(client, ClassicClient):
            client.beat(self)
        else:
            self.beat(client)

    def beat(self, client: Client, *, lose_answer: bool = False) -> BeatReply:
        """One heartbeat of a client, which then acts on the answer."""
        result = self.send(client.beat())
        if isinstance(result, Refusal):
            result = BeatReply(result.error, message=result.message)
        if lose_answer:
            client.must_say_all = True
        else:
            client.take(result)
        return result

    def leave(self, client: Client, *, for_now: bool = False) -> BeatReply | Refusal:
        epoch = STATIC_LEAVE_EPOCH if for_now else LEAVE_EPOCH
        event = Quit(GROUP_ID, client.member_id, epoch, client.instance_id)
        member = leaving.leaving_member(self.group, event)
        if not isinstance(member, ConsumerMember):
            return member
        if leaving.is_for_now(event):
            self.commit((leaving.leave_for_now(self.group, member),))
        else:
            self.remove(member.member_id)
        client.abandon()
        return leaving.farewell(event)

    def remove(self, *member_ids: str) -> None:
        gone = frozenset(member_ids)
        self.commit(leaving.remove_members(self.group, gone, self.context))
        for key in [key for key in self.deadlines if key[1] in gone]:
            del self.deadlines[key]

    def commit(self, entries: Iterable[CoordinatorRecord]) -> None:
        for entry in entries:
            self.log.append(entry)
            replay(self.group, entry)

    def plan(self, timers: Iterable[TimerChange]) -> None:
        for timer, member_id, delay_ms, if_absent in timers:
            if delay_ms is None:
                self.deadlines.pop((timer, member_id), None)
            elif not (if_absent and (timer, member_id) in self.deadlines):
                self.deadlines[timer, member_id] = self.now_ms + delay_ms

    def pass_time(self, duration_ms: int) -> list[str]:
        """Let time pass, and take out whoever was waited for too long; their ids."""
        self.now_ms += duration_ms
        gone = []
        for (timer, member_id), deadline_ms in sorted(
            self.deadlines.items(), key=lambda item: (item[1], item[0][1])
        ):
            if deadline_ms > self.now_ms or (timer, member_id) not in self.deadlines:
                continue
            del self.deadlines[timer, member_id]
            member = self.group.members.get(member_id)
            if member is not None and leaving.is_overdue(member, timer):
                self.remove(member_id)
                gone.append(member_id)
        return gone

    def restart(self) -> None:
        """Another broker takes the group over from a compacted log; sessions begin anew."""
        last = {entry.key: entry for entry in self.log}
        self.log = [entry for entry in self.log if last[entry.key] is entry]
        self.group = ConsumerGroup(GROUP_ID)
        for entry in self.log:
            replay(self.group, entry)
        self.deadlines.clear()
        for member in self.group.members.values():
            self.plan(
                [TimerChange(MemberTimer.SESSION, member.member_id, self.config.session_timeout_ms)]
            )

    def settle(self, clients: Iterable[AnyClient], rounds: int = 40) -> int:
        """Let the clients go on for a while; how many rounds it took until all were content."""
        everybody = list(clients)
        for count in range(rounds):
            for client in everybody:
                self.turn(client)
                client.follow()
            self.pass_time(self.config.heartbeat_interval_ms)
            if self.is_settled(everybody):
                return count + 1
        raise AssertionError(f"not settled after {rounds} rounds: {self.group.state}")

    def is_settled(self, clients: list[AnyClient]) -> bool:
        epoch = self.group.assignment_epoch
        return (
            self.group.members.keys() == {client.member_id for client in clients}
            and self.group.group_epoch == epoch
            and all(member.is_reconciled_to(epoch) for member in self.group.members.values())
            and all(client.owned == self.group.target[client.member_id] for client in clients)
        )


def replay(group: ConsumerGroup, entry: CoordinatorRecord) -> None:
    key = consumer_group_log.decode_key(entry.key)
    assert key is not None
    value = None
    if entry.value is not None:
        value = consumer_group_log.decode_value(key.kind, entry.value)
    records.replay(group, key, value)

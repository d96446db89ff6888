"""The coordinator starts again in every situation of a group: nothing is lost, and it settles.

Members of either protocol come, go, die and commit in virtual time. A situation is the state of
the group together with what each member is doing; at the first tick of each one the coordinator
dies, with the requests that wait there, and dies again a little later. From then on nobody comes or
goes: within a session and 5 s the living members have to share all partitions, and no offset that
was acknowledged may be missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Quit
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.members import MemberState
from oncelog.group.consumer.outcome import BeatReply
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.replies import HeartbeatReply, JoinReply, SyncReply
from oncelog.group.states import GroupState
from tests.unit.group.consumer.world import GROUP_ID, Client, FakeTopics, topic_id
from tests.unit.group.context import Context

TICK_MS = 100
HEARTBEAT_TICKS = 5
SESSION_MS = 6_000
SETTLE_TICKS_MAX = (SESSION_MS + 5_000) // TICK_MS
PARTITIONS = range(6)
STORY_TICKS = 240
SECOND_DEATH_TICKS = (1, 3, 8, 40)


class Member(ABC):
    """A consumer of one group. It does one thing in a tick."""

    def __init__(self, c: Context, name: str) -> None:
        self.c = c
        self.name = name
        self.ticks = sum(map(ord, name))
        self.acknowledged: dict[int, int] = {}

    @abstractmethod
    def tick(self) -> None:
        """Act on what it was told, or say that it is alive."""

    @abstractmethod
    def lose_connection(self) -> None:
        """What it waits for is never answered."""

    @abstractmethod
    def leave(self) -> None:
        """Say good-bye."""

    @property
    @abstractmethod
    def doing(self) -> Hashable:
        """What it is doing."""

    @property
    @abstractmethod
    def partitions(self) -> Sequence[int]:
        """Those that it uses."""

    @abstractmethod
    def identity(self) -> tuple[str, int, str]:
        """Its member id and generation or epoch, and the group's id."""

    def commit(self) -> None:
        """Commit the next offset of each partition."""
        member_id, generation, group_id = self.identity()
        for number in self.partitions:
            offset = self.c.now_ms
            wanted = (e.OffsetToCommit("t", number, offset, topic_id=topic_id("t")),)
            event = e.OffsetCommit(group_id, 9, generation, member_id, wanted)
            if self.c.outcome(self.c.submit(event)) is ErrorCode.none:
                self.acknowledged[number] = offset


class ClassicMember(Member):
    """It joins, synchronizes, and sends heartbeats, as every classic consumer does."""

    def __init__(self, c: Context, name: str) -> None:
        super().__init__(c, name)
        self.member_id = ""
        self.generation = -1
        self.phase = "join"
        self.token: int | None = None
        self.given: dict[str, bytes] = {}
        self.assigned: list[int] = []
        self.instance = name if name.startswith("static") else None

    @property
    def doing(self) -> Hashable:
        return self.phase, self.token is not None

    @property
    def partitions(self) -> Sequence[int]:
        return self.assigned if self.phase == "stable" else ()

    def identity(self) -> tuple[str, int, str]:
        return self.member_id, self.generation, "g"

    def lose_connection(self) -> None:
        self.token = None

    def leave(self) -> None:
        self.c.leave(self.member_id)

    def tick(self) -> None:
        self.ticks += 1
        if self.token is not None:
            if self.token in self.c.replies:
                result, self.token = self.c.replies[self.token], None
                self._hear(result)
        elif self.phase == "join":
            event = self.c.join_event(
                self.member_id, client=self.name, instance=self.instance, session_ms=SESSION_MS
            )
            self.token = self.c.submit(event)
        elif self.phase == "sync":
            event_ = self.c.sync_event(self.member_id, self.generation, self.given)
            self.token = self.c.submit(replace(event_, group_instance_id=self.instance))
        elif self.ticks % HEARTBEAT_TICKS == 0:
            self.token = self.c.submit(
                e.Heartbeat("g", self.generation, self.member_id, self.instance)
            )
        elif self.ticks % HEARTBEAT_TICKS == 2 and self.instance is None:
            self.commit()

    def _hear(self, result: object) -> None:
        assert isinstance(result, JoinReply | SyncReply | HeartbeatReply)
        if result.error is ErrorCode.none:
            self._go_on(result)
            return
        self.phase = "join"
        if isinstance(result, JoinReply) and result.error is ErrorCode.member_id_required:
            self.member_id = result.member_id
        elif result.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.member_id = ""

    def _go_on(self, result: JoinReply | SyncReply | HeartbeatReply) -> None:
        if isinstance(result, JoinReply):
            self.member_id, self.generation = result.member_id, result.generation_id
            members = sorted(member.member_id for member in result.members)
            self.given = {
                member: bytes(PARTITIONS[at :: len(members)]) for at, member in enumerate(members)
            }
            self.phase = "sync"
        elif isinstance(result, SyncReply):
            self.phase, self.assigned = "stable", list(result.assignment)


class NewMember(Member):
    """It sends heartbeats, and follows what they tell in the tick after."""

    def __init__(self, c: Context, name: str) -> None:
        super().__init__(c, name)
        instance = name if name.startswith("static") else None
        self.client = Client(name, topic_names=frozenset({"t"}), instance_id=instance)

    @property
    def doing(self) -> Hashable:
        group = self.c.shard.store.consumer_groups.get(GROUP_ID)
        member = group.members.get(self.name) if group is not None else None
        state = member.state if member is not None else None
        return state, self.client.owned == self.client.assigned

    @property
    def partitions(self) -> Sequence[int]:
        return [tp.partition for tp in self.client.owned & self.client.assigned]

    def identity(self) -> tuple[str, int, str]:
        return self.name, self.client.epoch, GROUP_ID

    def lose_connection(self) -> None:
        # Whatever it had asked for was answered or lost: it says everything again.
        self.client.must_say_all = True

    def leave(self) -> None:
        self.c.submit(Quit(GROUP_ID, self.name, -1))

    def tick(self) -> None:
        self.ticks += 1
        if self.client.owned != self.client.assigned and not self.client.must_say_all:
            self.client.follow()
        elif self.ticks % HEARTBEAT_TICKS == 0 or self.client.epoch == 0:
            result = self.c.replies[self.c.submit(self.client.beat())]
            assert isinstance(result, BeatReply)
            self.client.take(result)
        elif self.ticks % HEARTBEAT_TICKS == 2:
            self.commit()


class Story:
    """Members that come and go: two at first, one more, a death, a static one, one leaves."""

    def __init__(self, kind: type[Member]) -> None:
        consumer = ConsumerGroupConfig(
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_TICKS * TICK_MS
        )
        topics = FakeTopics({"t": len(PARTITIONS)})
        self.c = Context(GroupConfig(consumer=consumer), topics=topics)
        self.kind = kind
        self.living: dict[str, Member] = {}
        self.everybody: list[Member] = []

    def tick(self, number: int) -> None:
        """One tick of the story: who comes and goes, then everybody does something."""
        match number:
            case 0:
                self.come("a")
                self.come("b")
            case 60:
                self.come("c")
            case 100:
                del self.living["a"]
            case 175:
                self.come("static-d")
            case 200:
                self.living.pop("b").leave()
        self.go_on()

    def come(self, name: str) -> None:
        self.living[name] = self.kind(self.c, name)
        self.everybody.append(self.living[name])

    def go_on(self) -> None:
        for member in self.living.values():
            member.tick()
        self.c.advance(TICK_MS)

    def restart(self) -> None:
        self.c.restart()
        for member in self.living.values():
            member.lose_connection()

    @property
    def states(self) -> frozenset[Hashable]:
        """Of the group and its members."""
        store = self.c.shard.store
        found: set[Hashable] = {group.state for group in store.groups.values()}
        for group in store.consumer_groups.values():
            found |= {group.state, *(member.state for member in group.members.values())}
        return frozenset(found)

    @property
    def situation(self) -> Hashable:
        return self.states, tuple((m.name, m.doing) for m in self.living.values())

    @property
    def is_settled(self) -> bool:
        """Whether the living members, and nobody else, share all partitions."""
        used = sorted(number for member in self.living.values() for number in member.partitions)
        store = self.c.shard.store
        there = {m for group in store.groups.values() for m in group.members}
        there |= {m for group in store.consumer_groups.values() for m in group.members}
        members = {member.identity()[0] for member in self.living.values()}
        is_stable = self.states <= {
            GroupState.STABLE,
            ConsumerGroupState.STABLE,
            MemberState.STABLE,
        }
        return is_stable and there == members and used == list(PARTITIONS)

    def check_offsets(self) -> None:
        """What was acknowledged last is there."""
        group_id = self.everybody[0].identity()[2]
        for number in PARTITIONS:
            due = max((m.acknowledged.get(number, -1) for m in self.everybody), default=-1)
            found = self.c.fetch(TopicPartition("t", number), group_id=group_id)
            assert found.offset == due, number


def first_ticks(kind: type[Member]) -> dict[Hashable, tuple[int, frozenset[Hashable]]]:
    """The tick after which each situation is met first, and the states in it."""
    story = Story(kind)
    found: dict[Hashable, tuple[int, frozenset[Hashable]]] = {}
    for number in range(STORY_TICKS):
        story.tick(number)
        found.setdefault(story.situation, (number, story.states))
    assert story.is_settled
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "states"),
    [
        (
            ClassicMember,
            {
                GroupState.EMPTY,
                GroupState.PREPARING_REBALANCE,
                GroupState.COMPLETING_REBALANCE,
                GroupState.STABLE,
            },
        ),
        (
            NewMember,
            {
                ConsumerGroupState.ASSIGNING,
                ConsumerGroupState.RECONCILING,
                ConsumerGroupState.STABLE,
                *(set(MemberState) - {MemberState.UNKNOWN}),
            },
        ),
    ],
)
def test_a_restart_in_any_situation_loses_nothing_and_the_group_settles(
    kind: type[Member], states: set[Hashable]
) -> None:
    situations = first_ticks(kind)
    met = {state for _, found in situations.values() for state in found}
    assert states <= met
    for at, (last, _) in enumerate(situations.values()):
        story = Story(kind)
        for number in range(last + 1):
            story.tick(number)
        story.restart()
        story.check_offsets()
        for _ in range(SECOND_DEATH_TICKS[at % len(SECOND_DEATH_TICKS)]):
            story.go_on()
        story.restart()
        ticks = 0
        while not story.is_settled:
            story.check_offsets()
            story.go_on()
            ticks += 1
            assert ticks <= SETTLE_TICKS_MAX, (last, story.situation)

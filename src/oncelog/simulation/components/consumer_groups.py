"""Simulates one group under KIP-848 alone: a shard, members that behave well, and a naive model.

Members join, leave, fall silent, come back as static members, change what they subscribe to, while
topics come, grow and go and the shard is loaded again. Between two changes all members send
heartbeats until nothing moves. Then the epochs, the assignment by the assignor's rule, what each
member keeps, and the description have to be what follows from the changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncelog.core.errors import ErrorCode
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit
from oncelog.group.consumer.members import TopicIdPartition
from oncelog.group.consumer.outcome import ConsumerGroupDescription
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.events import DeleteGroup, ListGroups, OffsetCommit, OffsetToCommit
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.simulation.components.group_shell import GroupShell, SimulatedTopics

__all__ = ["consumer_groups"]

LIVES_COUNT: Final = 3
CHANGES_COUNT: Final = 14
ROUNDS_MAX: Final = 12
MEMBERS_MAX: Final = 6
SESSION_MS: Final = 10_000
INTERVAL_MS: Final = 500
REBALANCE_MS: Final = 4_000
GROUP: Final = "g"
_NAMES: Final = ("a", "b", "c")
_PATTERN: Final = "[ab]"
_UNKNOWN: Final = ErrorCode.unknown_member_id


def consumer_groups(
    rng: random.Random,
    make: Callable[..., GroupCoordinatorShard] = GroupCoordinatorShard,
) -> Iterator[str]:
    """Simulate some groups; yield what is wrong with the first that is."""
    for life in range(LIVES_COUNT):
        group = _Group(rng, make)
        for number in range(CHANGES_COUNT):
            name = group.change()
            if group.wrong:
                yield from (f"life {life}, change {number}, {name}: {text}" for text in group.wrong)
                return


@dataclass(eq=False)
class _Member:
    """One process, as it sees itself. `kept` is what it had when nothing moved last."""

    id: str
    instance_id: str | None
    names: frozenset[str]
    pattern: str = ""
    assignor: str | None = None
    epoch: int = 0
    owned: frozenset[TopicIdPartition] = frozenset()
    kept: frozenset[TopicIdPartition] = frozenset()
    beaten_ms: int = 0
    rack: str | None = None

    def topics(self, topics: SimulatedTopics) -> frozenset[str]:
        """The topics that it subscribes to and that there are."""
        wanted = self.names if not self.pattern else frozenset("ab")
        return frozenset(wanted & topics.topics.keys())


@dataclass
class _Group:
    rng: random.Random
    make: Callable[..., GroupCoordinatorShard]
    wrong: list[str] = field(default_factory=list)
    members: list[_Member] = field(default_factory=list)
    away: list[_Member] = field(default_factory=list)
    """Static members that have left for now."""
    epoch: int = 0
    count: int = 0
    is_steady: bool = True
    """Whether only one change came since nothing moved."""

    def __post_init__(self) -> None:
        self.topics = SimulatedTopics()
        for name in _NAMES:
            self.topics.put(name, self.rng.choice((1, 2, 3, 5)))
        self.default = self.rng.choice(("uniform", "range"))
        assignors = ("uniform", "range") if self.default == "uniform" else ("range", "uniform")
        consumer = ConsumerGroupConfig(SESSION_MS, 300, INTERVAL_MS, 6, assignors)
        self.shell = GroupShell(GroupConfig(consumer=consumer), self.topics, self.make)
        self.mixed = self.rng.random() < 0.3
        self.subscribed = frozenset(self.rng.sample(_NAMES, self.rng.choice((1, 2, 3))))
        self.changes: tuple[Callable[[], None], ...] = (
            *(self.join, self.join, self.leave, self.fall_silent, self.leave_for_now),
            *(self.come_back, self.subscribe, self.grow, self.remake, self.misuse, self.load),
            *(self.hold_on, self.commit),
        )

    def same(self, what: str, found: object, due: object) -> None:
        """Note a difference."""
        if found != due:
            self.wrong.append(f"{what} is {found}, not {due}")

    # --- heartbeats

    def beat(self, member: _Member, *, is_full: bool = False) -> None:
        """Send a member's heartbeat, and let it do what it is told."""
        said = Beat(
            GROUP,
            member.id,
            member.epoch,
            f"client-{member.id}",
            "/host",
            member.instance_id,
            owned=member.owned,
        )
        if is_full or member.epoch == 0:
            said = replace(
                said,
                rack_id=member.rack,
                rebalance_timeout_ms=REBALANCE_MS,
                topic_names=frozenset() if member.pattern else member.names,
                topic_regex=member.pattern,
                server_assignor=member.assignor,
            )
        answer: Any = self.shell.ask(said)
        member.beaten_ms = self.shell.now_ms
        if answer.error is not ErrorCode.none:
            self.wrong.append(f"a heartbeat of {member} gave {answer}")
            return
        self.same("the answer's member", answer.member_id, member.id)
        self.same("the interval", answer.heartbeat_interval_ms, 300)
        if not member.epoch <= answer.member_epoch <= self.epoch:
            self.wrong.append(f"{member} moves to {answer.member_epoch}, of {self.epoch}")
        member.epoch = answer.member_epoch
        if answer.assigned is not None:
            for other in self.members:
                if other is not member and other.owned & answer.assigned:
                    self.wrong.append(f"{answer.assigned} of {member.id} is owned by {other}")
            member.owned = answer.assigned
        elif is_full:
            self.wrong.append(f"a full heartbeat of {member.id} was told no assignment")

    def settle(self) -> None:
        """Send heartbeats until nothing moves, then compare everything."""
        for _ in range(ROUNDS_MAX):
            before = [(each.epoch, each.owned) for each in self.members]
            self.shell.pass_time(self.shell.now_ms + INTERVAL_MS)
            for each in self.members:
                self.beat(each)
            if before == [(each.epoch, each.owned) for each in self.members] or self.wrong:
                break
        else:
            self.wrong.append("the group does not settle")
        if self.wrong:
            return
        self.compare()

    def compare(self) -> None:
        """Compare the settled group with the model."""
        for each in self.members:
            self.same(f"the epoch of {each.id}", each.epoch, self.epoch)
        if self.members and not self.away:
            self._compare_assignment()
        self._compare_description()
        for each in self.members:
            each.kept = each.owned
        self.is_steady = not self.away

    def _compare_assignment(self) -> None:
        given = [partition for each in self.members for partition in each.owned]
        wanted = {name for each in self.members for name in each.topics(self.topics)}
        everything = {
            TopicIdPartition(topic.topic_id, number)
            for name in wanted
            if (topic := self.topics.find(name))
            for number in range(topic.partition_count)
        }
        self.same("what is assigned", sorted(given), sorted(everything))
        votes = [each.assignor for each in self.members if each.assignor]
        counts = {name: votes.count(name) for name in votes}
        names = sorted(counts, key=lambda name: (-counts[name], name)) or [self.default]
        if names[0] == "range":
            for name in sorted(wanted):
                self._compare_range(name)
        elif len({each.topics(self.topics) for each in self.members}) == 1:
            self._compare_uniform(everything)
        else:
            self._compare_mixed()

    def _compare_range(self, name: str) -> None:
        topic = self.topics.topics[name]
        mine = [each for each in self.members if name in each.topics(self.topics)]
        mine.sort(key=lambda each: (each.instance_id is None, each.instance_id or each.id))
        share, extra = divmod(topic.partition_count, len(mine))
        start = 0
        for index, each in enumerate(mine):
            count = share + (index < extra)
            due = set(range(start, start + count))
            found = {p.partition for p in each.owned if p.topic_id == topic.topic_id}
            self.same(f"the range of {name} of {each.id}", found, due)
            start += count

    def _compare_uniform(self, everything: set[TopicIdPartition]) -> None:
        sizes = sorted(len(each.owned) for each in self.members)
        if sizes[-1] - sizes[0] > 1:
            self.wrong.append(f"the shares are {sizes}")
        if not self.is_steady:
            return
        share, extra = divmod(len(everything), len(self.members))
        had = [len(each.kept & everything) for each in self.members]
        may_keep = sum(min(count, share) for count in had)
        may_keep += min(extra, sum(count > share for count in had))
        kept = sum(len(each.kept & each.owned) for each in self.members)
        self.same("the number of partitions that stay", kept, may_keep)

    def _compare_mixed(self) -> None:
        """No partition could move from a member to one that has two less."""
        for each in self.members:
            for other in self.members:
                shared = {
                    self.topics.topics[name].topic_id for name in other.topics(self.topics)
                } & {partition.topic_id for partition in each.owned}
                if shared and len(each.owned) - len(other.owned) > 1:
                    self.wrong.append(f"{each} has more than {other}")

    def _compare_description(self) -> None:
        found: Any = self.shell.ask(DescribeConsumerGroup(GROUP))
        listed: Any = self.shell.ask(ListGroups())
        if not self.count:
            return
        assert isinstance(found, ConsumerGroupDescription)
        state = "Stable" if self.members or self.away else "Empty"
        lines = [(each.group_id, each.state, each.group_type) for each in listed.groups]
        self.same(
            "the list", lines, [(GROUP, found.state.value if found.state else "", "consumer")]
        )
        if not self.away:
            epochs = (found.state.value if found.state else "", found.group_epoch)
            self.same("the described group", epochs, (state, self.epoch))
        shown = {
            each.member_id: (
                *(each.instance_id, each.rack_id, each.client_id, each.client_host),
                *(each.topic_names, each.topic_regex, each.member_epoch),
                *(frozenset(each.assigned), frozenset(each.pending_revocation)),
                found.target.get(each.member_id),
            )
            for each in found.members
            if each.member_epoch >= 0
        }
        due: dict[str, object] = {
            each.id: (
                *(each.instance_id, each.rack, f"client-{each.id}", "/host"),
                *(frozenset() if each.pattern else each.names, each.pattern, each.epoch),
                *(each.owned, frozenset(), each.owned),
            )
            for each in self.members
        }
        self.same("the described members", shown, due)
        self.same("the members that are away", len(found.members) - len(due), len(self.away))

    # --- changes

    def change(self) -> str:
        """Change one thing, and let the group settle."""
        act = self.rng.choice(self.changes)
        act()
        if not self.wrong:
            self.settle()
        return act.__name__

    def join(self) -> None:
        """A new member comes; the group is full with six."""
        self.count += 1
        rng = self.rng
        names, pattern = self.subscribed, ""
        if self.mixed:
            names = frozenset(rng.sample(_NAMES, rng.choice((1, 2))))
            pattern = _PATTERN if rng.random() < 0.3 else ""
        name = f"m{self.count}"
        member = _Member(name, name if rng.random() < 0.4 else None, names, pattern)
        member.rack = rng.choice((None, "rack"))
        member.assignor = rng.choice((None, None, "uniform", "range"))
        if self.is_full:
            answer: Any = self.shell.ask(
                Beat(GROUP, name, 0, topic_names=names, rebalance_timeout_ms=1, owned=frozenset())
            )
            self.same("the answer of a full group", answer.error, ErrorCode.group_max_size_reached)
            return
        self.epoch += 1
        self.members.append(member)
        self.beat(member)

    @property
    def is_full(self) -> bool:
        """Whether the group has as many members as it may have."""
        return len(self.members) + len(self.away) >= MEMBERS_MAX

    def _pick(self) -> _Member | None:
        return self.rng.choice(self.members) if self.members else None

    def _lose(self, member: _Member) -> None:
        self.members.remove(member)
        self.epoch += 1

    def leave(self) -> None:
        """A member leaves for good."""
        if (member := self._pick()) is not None:
            answer: Any = self.shell.ask(Quit(GROUP, member.id, -1, member.instance_id))
            self.same("the farewell", (answer.error, answer.member_epoch), (ErrorCode.none, -1))
            self._lose(member)

    def fall_silent(self) -> None:
        """A member says nothing: it is taken out when its session ends, and not before."""
        if (member := self._pick()) is None or self.away:
            return
        until_ms = member.beaten_ms + SESSION_MS
        while self.shell.now_ms + 3_000 < until_ms - 1:
            self.shell.pass_time(self.shell.now_ms + 3_000)
            for each in self.members:
                if each is not member:
                    self.beat(each)
        self.shell.pass_time(until_ms - 1)
        known: Any = self.shell.ask(DescribeConsumerGroup(GROUP))
        self.same("the members before", len(known.members), len(self.members))
        self.shell.pass_time(until_ms)
        known = self.shell.ask(DescribeConsumerGroup(GROUP))
        self.same("the members after", len(known.members), len(self.members) - 1)
        self._lose(member)
        answer: Any = self.shell.ask(Beat(GROUP, member.id, member.epoch, owned=member.owned))
        self.same("the answer to it", answer.error, _UNKNOWN)

    def leave_for_now(self) -> None:
        """A static member goes, and will be back: nothing moves."""
        statics = [each for each in self.members if each.instance_id]
        if statics and not self.away:
            member = self.rng.choice(statics)
            answer: Any = self.shell.ask(Quit(GROUP, member.id, -2, member.instance_id))
            self.same("the farewell", (answer.error, answer.member_epoch), (ErrorCode.none, -2))
            self.members.remove(member)
            self.away.append(member)
            self.come_back()

    def come_back(self) -> None:
        """A static member comes back under another member id, with what it had."""
        if not self.away:
            return
        self.count += 1
        former = self.away.pop()
        member = replace(former, id=f"m{self.count}", epoch=0, owned=frozenset())
        self.members.append(member)
        self.beat(member)
        self.same("what it has again", member.owned, former.owned)
        answer: Any = self.shell.ask(
            Beat(GROUP, former.id, former.epoch, instance_id=former.instance_id)
        )
        self.same("the former self", answer.error, ErrorCode.fenced_instance_id)

    def subscribe(self) -> None:
        """A member subscribes to something else, or says the same again."""
        if (member := self._pick()) is None:
            return
        if self.mixed and not member.pattern:
            names = frozenset(self.rng.sample(_NAMES, self.rng.choice((1, 2))))
            self.epoch += names != member.names
            member.names = names
        self.beat(member, is_full=True)

    def grow(self) -> None:
        """A topic gets more partitions."""
        name = self.rng.choice(sorted(self.topics.topics))
        count = self.topics.topics[name].partition_count
        if count < 8:
            self.topics.put(name, count + self.rng.choice((1, 2)))
            self._topics_changed(name)

    def remake(self) -> None:
        """A topic is deleted and made again."""
        name = self.rng.choice(sorted(self.topics.topics))
        self.topics.remove(name)
        self.topics.put(name, self.rng.choice((1, 2, 4)))
        self._topics_changed(name)

    def _topics_changed(self, name: str) -> None:
        if any(name in each.topics(self.topics) for each in self.members):
            self.epoch += 1

    def misuse(self) -> None:
        """Wrong epochs and unknown members are refused, and change nothing."""
        if (member := self._pick()) is None:
            unknown: Any = self.shell.ask(Beat(GROUP, "none", 3))
            allowed = (_UNKNOWN, ErrorCode.group_id_not_found)
            self.same("the answer", unknown.error in allowed, True)
            return
        stranger = ErrorCode.fenced_instance_id if member.instance_id else _UNKNOWN
        # A full group refuses clients that are no member of it, unless a static one comes back.
        is_turned_away = self.is_full and member.instance_id is None
        refusal = ErrorCode.group_max_size_reached if is_turned_away else stranger
        cases = (
            (replace_beat(member, epoch=member.epoch + 1), ErrorCode.fenced_member_epoch),
            (replace_beat(member, member_id="none"), refusal),
            (Quit(GROUP, "none", -1, member.instance_id), stranger),
            (Beat(GROUP, "none", 0, instance_id=member.instance_id or "x", topic_regex="("), None),
            (DeleteGroup(GROUP), ErrorCode.non_empty_group),
        )
        for event, due in cases:
            answer: Any = self.shell.ask(event)
            if due is None:
                self.same("an error", answer.error is not ErrorCode.none, True)
            else:
                self.same(f"the answer to {event}", answer.error, due)

    def load(self) -> None:
        """The shard is loaded again: sessions start again, nothing else changes."""
        before = self.shell.ask(DescribeConsumerGroup(GROUP))
        self.shell.begin()
        for each in self.members:
            each.beaten_ms = self.shell.now_ms
        self.same("the group after a load", self.shell.ask(DescribeConsumerGroup(GROUP)), before)

    def hold_on(self) -> None:
        """A member that does not give up what it should is taken out in time."""
        if len(self.members) < 1 or self.away or self.mixed or len(self.members) > 4:
            return
        self.join()
        self.is_steady = False
        slow = self.rng.choice(self.members[:-1])
        said = Beat(GROUP, slow.id, slow.epoch, instance_id=slow.instance_id, owned=slow.owned)
        self.shell.pass_time(self.shell.now_ms + INTERVAL_MS)
        for each in self.members:
            if each is not slow:
                self.beat(each)
        began_ms = self.shell.now_ms
        answer: Any = self.shell.ask(said)
        slow.beaten_ms = began_ms
        if answer.assigned is None or not slow.owned - answer.assigned:
            slow.epoch = answer.member_epoch
            slow.owned = slow.owned if answer.assigned is None else answer.assigned
            return
        self.same("the epoch while it revokes", answer.member_epoch, slow.epoch)
        for each in self.members:
            if each is not slow:
                self.beat(each)
        self.shell.pass_time(began_ms + REBALANCE_MS - 1)
        self.shell.ask(said)
        known: Any = self.shell.ask(DescribeConsumerGroup(GROUP))
        self.same("the members before", len(known.members), len(self.members))
        self.shell.pass_time(began_ms + REBALANCE_MS)
        known = self.shell.ask(DescribeConsumerGroup(GROUP))
        self.same("the members after", len(known.members), len(self.members) - 1)
        self._lose(slow)

    def commit(self) -> None:
        """Commits of members with their epoch, with another, and of strangers."""
        if (member := self._pick()) is None:
            return
        offsets = (OffsetToCommit("a", 0, 5),)
        cases = (
            (member.epoch, member.id, ErrorCode.none),
            (member.epoch + 1, member.id, ErrorCode.stale_member_epoch),
            (member.epoch, "none", _UNKNOWN),
            (-1, "", _UNKNOWN),
        )
        for epoch, member_id, due in cases:
            answer: Any = self.shell.ask(OffsetCommit(GROUP, 9, epoch, member_id, offsets))
            self.same("the codes of a commit", [each.error for each in answer.partitions], [due])


def replace_beat(member: _Member, *, epoch: int | None = None, member_id: str = "") -> Beat:
    """Return a heartbeat of a member with something wrong in it."""
    at = member.epoch if epoch is None else epoch
    return Beat(GROUP, member_id or member.id, at, instance_id=member.instance_id)

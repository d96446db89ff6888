"""INV-6 at every crash point of a transaction with offsets, while its group rebalances.

A member commits offsets in a transaction, is fenced by a rebalance between TxnOffsetCommit and
EndTxn, and another transaction goes on beside it. The coordinator starts again after every step,
after any two of them, or between the records of a step; what OffsetFetch shows, with and without
require_stable, has to be the same as without a crash: never an offset whose marker is not written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.outcome import BeatReply
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.states import GroupState
from tests.unit.group.consumer.world import FakeTopics, topic_id
from tests.unit.group.context import T0, T1, Context

PRODUCER, OTHER = 7, 8
HEARTBEAT_MS = 1_000
ROUNDS_COUNT_MAX = 60


class GroupUnderTest(ABC):
    """A group of one protocol with a member `first`, and a second one that joins later.

    stale: the error of a commit as the member of an earlier generation or epoch.
    """

    stale = ErrorCode.illegal_generation

    def __init__(self) -> None:
        consumer = ConsumerGroupConfig(assignment_interval_ms=0)
        topics = FakeTopics({"t": 2})
        self.c = Context(GroupConfig(consumer=consumer), topics=topics)

    @abstractmethod
    def form(self) -> None:
        """The first member gets both partitions."""

    @abstractmethod
    def rebalance(self) -> None:
        """A second member joins, in any state of the group, and the group settles."""

    @abstractmethod
    def membership(self) -> tuple[str, int]:
        """The first member's id, and its generation or epoch now."""

    def commit(self, offset: int, at: TopicPartition, named: tuple[str, int]) -> ErrorCode:
        """Commit outside of a transaction."""
        wanted = e.OffsetToCommit(at.topic, at.partition, offset, topic_id=topic_id("t"))
        event = e.OffsetCommit("g", 9, named[1], named[0], (wanted,))
        return self.c.outcome(self.c.submit(event))

    def commit_in(
        self, producer: int, offset: int, at: TopicPartition, named: tuple[str, int]
    ) -> ErrorCode:
        """Commit in a producer's transaction."""
        wanted = e.OffsetToCommit(at.topic, at.partition, offset, topic_id=topic_id("t"))
        event = e.TxnOffsetCommit("g", 5, "x", producer, 0, named[1], named[0], (wanted,))
        return self.c.outcome(self.c.submit(event))


class Classic(GroupUnderTest):
    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        self.names: list[str] = []

    def form(self) -> None:
        self.names = self.c.stable(1)
        self.generation = 1

    def rebalance(self) -> None:
        """As clients do: who is told nothing for long, or of another generation, joins again."""
        former = self.generation
        while self.generation == former:
            if len(self.names) == 1:
                self.names.append(self.c.joined(self.c.join()).member_id)
            tokens = [self.c.join(name) for name in self.names]
            self.c.advance(HEARTBEAT_MS)
            results = [self.c.joined(token) for token in tokens if token in self.c.replies]
            if any(result.error is not ErrorCode.none for result in results):
                # Its id was lost with the coordinator's memory.
                del self.names[1:]
                continue
            self.generation = self.c.group().generation_id
        leader = self.c.group().leader_id or ""
        self.c.sync(leader, self.generation, **dict.fromkeys(self.names, b"a"))
        assert self.c.group().state is GroupState.STABLE

    def membership(self) -> tuple[str, int]:
        return self.names[0], self.generation


class New(GroupUnderTest):
    """The first member keeps one of the partitions in a rebalance, and revokes the other."""

    stale = ErrorCode.stale_member_epoch

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, frozenset[object]] = {}

    def form(self) -> None:
        self.beat("first")

    def beat(self, name: str) -> None:
        """One heartbeat; the member does at once what it is told."""
        joins = self.epochs.get(name, 0) == 0
        event = Beat(
            "g",
            name,
            self.epochs.get(name, 0),
            "c",
            "/127.0.0.1",
            rebalance_timeout_ms=60_000,
            topic_names=frozenset({"t"}),
            owned=frozenset() if joins else self.owned[name],  # type: ignore[arg-type]
        )
        result = self.c.replies[self.c.submit(event)]
        assert isinstance(result, BeatReply)
        assert result.error is ErrorCode.none
        self.epochs[name] = result.member_epoch
        if result.assigned is not None:
            self.owned[name] = frozenset(result.assigned)

    def rebalance(self) -> None:
        former = self.epochs["first"]
        for _ in range(ROUNDS_COUNT_MAX):
            self.beat("second")
            self.c.advance(HEARTBEAT_MS)
            self.beat("first")
            settled = self.c.consumer_group().state is ConsumerGroupState.STABLE
            if settled and self.epochs["first"] > former:
                return
        raise AssertionError("the group does not settle")

    def membership(self) -> tuple[str, int]:
        return "first", self.epochs["first"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What OffsetFetch shows of both partitions, and which of them are unstable."""

    offsets: tuple[int, int]
    unstable: tuple[bool, bool]


def shown(c: Context) -> Shown:
    """What both kinds of OffsetFetch answer now."""
    plain = [c.fetch(at) for at in (T0, T1)]
    stable = [c.fetch(at, require_stable=True) for at in (T0, T1)]
    for without, with_ in zip(plain, stable, strict=True):
        assert with_.error in (ErrorCode.none, ErrorCode.unstable_offset_commit)
        assert without.error is ErrorCode.none
        assert with_.error is not ErrorCode.none or with_.offset == without.offset
    unstable = [found.error is not ErrorCode.none for found in stable]
    return Shown((plain[0].offset, plain[1].offset), (unstable[0], unstable[1]))


Step = tuple[Callable[[], None], Shown]


def transaction(group: GroupUnderTest, *, commit: bool) -> Iterator[Step]:
    """The steps, and what is shown after each of them."""
    c = group.c
    before: list[tuple[str, int]] = []

    def commit_before() -> None:
        assert group.commit(1, T0, group.membership()) is ErrorCode.none
        assert group.commit(1, T1, group.membership()) is ErrorCode.none

    def add_offsets() -> None:
        before.append(group.membership())
        for at in (T0, T1):
            assert group.commit_in(PRODUCER, 5, at, group.membership()) is ErrorCode.none

    def rebalance() -> None:
        group.rebalance()

    def commit_too_late() -> None:
        # Of the new protocol a member may use an older epoch for what it has kept (KIP-1251).
        lost = T1 if isinstance(group, New) else T0
        if isinstance(group, New):
            kept = {tp.partition for tp in group.owned["first"]}  # type: ignore[attr-defined]
            lost = T1 if 1 not in kept else T0
        assert group.commit_in(PRODUCER, 6, lost, before[0]) is group.stale

    def add_offsets_of_another() -> None:
        assert group.commit_in(OTHER, 9, T1, group.membership()) is ErrorCode.none

    ends = 5 if commit else 1
    yield group.form, Shown((-1, -1), (False, False))
    yield commit_before, Shown((1, 1), (False, False))
    yield add_offsets, Shown((1, 1), (True, True))
    yield rebalance, Shown((1, 1), (True, True))
    yield commit_too_late, Shown((1, 1), (True, True))
    yield add_offsets_of_another, Shown((1, 1), (True, True))
    yield lambda: c.marker(PRODUCER, commit), Shown((ends, ends), (False, True))
    yield lambda: c.marker(OTHER, not commit), Shown((ends, ends if commit else 9), (False, False))


STEPS_COUNT = 8
CRASHES = [(), *((n,) for n in range(STEPS_COUNT)), *combinations(range(STEPS_COUNT), 2)]


@pytest.mark.parametrize("kind", [Classic, New])
@pytest.mark.parametrize("commit", [True, False])
def test_inv6_offsets_of_a_transaction_do_not_show_early_wherever_the_coordinator_dies(
    kind: type[GroupUnderTest], commit: bool
) -> None:
    for crashes in CRASHES:
        group = kind()
        for number, (step, wanted) in enumerate(transaction(group, commit=commit)):
            step()
            assert shown(group.c) == wanted, (crashes, number)
            if number in crashes:
                group.c.restart()
                assert shown(group.c) == wanted, (crashes, number, "after the crash")


@pytest.mark.parametrize("kind", [Classic, New])
@pytest.mark.parametrize("commit", [True, False])
def test_inv6_offsets_of_a_transaction_do_not_show_early_on_another_coordinator(
    kind: type[GroupUnderTest], commit: bool
) -> None:
    """The partition moves away and back: who led it before answers nothing any more."""
    for moves in range(STEPS_COUNT):
        group = kind()
        for number, (step, wanted) in enumerate(transaction(group, commit=commit)):
            step()
            if number == moves:
                group.c.handle(group.c.processor.resign(group.c.now_ms))
                token = group.c.submit(e.OffsetFetch("g", None))
                assert "not_coordinator" in repr(group.c.replies[token])
                group.c.restart()
            assert shown(group.c) == wanted, (moves, number)


@pytest.mark.parametrize("kind", [Classic, New])
@pytest.mark.parametrize("commit", [True, False])
def test_inv6_a_log_that_lost_its_end_shows_nothing_early(
    kind: type[GroupUnderTest], commit: bool
) -> None:
    """Every prefix of the log, as another replica may have it: also within a step."""
    group = kind()
    ends: list[tuple[int, Shown]] = []
    for step, wanted in transaction(group, commit=commit):
        step()
        ends.append((len(group.c.log), wanted))
    log = list(group.c.log)
    decided = {at for at, item in enumerate(log) if not hasattr(item, "record")}
    for end in range(len(log) + 1):
        group.c.log = log[:end]
        group.c.restart()
        found = shown(group.c)
        settled = [wanted for at, wanted in ends if at <= end]
        markers = sum(at < end for at in decided)
        if markers == 0:
            assert set(found.offsets) <= {-1, 1}, end
        elif markers == 1:
            assert found.offsets == ((5, 5) if commit else (1, 1)), end
        if end in dict(ends):
            assert found == settled[-1], end


def test_the_stories_have_the_steps_that_are_counted() -> None:
    for kind, commit in product((Classic, New), (True, False)):
        assert len(list(transaction(kind(), commit=commit))) == STEPS_COUNT

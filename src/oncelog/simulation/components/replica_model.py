"""What a replica's role must say, worked out from all that the replica was told.

`ExpectedReplica` is told the same as a `ReplicaState`, keeps the facts and derives the rest from
them each time it is asked. Of `oncelog.replication` it shares only the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from oncelog.core.errors import ErrorCode
from oncelog.replication.replica import Assignment, ReplicaState

__all__ = ["ExpectedReplica", "Visit"]

NONE = -1
NEVER = 1 << 62
Visit = tuple[int, int, int]
"""A fetch: its offset, the leader's log end and the time then."""


@dataclass(slots=True)
class ExpectedReplica:
    """One replica. `end` is the log end that it was told of.

    `visits` has the fetches of each other replica in this leadership, `asked` whom the controller
    was asked to add to the ISR by the present state.
    """

    broker_id: int
    end: int
    high_watermark: int
    assigned: Assignment | None = None
    is_serving: bool = False
    is_failed: bool = False
    began: tuple[int, int] = (0, 0)
    """The log end at the begin of the leadership, and the time."""
    visits: dict[int, list[Visit]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    told: int = NONE
    """The last high watermark that the leader of its epoch told."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads."""
        return (
            self.is_serving and self.assigned is not None and self.assigned.leader == self.broker_id
        )

    @property
    def is_follower(self) -> bool:
        """Whether it follows another one, or waits for a leader."""
        return self.is_serving and not self.is_leader

    @property
    def min_insync_replicas(self) -> int:
        """How many have to be in sync: never more than there are."""
        given = self.assigned
        return 0 if given is None else sorted((given.min_insync_replicas, len(given.replicas)))[0]

    @property
    def has_enough_replicas(self) -> bool:
        """Whether what is appended now may be committed."""
        return self.assigned is not None and len(self.assigned.isr) >= self.min_insync_replicas

    def assign(self, given: Assignment, log_end: int, now: int) -> bool:
        """Take an assignment, unless it is older than one before, or the folder has failed."""
        before = self.assigned
        if self.is_failed or (before is not None and _epochs(given) < _epochs(before)):
            return False
        led = before if self.is_leader else None
        if not self.is_follower or before is None or before.leader_epoch != given.leader_epoch:
            self.told = NONE
        self.assigned = given
        self.is_serving = True
        if led is None or not self.is_leader or led.leader_epoch < given.leader_epoch:
            self.began = log_end, now
            self.visits = {}
        if before is None or _epochs(before) < _epochs(given):
            self.asked = set()
        self._commit()
        return True

    def stop(self, *, failed: bool = False) -> None:
        """Give its role up. What it has asked may still be done."""
        self.is_serving = False
        self.is_failed = self.is_failed or failed
        self.visits = {}

    def reach(self, end: int) -> bool:
        """Note its own log end. Returns whether the high watermark moved."""
        self.end = end
        return self._raise_to(min(self.told, end)) if self.is_follower else self._commit()

    def fetch(self, follower: int, visit: Visit) -> ErrorCode:
        """Note a follower's fetch. Returns the error for it."""
        if not self.is_leader or self.assigned is None:
            return self.error(NONE)
        if follower == self.broker_id or follower not in self.assigned.replicas:
            return ErrorCode.unknown_leader_epoch
        offset, log_end, _ = visit
        if offset > log_end:
            return ErrorCode.offset_out_of_range
        self.visits.setdefault(follower, []).append(visit)
        self._commit()
        return ErrorCode.none

    def diverged(self, follower: int, now: int) -> None:
        """Note that a follower truncates: nothing is known of it, and it was not caught up."""
        if follower in self.visits:
            self.visits[follower].append((0, NEVER, now))

    def may_join(self, follower: int, offset: int) -> bool:
        """Whether who fetches there has all that any leader may know to be committed."""
        is_counted = self.assigned is None or follower in self.assigned.isr | self.asked
        return not is_counted and offset >= self.began[0] and offset >= self.high_watermark

    def join(self, follower: int) -> None:
        """Note that the controller is asked to add it."""
        self.asked.add(follower)
        self._commit()

    def learn(self, high_watermark: int) -> bool:
        """Note the leader's high watermark. Returns whether its own moved."""
        if not self.is_follower:
            return False
        self.told = high_watermark
        return self._raise_to(min(high_watermark, self.end))

    def cut(self, end: int) -> None:
        """Note that its log ends earlier."""
        self.end = end
        if self.high_watermark > end:
            self.high_watermark = end

    def error(self, request_epoch: int) -> ErrorCode:
        """Return how a request that needs the leader is refused; the epoch counts first."""
        epoch = NONE if self.assigned is None else self.assigned.leader_epoch
        if self.is_failed:
            return ErrorCode.kafka_storage_error
        if NONE < request_epoch < epoch:
            return ErrorCode.fenced_leader_epoch
        if request_epoch > epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none if self.is_leader else ErrorCode.not_leader_or_follower

    def lagging(self, now: int, lag_max: int) -> set[int]:
        """Who of the ISR has not been seen with all that the leader had for so long."""
        isr = self.assigned.isr if self.is_leader and self.assigned is not None else frozenset()
        return {each for each in isr - {self.broker_id} if now - self._caught_up(each) > lag_max}

    def _caught_up(self, follower: int) -> int:
        visits = self.visits.get(follower, [])
        at_once = [at for offset, end, at in visits if offset >= end]
        by_the_next = [first[2] for first, then in pairwise(visits) if then[0] >= first[1]]
        return max([self.began[1], *at_once, *by_the_next])

    def _commit(self) -> bool:
        """The high watermark is the smallest end over the maximal ISR, and never falls."""
        if not self.is_leader or not self.has_enough_replicas or self.assigned is None:
            return False
        ends = [self.end]
        for each in (self.assigned.isr | self.asked) - {self.broker_id}:
            ends.append(self.visits[each][-1][0] if self.visits.get(each) else 0)
        return self._raise_to(min(ends))

    def _raise_to(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def compare(self, state: ReplicaState) -> Iterator[str]:
        """Compare everything that the role shows."""
        given = self.assigned
        pairs: Sequence[tuple[str, object, object]] = (
            ("is_leader", state.is_leader, self.is_leader),
            ("is_failed", state.is_failed, self.is_failed),
            ("leader", state.leader, given.leader if given else NONE),
            ("leader_epoch", state.leader_epoch, given.leader_epoch if given else NONE),
            ("isr", state.isr, given.isr if given else frozenset()),
            ("replicas", state.replicas, given.replicas if given else ()),
            ("min_insync_replicas", state.min_insync_replicas, self.min_insync_replicas),
            ("has_enough_replicas", state.has_enough_replicas, self.has_enough_replicas),
            ("log_end_offset", state.log_end_offset, self.end),
            ("high_watermark", state.high_watermark, self.high_watermark),
        )
        for name, held, implied in pairs:
            if held != implied and (given is not None or name != "has_enough_replicas"):
                yield f"{name} is {held}, by what it was told {implied}"


def _epochs(given: Assignment) -> tuple[int, int]:
    return given.leader_epoch, given.partition_epoch

"""What a replica's role machine must say, worked out from all that the replica was told.

`ExpectedReplica` is told the same as a `PartitionState`, keeps the facts and derives the rest from
them each time it is asked. It shares no code with `oncelog.replication`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oncelog.core.errors import ErrorCode
from oncelog.replication.partition import PartitionState

__all__ = ["Assignment", "ExpectedReplica"]

NONE = -1


@dataclass(frozen=True, slots=True)
class Assignment:
    """One state of the partition, as the controller wrote it; -1 for no leader."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    replicas: tuple[int, ...]
    min_insync_replicas: int | None
    """The topic's setting; None: as before."""


@dataclass(slots=True)
class ExpectedReplica:
    """One replica. `end` is the log end that it was told of, `fetched` what followers had.

    `fetched` has the followers that are in the ISR now and have fetched in this leadership since
    they are in it.
    """

    broker_id: int
    end: int
    high_watermark: int
    assigned: Assignment | None = None
    is_serving: bool = False
    is_failed: bool = False
    min_insync_replicas: int = 1
    fetched: dict[int, int] = field(default_factory=dict)

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
    def has_enough_replicas(self) -> bool:
        """Whether what is appended now may be committed."""
        return self.assigned is not None and len(self.assigned.isr) >= self.min_insync_replicas

    def assign(self, given: Assignment) -> bool:
        """Take an assignment, unless it is older than one before, or the folder has failed."""
        before = self.assigned
        if self.is_failed or (before is not None and given.leader_epoch < before.leader_epoch):
            return False
        is_same_leadership = before is not None and (before.leader, before.leader_epoch) == (
            given.leader,
            given.leader_epoch,
        )
        stayed = given.isr if is_same_leadership and given.leader == self.broker_id else ()
        self.fetched = {who: self.fetched[who] for who in stayed if who in self.fetched}
        if given.min_insync_replicas is not None:
            self.min_insync_replicas = sorted((given.min_insync_replicas, len(given.replicas)))[0]
        self.assigned = given
        self.is_serving = True
        self._commit()
        return True

    def stop(self, *, failed: bool = False) -> None:
        """Give its role up."""
        self.is_serving = False
        self.is_failed = self.is_failed or failed
        self.fetched = {}

    def reach(self, end: int) -> bool:
        """Note its own log end. Returns whether the high watermark moved."""
        self.end = end
        return self._commit()

    def fetch(self, follower: int, offset: int) -> bool:
        """Note a follower's. Returns whether the high watermark moved."""
        if not self.is_leader or self.assigned is None or follower not in self.assigned.isr:
            return False
        self.fetched[follower] = offset
        return self._commit()

    def learn(self, high_watermark: int) -> bool:
        """Note the leader's high watermark. Returns whether its own moved."""
        known = [offset for offset in (high_watermark, self.end) if self.is_follower]
        return self._raise_to(min(known, default=NONE))

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

    def _commit(self) -> bool:
        """The high watermark is the smallest end over the ISR, and never falls."""
        if not self.is_leader or not self.has_enough_replicas or self.assigned is None:
            return False
        followers = self.assigned.isr - {self.broker_id}
        return self._raise_to(min([self.end, *(self.fetched.get(each, 0) for each in followers)]))

    def _raise_to(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def compare(self, state: PartitionState) -> Iterator[str]:
        """Compare everything that the machine shows."""
        given = self.assigned
        is_assigned = given is not None
        role = "leader" if self.is_leader else "follower" if self.is_follower else "offline"
        pairs: Sequence[tuple[str, object, object]] = (
            ("role", state.role.value, role),
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
            if held != implied and (is_assigned or name != "has_enough_replicas"):
                yield f"{name} is {held}, by what it was told {implied}"

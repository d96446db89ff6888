"""What the two ways to be a member of a group share: settings, actions, changes of ownership.

A member's machine says what to do next (`Action`), and what the application's own task has to carry
out before that goes on (`OwnershipChange`): callbacks run between two calls of `poll`, never beside
the application's work on records. `machines.classic_member` and `machines.consumer_member` decide;
`oncelog.client.membership` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from oncelog.client.errors import ClientError
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor

__all__ = [
    "NEVER_MS",
    "Action",
    "ChangeKind",
    "CoordinatorRequest",
    "GroupMachine",
    "Look",
    "MemberSettings",
    "Ownership",
    "OwnershipChange",
    "Partitions",
    "Wait",
]

NEVER_MS = float("inf")

Partitions = tuple[TopicPartition, ...]


class MemberSettings(NamedTuple):
    """A member's settings, times in ms; `max_poll_interval_ms` is its rebalance timeout as well."""

    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None
    rack_id: str | None = None


class CoordinatorRequest(NamedTuple):
    """CoordinatorRequest a request to the group's coordinator; its answer may take `timeout_ms`."""

    api: ApiKey
    request: RequestFor[Any]
    timeout_ms: float


class Look(NamedTuple):
    """Find out how many partitions these topics have, for an assignment."""

    topics: tuple[str, ...]


class Wait(NamedTuple):
    """Do nothing until this time, unless the machine is told something meanwhile."""

    until_ms: float


Action = CoordinatorRequest | Look | Wait


class ChangeKind(Enum):
    """What happens to partitions."""

    REVOKED = "revoked"
    """They go to another member: positions can still be committed."""
    LOST = "lost"
    """Another member may own them already: nothing can be committed any more."""
    ASSIGNED = "assigned"


class OwnershipChange(NamedTuple):
    """Partitions that the member gives up, has lost, or gets."""

    kind: ChangeKind
    partitions: Partitions


class Ownership:
    """The partitions of a member, and how they change: one `OwnershipChange` after another.

    A change that the application has begun is always ended; what is planned after it may be
    replaced meanwhile.
    """

    def __init__(self) -> None:
        self.owned: Partitions = ()
        self._planned: list[OwnershipChange] = []
        self._begun: OwnershipChange | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether no change is planned or begun."""
        return self._begun is None and not self._planned

    @property
    def is_begun(self) -> bool:
        """Whether the application carries out a change at this moment."""
        return self._begun is not None

    @property
    def is_planned(self) -> bool:
        """Whether there is a change that the application has not begun."""
        return bool(self._planned)

    def plan(self, *changes: OwnershipChange) -> None:
        """Replace what is planned; empty changes are left out, but for assignments."""
        self._planned = [
            each for each in changes if each.partitions or each.kind is ChangeKind.ASSIGNED
        ]

    def plan_towards(self, wanted: set[TopicPartition]) -> bool:
        """Plan what leads from what is owned to `wanted`; whether something is given up."""
        revoked = tuple(at for at in self.owned if at not in wanted)
        added = tuple(sorted(wanted.difference(self.owned)))
        self.plan(
            OwnershipChange(ChangeKind.REVOKED, revoked),
            OwnershipChange(ChangeKind.ASSIGNED, added),
        )
        return bool(revoked)

    def begin(self) -> OwnershipChange | None:
        """Take the next change, to carry it out."""
        if self._begun is None and self._planned:
            self._begun = self._planned.pop(0)
            return self._begun
        return None

    def end(self) -> None:
        """The change that was begun is carried out."""
        done, self._begun = self._begun, None
        if done is None:
            return
        changed = set(done.partitions)
        if done.kind is ChangeKind.ASSIGNED:
            self.owned = tuple(sorted(changed.union(self.owned)))
        else:
            self.owned = tuple(at for at in self.owned if at not in changed)


class GroupMachine(Protocol):
    """One member of a group. Times are monotonic, in ms."""

    ownership: Ownership
    error: ClientError | None
    """Why this member can never be in the group again."""

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """As whom the member commits now."""

    @property
    def is_settled(self) -> bool:
        """Whether the member has an assignment, and nothing is about to change."""

    def subscribe(self, topics: tuple[str, ...], pattern: str | None = None) -> None:
        """Read these topics, or those that match an expression of the broker's (RE2)."""

    def polled(self, now_ms: float) -> None:
        """The application asks for records."""

    def carried_out(self) -> None:
        """The change that was begun is done."""

    def next(self, now_ms: float) -> Action:
        """The next step; called again once it is answered, or time has passed."""

    def next_heartbeat(self, now_ms: float) -> Action:
        """The next heartbeat, beside a step that may take long."""

    def answered(self, answer: Any, now_ms: float) -> bool:
        """Take in the answer to the last request of `next`; False: pause before the next."""

    def heartbeat_answered(self, answer: Any, now_ms: float) -> None:
        """Take in the answer to the last `CoordinatorRequest` of `next_heartbeat`."""

    def failed(self, now_ms: float) -> None:
        """The last `CoordinatorRequest` of `next` has no answer."""

    def looked(self, counts: Mapping[str, int]) -> None:
        """The partitions of the topics that the last `Look` named; missing ones do not exist."""

    def metadata_changed(self, counts: Mapping[str, int], names: Mapping[TopicId, str]) -> None:
        """Partition counts by name and names by id of the topics that the client knows now."""

    def commit_refused(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> None:
        """A commit as `identity` failed: the group may have gone on without this member."""

    def leave(self) -> CoordinatorRequest | None:
        """The request by which the member leaves for good; None if it is not in the group."""

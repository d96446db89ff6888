"""Holds the state of one classic group: its generation and members (Kafka's `ClassicGroup`).

All of it is volatile (D2): the durable part is the group's last record in the log. After a
fail-over `records.load_group` makes the group from that record, with the members of that generation
but no waiting requests. This module knows no records, timers or replies; it stores the tokens of
waiting requests for others to answer.

Invariants: a static member's instance id belongs to exactly one member; a group with members has a
protocol type, and a leader who is one of them; the state changes as `states.MOVES` lists.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from typing import NamedTuple

from oncelog.coordinator.shard import Reply, Token
from oncelog.core.errors import ErrorCode, InvariantViolation, require
from oncelog.group.decision import GroupEvent, GroupReply
from oncelog.group.events import JoinProtocol
from oncelog.group.states import MOVES, GroupState
from oncelog.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from oncelog.group.timers import TimerKey, TimerKind

_NAME = attrgetter("name")
_REBALANCE_TIMEOUT_MS = attrgetter("rebalance_timeout_ms")


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """One member. `join_token` and `sync_token` identify its waiting requests, if any."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """Joined, but has not received its id yet.

    It cannot send heartbeats, so its session can expire while it waits.
    """
    is_cut_off: bool = False
    """The connection of its waiting request has closed: its session counts from then on."""

    @property
    def awaits_join(self) -> bool:
        """Whether its JoinGroup waits for the rebalance."""
        return self.join_token is not None

    @property
    def is_excused(self) -> bool:
        """Return whether it need not send heartbeats, because one of its requests waits."""
        is_waiting = self.awaits_join or self.sync_token is not None
        return is_waiting and not (self.is_new or self.is_cut_off)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for one protocol; empty if it does not offer it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


class WriteKind(Enum):
    """The reason why a group's record is being appended."""

    ASSIGNMENT = auto()
    STATIC_MEMBER = auto()
    EMPTIED = auto()
    DELETED = auto()


class FormerSelf(NamedTuple):
    """The state of a static member before it was replaced."""

    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A group record that is not committed yet; until then no other event changes the group.

    `event` is its cause, `always` holds replies that do not depend on the write, `former` undoes
    the replacement of a static member, `held` the timers that fell due meanwhile.
    """

    kind: WriteKind
    event: GroupEvent | None
    always: tuple[Reply[GroupReply], ...] = ()
    member_id: str = ""
    former: FormerSelf | None = None
    held: list[TimerKey] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """One group. `state_timestamp_ms` is -1 if unknown (old records)."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    unused_generation_id: int = 0
    """The generation of the group's record, if no member was told of it."""
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    previous_state: GroupState | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)
    """Ids that were assigned with MEMBER_ID_REQUIRED and have not joined yet."""
    joining: dict[Token, ClassicGroupMember] = field(default_factory=dict)
    """The members that wait in JoinGroup, by their tokens."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members of the current generation that have not sent SyncGroup yet."""
    subscribed_topics: frozenset[str] | None = None
    """The topics that a consumer group subscribes to; None if unknown."""
    new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    initial_delay_is_over: bool = False
    """The delay has passed, but all members were cut off: who joins now begins the generation."""
    write: PendingWrite | None = None
    join_key: TimerKey = field(init=False)
    """Identifies the deadline to (re)join."""
    sync_key: TimerKey = field(init=False)
    """Identifies the deadline to send SyncGroup."""
    _support: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.join_key = TimerKey(TimerKind.JOIN, self.group_id)
        self.sync_key = TimerKey(TimerKind.SYNC, self.group_id)

    # Members.

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        """Add a member whose protocols are compatible (`supports`)."""
        if member.group_instance_id is not None:
            taken = member.group_instance_id in self.static_members
            require(not taken, f"{self.group_id}: an instance id names one member")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.join_token is not None:
            self.joining[member.join_token] = member
        self._support.update(set(map(_NAME, member.protocols)))
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. Answer its waiting requests before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.end_join(member)
            self._support.subtract(set(map(_NAME, member.protocols)))
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: tuple[JoinProtocol, ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        join_token: Token | None,
    ) -> None:
        """Update a member from its new JoinGroup."""
        if member.join_token is not None:
            self.end_join(member)
        if join_token is not None:
            self.joining[join_token] = member
        self._support.subtract(set(map(_NAME, member.protocols)))
        member.protocols = protocols
        self._support.update(set(map(_NAME, protocols)))
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.join_token = join_token
        member.is_cut_off = False

    def end_join(self, member: ClassicGroupMember) -> None:
        """Have a member's JoinGroup, if there is one, wait no more."""
        if member.join_token is not None:
            del self.joining[member.join_token]
            member.join_token = None

    def rename_static_member(self, old_id: str, new_id: str) -> ClassicGroupMember:
        """Give a restarted static member a new member id (KIP-345)."""
        member = self.members.pop(old_id)
        require(member.group_instance_id is not None, f"{old_id} is no static member")
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[str(member.group_instance_id)] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE for a current member, otherwise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                return ErrorCode.unknown_member_id
            if existing != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    # Protocols.

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Whether a member with these protocols could join: all members support one of them."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._support[protocol.name] == len(self.members) for protocol in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes.

        Each member votes for its first protocol that all support; the first voted wins a tie.
        """
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = self._vote(member)
            votes[name] = votes.get(name, 0) + 1
        if not votes:
            raise InvariantViolation(f"{self.group_id}: an empty group has no protocol")
        return max(votes, key=votes.__getitem__)

    def _vote(self, member: ClassicGroupMember) -> str:
        for protocol in member.protocols:
            if self._support[protocol.name] == len(self.members):
                return protocol.name
        raise InvariantViolation(f"{self.group_id}: the members have no protocol in common")

    # The rebalance.

    def move(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        if state not in MOVES[self.state]:
            move = f"from {self.state.value} to {state.value}"
            raise InvariantViolation(f"a group cannot move {move}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def has_all_joined(self) -> bool:
        """Whether all members wait in JoinGroup, and no pending member id remains."""
        return not self.pending_joins and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts, in ms."""
        return max(map(_REBALANCE_TIMEOUT_MS, self.members.values()), default=0)

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether the group was empty before, and still delays its first generation."""
        return (
            self.state is GroupState.PREPARING_REBALANCE
            and self.previous_state is GroupState.EMPTY
            and not self.initial_delay_is_over
        )

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else elect a member that did; False if none did."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_token is not None and not leader.is_cut_off:
            return True
        # One whose connection has closed cannot be sent the list of members.
        joined = next(
            (
                member.member_id
                for member in self.members.values()
                if member.join_token is not None and not member.is_cut_off
            ),
            None,
        )
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def stay_in(self, generation_id: int) -> None:
        """Let members continue in the generation that they know, until the next one starts."""
        self.unused_generation_id = self.generation_id
        self.generation_id = generation_id

    def start_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members.

        Without members the group becomes empty.
        """
        self.generation_id = max(self.generation_id, self.unused_generation_id) + 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscription()
        self.move(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_syncs.clear()
        self.new_member_added = False

    # Subscription.

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members speak the consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def learn_subscription(self) -> None:
        """Read the group's subscribed topics from its members' metadata."""
        self.subscribed_topics = None
        is_consumer_group = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        if not is_consumer_group or (self.members and self.protocol_name is None):
            return
        all_topics: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return
            all_topics |= topics
        self.subscribed_topics = frozenset(all_topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the group subscribes to `topic`.

        A consumer group whose subscription is unknown might.
        """
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

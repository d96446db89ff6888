"""What an exact classic group is, and whether a coordinator says so.

See `exact_classic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import MemberSubscription, encode_subscription
from oncelog.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
)
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_offsets import Offsets, Who
from oncelog.simulation.peers.scene import Scene, UnsureError
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["INSTANCE_ELSEWHERE_MIN", "INSTANCE_MIN", "PROTOCOLS", "ClassicView", "Join", "Person"]

_LONG_MS: Final = 600_000
INSTANCE_MIN: Final = 5
INSTANCE_ELSEWHERE_MIN: Final = 3
_INSTANCE_DESCRIBED_MIN: Final = 4
_NOT_FOUND_MIN: Final = 6
PROTOCOLS: Final = ("p", "q", "r")
_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))

Join = tuple[join_group.JoinGroupResponse, int]


@dataclass(eq=False)
class Person:
    """One member: what it offers, and what it was told."""

    wire: PeerWire
    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int = _LONG_MS
    rebalance_ms: int = _LONG_MS
    member_id: str = ""
    assignment: bytes = b""
    topics: frozenset[str] = frozenset()

    @property
    def client_id(self) -> str:
        """The client id of its requests."""
        return self.wire.context.name

    def metadata(self, protocol: str) -> bytes:
        """What it offers for one protocol."""
        return dict(self.protocols)[protocol]


class ClassicView(Scene):
    """The model of a group, and the requests that change nothing of it.

    Parameters: `initial_delay_ms` (0), `sweep_ms` (none in a run), `topics`.
    """

    def __init__(self, context: ClientContext, group_id: str) -> None:
        super().__init__(context, group_id)
        self.topics: Sequence[str] = context.get("topics", ("t",))
        self.offsets = Offsets(self, self.topics)
        self.type = self.rng.choice(("consumer", "consumer", "connect"))
        self.members: list[Person] = []
        self.leader: Person | None = None
        self.generation = 0
        self.protocol = ""
        self.state = "Dead"
        self.gone: list[tuple[int, str]] = []
        """(generation, member id) of members that have left."""
        self.may_be_new = False
        """Whether a sweep may have deleted the group since it has no members."""
        self.join_min = 0
        """The oldest version of JoinGroup; in version 0 a rebalance takes a whole session."""
        self.rebalance_ms = _LONG_MS
        self._count = 0

    # --- people -----------------------------------------------------------------------

    def newcomer(self) -> Person:
        """Return someone who is not a member yet."""
        self._count += 1
        name = f"m{self._count}"
        rng = self.rng
        instance_id = name if rng.random() < 0.4 else None
        person = Person(self.wire(name), instance_id, (), rebalance_ms=self.rebalance_ms)
        self.offer(person)
        return person

    def offer(self, person: Person) -> None:
        """Draw the protocols that a member offers: the first of all, and up to two more."""
        rng = self.rng
        names = {PROTOCOLS[0], *rng.sample(PROTOCOLS, rng.randint(0, 2))}
        if self.protocol:
            # A broker that started since then knows no other protocol of the others.
            names.add(self.protocol)
        order = sorted(names)
        rng.shuffle(order)
        topics = tuple(rng.sample(list(self.topics), rng.randint(1, len(self.topics))))
        person.topics = frozenset(topics)
        mark = rng.randbytes(5)
        person.protocols = tuple((name, self._metadata(topics, mark, name)) for name in order)

    def _metadata(self, topics: tuple[str, ...], mark: bytes, protocol: str) -> bytes:
        """Return what a member says of itself, different for each protocol."""
        if self.type != "consumer":
            return mark + protocol.encode()
        owned = (TopicPartition(topics[0], len(mark)),)
        subscription = MemberSubscription(topics, owned, user_data=mark + protocol.encode())
        return encode_subscription(subscription, 1)

    def who(self, person: Person) -> Who:
        """Return in whose name a member sends."""
        return Who(self.generation, person.member_id, person.instance_id)

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics whose offsets may not be deleted."""
        if self.type != "consumer" or not self.members:
            return frozenset()
        return frozenset().union(*(each.topics for each in self.members))

    @property
    def may_vanish(self) -> bool:
        """Whether a sweep may delete the group: it has no members, and no offsets that stay."""
        stays = self.offsets.committed.keys() - self.offsets.expires_ms.keys()
        is_swept = float(self.context.get("sweep_ms", _LONG_MS)) < _LONG_MS
        return is_swept and not (self.members or stays or self.offsets.pending)

    @property
    def _types(self) -> frozenset[str]:
        """The type that is shown; none if a sweep has deleted the group before a commit."""
        return frozenset({self.type, ""} if self.may_be_new else {self.type})

    # --- heartbeats -------------------------------------------------------------------

    async def beat(
        self, person: Person, generation: int, due: ErrorCode, member_id: str | None = None
    ) -> None:
        """Send a heartbeat, which has to get this code."""
        code = await self.pulse(person, generation, member_id)
        name = person.member_id if member_id is None else member_id
        self.expect(
            code is due, f"Heartbeat of {name} in {generation} got {code.name}, not {due.name}"
        )

    async def pulse(
        self, person: Person, generation: int, member_id: str | None = None
    ) -> ErrorCode:
        """Return the code of a heartbeat."""
        request = heartbeat.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=person.member_id if member_id is None else member_id,
            group_instance_id=person.instance_id,
        )
        oldest = INSTANCE_ELSEWHERE_MIN if person.instance_id else 0

        async def ask() -> ErrorCode:
            began_ms = self.now_ms()
            answer, _ = await self.ask(person.wire, ApiKey.HEARTBEAT, request, at_least=oldest)
            if self.now_ms() - began_ms > 1_000:
                # While its groups are loaded a coordinator says NONE to all.
                raise UnsureError("a heartbeat took long")
            return self.sure(answer.error_code)

        return await self.look(ask)

    async def await_rebalance(self, people: Iterable[Person]) -> None:
        """Each of these members is told to join again, as soon as the group has learned why."""
        for person in people:

            async def is_told(person: Person = person) -> bool:
                code = await self.pulse(person, self.generation)
                self.expect(
                    code in (ErrorCode.none, ErrorCode.rebalance_in_progress),
                    f"Heartbeat of {person.member_id} got {code.name} while the group rebalances",
                )
                return code is ErrorCode.rebalance_in_progress

            await self.until(is_told, "a member is told to join again")

    # --- looking ----------------------------------------------------------------------

    async def described(self, state: str, people: Sequence[Person], new_count: int = 0) -> None:
        """DescribeGroups shows exactly this; `new_count` members have no known id yet."""
        await self.look(lambda: self._described(state, people, new_count))

    async def members_count(self) -> int:
        """Return how many members DescribeGroups shows."""
        answer, _ = await self.ask(
            self.admin,
            ApiKey.DESCRIBE_GROUPS,
            describe_groups.DescribeGroupsRequest(groups=(self.group_id,)),
        )
        self.sure(answer.groups[0].error_code)
        return len(answer.groups[0].members)

    async def _described(self, state: str, people: Sequence[Person], new_count: int) -> None:
        asks = self.rng.random() < 0.3
        answer, version = await self.ask(
            self.admin,
            ApiKey.DESCRIBE_GROUPS,
            describe_groups.DescribeGroupsRequest(
                groups=(self.group_id,), include_authorized_operations=asks
            ),
        )
        self.expect(len(answer.groups) == 1, f"DescribeGroups gave {answer}")
        group = answer.groups[0]
        self.sure(group.error_code)
        is_gone, is_stable = state == "Dead", state == "Stable"
        due_code = ErrorCode.none
        if is_gone and version >= _NOT_FOUND_MIN:
            due_code = ErrorCode.group_id_not_found
        operations = -(2**31)
        if asks and version >= 3 and due_code is ErrorCode.none:
            operations = _OPERATIONS
        kind = group.protocol_type
        found = (group.error_code, group.group_id, group.group_state, group.protocol_data)
        due = (due_code, self.group_id, state, self.protocol if is_stable else "")
        self.expect(
            found == due
            and kind in (("",) if is_gone else self._types)
            and int(group.authorized_operations) == operations,
            f"DescribeGroups v{version} gave {found}, {kind}, {operations}, due is {due}",
        )
        listed = {str(each.member_id): each for each in group.members}
        hosts = {each.client_host for each in group.members}
        self.expect(
            listed.keys() >= {each.member_id for each in people}
            and len(group.members) == len(listed) == len(people) + new_count
            and all(host.startswith("/") for host in hosts)
            and len(hosts) <= 1,
            f"DescribeGroups gave {group.members}, of {[each.member_id for each in people]}",
        )
        for each in people:
            shown = listed[each.member_id]
            instance_id = each.instance_id if version >= _INSTANCE_DESCRIBED_MIN else None
            data = (bytes(shown.member_metadata), bytes(shown.member_assignment))
            due_data = (each.metadata(self.protocol), each.assignment) if is_stable else data
            self.expect(
                (shown.group_instance_id, shown.client_id) == (instance_id, each.client_id)
                and data == due_data
                and (is_stable or not shown.member_metadata),
                f"DescribeGroups v{version} gave {shown}, due is {each}",
            )

    async def listed(self) -> None:
        """ListGroups has the group's line, where the filters let it pass."""
        await self.look(self._list)

    async def _list(self) -> None:
        states = self.rng.choice(((), (), ("stable",), ("Empty", "dead"), (self.state,)))
        types = self.rng.choice(((), (), ("classic",), ("Consumer",)))
        oldest = 5 if types else 4 if states else 0
        answer, version = await self.ask(
            self.admin,
            ApiKey.LIST_GROUPS,
            list_groups.ListGroupsRequest(states_filter=states, types_filter=types),
            at_least=oldest,
        )
        self.sure(answer.error_code)
        lines = [
            (each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id == self.group_id
        ]
        passes = (
            self.state != "Dead"
            and (not states or self.state.lower() in {each.lower() for each in states})
            and (not types or "classic" in types)
        )
        state = self.state if version >= 4 else ""
        kind = "classic" if version >= 5 else ""
        due = [[(each, state, kind)] for each in self._types] if passes else [[]]
        self.expect(
            answer.error_code is ErrorCode.none and lines in due,
            f"ListGroups v{version} of {states}, {types} gave {lines}, due is {due}",
        )

    # --- going ------------------------------------------------------------------------

    async def leave(
        self, leaving: Sequence[tuple[str, str | None, ErrorCode]], wire: PeerWire
    ) -> None:
        """Send LeaveGroup of (member id, instance id) and the code that each has to get."""
        needs_list = len(leaving) > 1 or any(instance for _, instance, _ in leaving)
        request = leave_group.LeaveGroupRequest(
            group_id=self.group_id,
            members=tuple(
                leave_group.MemberIdentity(
                    member_id=member_id, group_instance_id=instance_id, reason=None
                )
                for member_id, instance_id, _ in leaving
            ),
        )
        answer, version = await self.ask(
            wire, ApiKey.LEAVE_GROUP, request, at_least=3 if needs_list else 0
        )
        top = self.sure(answer.error_code)
        due_top = leaving[0][2] if version < 3 else ErrorCode.none
        codes = [
            (each.member_id, each.group_instance_id, self.sure(each.error_code))
            for each in answer.members
        ]
        self.expect(
            top is due_top and codes == (list(leaving) if version >= 3 else []),
            f"LeaveGroup v{version} of {leaving} gave {answer}",
        )

    async def deleted(self, due: ErrorCode) -> None:
        """DeleteGroups gets this code."""
        answer, version = await self.ask(
            self.admin,
            ApiKey.DELETE_GROUPS,
            delete_groups.DeleteGroupsRequest(groups_names=(self.group_id,)),
        )
        codes = [(each.group_id, self.sure(each.error_code)) for each in answer.results]
        self.expect(
            codes == [(self.group_id, due)],
            f"DeleteGroups v{version} gave {codes}, due is {due.name}",
        )

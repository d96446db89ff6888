"""Members of a classic group and the real coordinator's shard, in any order of what may happen.

Requests and answers may be lost or late, applications slow, members come, go and die, topics grow.
Whatever happened: no two members of the present generation own one partition (INV-8), and once it
stops happening every partition has an owner.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.machines.assignors import ASSIGNORS
from oncelog.client.machines.classic_member import ClassicMember
from oncelog.client.machines.membership import CoordinatorRequest, Look, MemberSettings
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.replies import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.group.context import Context

SETTINGS = MemberSettings("g", 10_000, 3_000, 20_000)
MEMBERS_MAX = 4
STEP_MS = 500


class Application:
    """A member, what it has asked, and how its application treats it."""

    def __init__(self, coordinator: "Group", assignor: str, instance_id: str | None) -> None:
        settings = SETTINGS._replace(group_instance_id=instance_id)
        self.member = ClassicMember(settings, [ASSIGNORS[assignor]])
        self.member.subscribe(("t", "u"))
        self._group = coordinator
        self._asked: int | None = None
        """The token of the request in flight."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return self.member.ownership.owned

    def poll(self) -> None:
        self.member.polled(self._group.now_ms)
        while self.member.ownership.begin() is not None:
            self.member.carried_out()

    def step(self) -> None:
        """Take in an answer that is there, or take the next step."""
        if self._asked is not None:
            answer = self._group.answer(self._asked)
            if answer is not None:
                self._asked = None
                self.member.answered(answer, self._group.now_ms)
            return
        action = self.member.next(self._group.now_ms)
        if isinstance(action, Look):
            self.member.looked(self._group.counts)
        elif isinstance(action, CoordinatorRequest):
            self._asked = self._group.ask(action.request)

    def lose(self) -> None:
        """The connection breaks: the request in flight has no answer."""
        if self._asked is not None:
            self._group.coordinator.drop(self._asked)
            self._asked = None
            self.member.failed(self._group.now_ms)

    def beat(self) -> None:
        action = self.member.next_heartbeat(self._group.now_ms)
        if isinstance(action, CoordinatorRequest):
            answer = self._group.answer(self._group.ask(action.request))
            self.member.heartbeat_answered(answer, self._group.now_ms)

    def leave(self) -> None:
        self.lose()
        asked = self.member.leave()
        if asked is not None:
            self._group.ask(asked.request)


class Group:
    """The coordinator, the topics, and all members that run."""

    def __init__(self, assignor: str, static: bool) -> None:
        self.coordinator = Context()
        self.counts = {"t": 3, "u": 1}
        self.running: list[Application] = []
        self._assignor = assignor
        self._static = static
        self._started_count = 0

    @property
    def now_ms(self) -> int:
        return self.coordinator.now_ms

    def start(self) -> None:
        if len(self.running) < MEMBERS_MAX:
            self._started_count += 1
            instance_id = f"i{self._started_count % MEMBERS_MAX}" if self._static else None
            self.running.append(Application(self, self._assignor, instance_id))

    def ask(self, request: Any) -> int:
        self.coordinator.next_id += 1
        return self.coordinator.submit(_event(request, str(self.coordinator.next_id)))

    def answer(self, token: int) -> Any:
        result = self.coordinator.replies.get(token)
        return None if result is None else _response(result)

    def pass_time(self) -> None:
        self.coordinator.advance(STEP_MS)
        for each in self.running:
            each.member.metadata_changed(self.counts, {})

    def check(self) -> None:
        """No partition has two owners whom the coordinator both has as members."""
        found = self.coordinator.shard.store.groups.get("g")
        members = set() if found is None else set(found.members)
        owners: dict[TopicPartition, str] = {}
        for each in self.running:
            identity = each.member.identity
            if identity.member_id in members and identity.generation >= 0:
                for at in each.owned:
                    assert at not in owners, f"{at} is owned by {owners[at]} and {identity}"
                    owners[at] = identity.member_id

    def go_on(self, rounds: int) -> None:
        """Let everybody do its work for a while."""
        for _ in range(rounds):
            for each in self.running:
                each.poll()
                each.step()
                each.beat()
                self.check()
            self.pass_time()

    def settle(self) -> None:
        """Let everybody do its work until nothing changes any more."""
        self.go_on(150)
        alive = [each for each in self.running if each.member.error is None]
        assert all(each.member.is_settled for each in alive)
        owned = sorted(at for each in alive for at in each.owned)
        everything = [TopicPartition(t, i) for t in ("t", "u") for i in range(self.counts[t])]
        assert owned == (everything if alive else [])


def _event(request: Any, fresh_id: str) -> Any:
    if isinstance(request, JoinGroupRequest):
        offered = tuple(e.JoinProtocol(p.name, bytes(p.metadata)) for p in request.protocols)
        return e.Join(
            request.group_id,
            9,
            request.member_id,
            request.group_instance_id,
            "c",
            "/127.0.0.1",
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            offered,
            fresh_id,
        )
    if isinstance(request, SyncGroupRequest):
        return e.Sync(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            tuple(
                e.MemberAssignment(a.member_id, bytes(a.assignment)) for a in request.assignments
            ),
        )
    if isinstance(request, HeartbeatRequest):
        who = request.member_id, request.group_instance_id
        return e.Heartbeat(request.group_id, request.generation_id, *who)
    assert isinstance(request, LeaveGroupRequest)
    leaving = tuple(e.LeavingMember(m.member_id, m.group_instance_id) for m in request.members)
    return e.Leave(request.group_id, leaving)


def _response(result: object) -> Any:
    if isinstance(result, JoinReply):
        return JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=m.member_id,
                    group_instance_id=m.group_instance_id,
                    metadata=m.metadata,
                )
                for m in result.members
            ),
        )
    if isinstance(result, SyncReply):
        return SyncGroupResponse(error_code=result.error, assignment=result.assignment)
    if isinstance(result, HeartbeatReply):
        return HeartbeatResponse(error_code=result.error)
    assert isinstance(result, LeaveReply)
    return LeaveGroupResponse(error_code=result.error)


# --- what may happen ---------------------------------------------------------------------

ONE = ("poll", "step", "step", "step", "beat", "lose")
STEPS = st.one_of(
    st.tuples(st.sampled_from(ONE), st.integers(0, MEMBERS_MAX - 1)),
    st.tuples(st.sampled_from(("leave", "die")), st.integers(0, MEMBERS_MAX - 1)),
    st.tuples(st.sampled_from(("start", "time", "long", "grow", "restart")), st.just(0)),
    st.tuples(st.just("go on"), st.integers(1, 20)),
)


def carry_out(group: Group, what: str, number: int) -> None:
    if what == "start":
        group.start()
    elif what == "go on":
        group.go_on(number)
    elif what == "time":
        group.pass_time()
    elif what == "long":
        group.coordinator.advance(12_000)
    elif what == "grow":
        group.counts["t"] = min(group.counts["t"] + 1, 6)
    elif what == "restart":
        for each in group.running:
            each.lose()
        group.coordinator.restart()
    elif number < len(group.running):
        each = group.running[number]
        if what == "die":
            each.lose()
            group.running.remove(each)
        elif what == "leave":
            each.leave()
            group.running.remove(each)
        else:
            getattr(each, what)()


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(st.lists(STEPS, max_size=30))
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(
    assignor: str, static: bool, steps: list[tuple[str, int]]
) -> None:
    group = Group(assignor, static)
    group.start()
    group.go_on(20)
    group.start()
    for what, number in steps:
        carry_out(group, what, number)
        group.check()
    group.settle()

"""What a member of a classic group does next, answer by answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.client.errors import FatalError, FencedError
from oncelog.client.machines.assignors import ASSIGNORS
from oncelog.client.machines.classic_member import ClassicMember, Stage
from oncelog.client.machines.membership import (
    CoordinatorRequest,
    Look,
    MemberSettings,
    OwnershipChange,
    Wait,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.protocol.messages.heartbeat import HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from oncelog.protocol.messages.leave_group import LeaveGroupResponse
from oncelog.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.client.machines.members import (
    SETTINGS,
    T0,
    T1,
    T2,
    DrivenMember,
    assigned,
    lost,
    revoked,
)


class Driven(DrivenMember[ClassicMember]):
    """A member, and a coordinator that answers as a test says."""

    def __init__(self, *assignors: str, settings: MemberSettings = SETTINGS) -> None:
        names = assignors or ("range",)
        super().__init__(ClassicMember(settings, [ASSIGNORS[name] for name in names]))
        self.generation = 0

    def joined(self, leader: str = "other", **fields: Any) -> Any:
        """Answer JoinGroup; returns the request."""
        request = self.asked(ApiKey.JOIN_GROUP)
        self.generation += 1
        answer = JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=request.protocols[0].name,
            leader=leader,
            member_id="me",
            **fields,
        )
        assert self.member.answered(answer, self.now_ms)
        return request

    def synced(self, *assigned: TopicPartition) -> Any:
        request = self.asked(ApiKey.SYNC_GROUP)
        answer = SyncGroupResponse(assignment=encode_assignment(assigned))
        assert self.member.answered(answer, self.now_ms)
        return request

    def rebalance(self, *assigned: TopicPartition) -> list[OwnershipChange]:
        """Join, follow, and take what is assigned."""
        self.joined()
        self.synced(*assigned)
        return self.poll()

    def beat(self, code: ErrorCode = ErrorCode.none) -> None:
        """A heartbeat that is due, and its answer."""
        self.now_ms += SETTINGS.heartbeat_interval_ms
        action = self.member.next_heartbeat(self.now_ms)
        assert isinstance(action, CoordinatorRequest)
        self.member.heartbeat_answered(HeartbeatResponse(error_code=code), self.now_ms)


def stable(*assignors: str, owned: Sequence[TopicPartition] = (T0, T1)) -> Driven:
    driven = Driven(*assignors)
    driven.poll()
    driven.rebalance(*owned)
    assert driven.member.stage is Stage.STABLE
    return driven


# --- joining -----------------------------------------------------------------------------


def test_a_member_joins_once_the_application_polls() -> None:
    driven = Driven()
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == []
    request = driven.joined()
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert decode_subscription(request.protocols[0].metadata).topics == ("t",)


def test_a_member_joins_again_at_once_with_the_id_it_is_given() -> None:
    driven = Driven()
    driven.poll()
    driven.asked(ApiKey.JOIN_GROUP)
    required = JoinGroupResponse(error_code=ErrorCode.member_id_required, member_id="new")
    assert driven.member.answered(required, driven.now_ms)
    assert driven.asked(ApiKey.JOIN_GROUP).member_id == "new"


def test_a_follower_syncs_without_assignments_and_takes_its_own() -> None:
    driven = Driven()
    driven.poll()
    driven.joined()
    request = driven.synced(T0, T2)
    assert (request.generation_id, request.member_id, request.assignments) == (1, "me", ())
    assert driven.owned() == ()
    assert driven.poll() == [assigned(T0, T2)]
    assert driven.owned() == (T0, T2)
    assert driven.member.is_settled


def test_the_leader_assigns_for_all_once_it_knows_the_partitions() -> None:
    driven = Driven()
    driven.poll()
    members = tuple(
        JoinGroupResponseMember(
            member_id=name, metadata=encode_subscription(MemberSubscription(("t",)))
        )
        for name in ("me", "other")
    )
    driven.joined(leader="me", members=members)
    assert driven.member.next(driven.now_ms) == Look(("t",))
    driven.member.looked({"t": 3})
    sent = {each.member_id: each.assignment for each in driven.synced(T0, T1).assignments}
    assert {name: decode_assignment(data).partitions for name, data in sent.items()} == {
        "me": (T0, T1),
        "other": (T2,),
    }


def test_a_static_leader_that_came_back_does_not_assign_anew() -> None:
    driven = Driven()
    driven.poll()
    member = JoinGroupResponseMember(
        member_id="me", metadata=encode_subscription(MemberSubscription(("t",)))
    )
    driven.joined(leader="me", members=(member,), skip_assignment=True)
    assert driven.member.next(driven.now_ms) == Look(("t",))
    driven.member.looked({"t": 3})
    assert driven.synced(T0).assignments == ()


def test_the_leader_joins_again_when_a_topic_grows() -> None:
    driven = Driven()
    driven.poll()
    member = JoinGroupResponseMember(
        member_id="me", metadata=encode_subscription(MemberSubscription(("t",)))
    )
    driven.joined(leader="me", members=(member,))
    driven.member.next(driven.now_ms)
    driven.member.looked({"t": 1})
    driven.synced(T0)
    driven.poll()
    driven.member.metadata_changed({"t": 1, "u": 5}, {})
    assert driven.poll() == []
    driven.member.metadata_changed({"t": 2}, {})
    assert driven.poll() == [revoked(T0)]
    driven.asked(ApiKey.JOIN_GROUP)


def test_the_leader_joins_again_when_a_topic_is_gone() -> None:
    driven = Driven()
    driven.poll()
    member = JoinGroupResponseMember(
        member_id="me", metadata=encode_subscription(MemberSubscription(("t", "u")))
    )
    driven.joined(leader="me", members=(member,))
    driven.member.next(driven.now_ms)
    driven.member.looked({"t": 1, "u": 1})
    driven.synced(T0)
    driven.poll()
    driven.member.metadata_changed({"t": 1}, {})
    driven.poll()
    driven.asked(ApiKey.JOIN_GROUP)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    ],
)
def test_a_coordinator_that_is_not_there_is_asked_again_later(code: ErrorCode) -> None:
    driven = Driven()
    driven.poll()
    driven.asked(ApiKey.JOIN_GROUP)
    assert not driven.member.answered(JoinGroupResponse(error_code=code), driven.now_ms)
    driven.joined()
    driven.asked(ApiKey.SYNC_GROUP)
    assert not driven.member.answered(SyncGroupResponse(error_code=code), driven.now_ms)
    assert driven.asked(ApiKey.JOIN_GROUP).member_id == "me"


def test_a_sync_without_an_answer_means_to_join_again() -> None:
    driven = Driven()
    driven.poll()
    driven.joined()
    driven.asked(ApiKey.SYNC_GROUP)
    driven.member.failed(driven.now_ms)
    assert driven.asked(ApiKey.JOIN_GROUP).member_id == "me"


@pytest.mark.parametrize(
    "code",
    [ErrorCode.inconsistent_group_protocol, ErrorCode.group_max_size_reached],
)
def test_some_refusals_of_a_join_are_final(code: ErrorCode) -> None:
    driven = Driven()
    driven.poll()
    driven.asked(ApiKey.JOIN_GROUP)
    driven.member.answered(JoinGroupResponse(error_code=code), driven.now_ms)
    assert isinstance(driven.member.error, FatalError)
    assert driven.member.error.code is code
    assert isinstance(driven.member.next(driven.now_ms), Wait)


# --- rebalances --------------------------------------------------------------------------


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    driven = stable()
    driven.beat(ErrorCode.rebalance_in_progress)
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.owned() == (T0, T1)
    assert driven.poll() == [revoked(T0, T1)]
    assert driven.rebalance(T1) == [assigned(T1)]


def test_a_cooperative_member_keeps_its_partitions_and_joins_twice() -> None:
    driven = stable("cooperative-sticky")
    driven.beat(ErrorCode.rebalance_in_progress)
    assert driven.poll() == []
    request = driven.joined()
    told = decode_subscription(request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0, T1), 1)
    driven.synced(T0)
    assert driven.poll() == [revoked(T1), assigned()]
    assert driven.poll() == []
    assert driven.rebalance(T0) == [assigned()]
    assert driven.member.is_settled


def test_one_eager_assignor_makes_the_member_eager() -> None:
    driven = stable("cooperative-sticky", "range")
    driven.beat(ErrorCode.rebalance_in_progress)
    assert driven.poll() == [revoked(T0, T1)]


def test_another_subscription_is_joined_for_and_its_old_topics_are_revoked() -> None:
    driven = stable("cooperative-sticky")
    driven.member.subscribe(("u",))
    assert driven.poll() == [revoked(T0, T1)]
    assert decode_subscription(driven.joined().protocols[0].metadata).topics == ("u",)


def test_a_subscription_that_changes_during_a_join_is_joined_for_after_it() -> None:
    driven = Driven()
    driven.poll()
    driven.joined()
    driven.member.subscribe(("t", "u"))
    driven.synced(T0)
    assert driven.poll() == [assigned(T0)]
    assert driven.poll() == [revoked(T0)]
    assert decode_subscription(driven.joined().protocols[0].metadata).topics == ("t", "u")


# --- losing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kept"), [(ErrorCode.unknown_member_id, ""), (ErrorCode.illegal_generation, "me")]
)
def test_an_expelled_member_has_lost_its_partitions(code: ErrorCode, kept: str) -> None:
    driven = stable("cooperative-sticky")
    driven.beat(code)
    assert driven.member.identity.generation == -1
    assert driven.poll() == [lost(T0, T1)]
    request = driven.joined()
    assert request.member_id == kept
    assert decode_subscription(request.protocols[0].metadata).owned == ()


def test_no_heartbeat_is_sent_while_an_expelled_member_gives_up_what_it_lost() -> None:
    driven = stable()
    driven.beat(ErrorCode.unknown_member_id)
    driven.member.polled(driven.now_ms)
    assert driven.member.ownership.begin() == lost(T0, T1)
    driven.now_ms += SETTINGS.heartbeat_interval_ms
    assert isinstance(driven.member.next_heartbeat(driven.now_ms), Wait)


def test_what_was_assigned_and_not_taken_is_never_owned_after_an_expulsion() -> None:
    driven = Driven()
    driven.poll()
    driven.joined()
    driven.synced(T0)
    driven.beat(ErrorCode.unknown_member_id)
    assert driven.poll() == []
    driven.asked(ApiKey.JOIN_GROUP)


def test_what_is_being_taken_during_an_expulsion_is_lost_after_it() -> None:
    driven = Driven()
    driven.poll()
    driven.joined()
    driven.synced(T0)
    assert driven.member.ownership.begin() == assigned(T0)
    driven.beat(ErrorCode.unknown_member_id)
    assert driven.member.ownership.begin() is None
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    driven.member.carried_out()
    assert driven.poll() == [lost(T0)]
    driven.asked(ApiKey.JOIN_GROUP)


def test_a_refused_commit_of_this_generation_expels_and_an_older_one_does_not() -> None:
    driven = stable()
    old = driven.member.identity._replace(generation=0)
    driven.member.commit_refused(ErrorCode.illegal_generation, old)
    assert driven.member.is_settled
    driven.member.commit_refused(ErrorCode.illegal_generation, driven.member.identity)
    assert driven.poll() == [lost(T0, T1)]


def test_a_member_whose_group_is_gone_joins_as_a_new_one() -> None:
    driven = stable()
    driven.member.commit_refused(ErrorCode.group_id_not_found, driven.member.identity)
    assert driven.poll() == [lost(T0, T1)]
    assert driven.joined().member_id == ""


def test_a_fenced_static_member_ends_and_has_lost_its_partitions() -> None:
    driven = Driven(settings=SETTINGS._replace(group_instance_id="one"))
    driven.poll()
    driven.rebalance(T0)
    driven.beat(ErrorCode.fenced_instance_id)
    assert isinstance(driven.member.error, FencedError)
    assert driven.poll() == [lost(T0)]
    assert isinstance(driven.member.next(driven.now_ms), Wait)


# --- staying and leaving -----------------------------------------------------------------


def test_heartbeats_come_in_their_interval_also_while_sync_waits() -> None:
    driven = Driven()
    driven.poll()
    assert isinstance(driven.member.next_heartbeat(driven.now_ms), Wait)
    driven.joined()
    assert driven.member.next_heartbeat(driven.now_ms) == Wait(driven.now_ms + 3_000)
    driven.beat()
    driven.synced(T0)
    driven.poll()
    driven.beat()
    assert driven.member.is_settled


def test_a_member_whose_application_does_not_poll_leaves_and_comes_back() -> None:
    driven = stable()
    until_ms = driven.now_ms + SETTINGS.max_poll_interval_ms
    assert driven.member.next(driven.now_ms) == Wait(until_ms)
    driven.now_ms = until_ms
    request = driven.asked(ApiKey.LEAVE_GROUP)
    assert [each.member_id for each in request.members] == ["me"]
    driven.member.answered(LeaveGroupResponse(), driven.now_ms)
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == [lost(T0, T1)]
    assert driven.joined().member_id == ""


def test_a_member_without_partitions_that_left_waits_for_a_poll() -> None:
    """It has nothing to lose, and would join and leave again and again."""
    driven = Driven()
    driven.poll()
    driven.rebalance()
    driven.now_ms += SETTINGS.max_poll_interval_ms
    driven.asked(ApiKey.LEAVE_GROUP)
    driven.member.answered(LeaveGroupResponse(), driven.now_ms)
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    driven.poll()
    assert driven.joined().member_id == ""


def test_a_static_member_that_does_not_poll_keeps_its_place() -> None:
    driven = Driven(settings=SETTINGS._replace(group_instance_id="one"))
    driven.poll()
    driven.rebalance(T0)
    driven.now_ms += SETTINGS.max_poll_interval_ms
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert isinstance(driven.member.next_heartbeat(driven.now_ms), Wait)
    assert driven.poll() == [lost(T0)]


def test_a_dynamic_member_leaves_at_the_end_and_a_static_one_does_not() -> None:
    asked = stable().member.leave()
    assert asked is not None
    assert asked.api is ApiKey.LEAVE_GROUP
    driven = Driven(settings=SETTINGS._replace(group_instance_id="one"))
    driven.poll()
    driven.rebalance(T0)
    assert driven.member.leave() is None


@pytest.mark.parametrize("polled_ms", [467182.122056, 823716.868469])
def test_the_wait_for_a_poll_ends_when_the_member_leaves(polled_ms: float) -> None:
    driven = stable()
    driven.now_ms = polled_ms
    driven.poll()
    action = driven.member.next(polled_ms)
    assert isinstance(action, Wait)
    driven.now_ms = action.until_ms
    driven.asked(ApiKey.LEAVE_GROUP)

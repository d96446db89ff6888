from oncelog.core.errors import ErrorCode
from oncelog.group.events import Leave, LeavingMember, MemberSessionExpired
from oncelog.group.replies import LeaveReply
from oncelog.group.states import GroupState
from tests.unit.group.context import Context


def test_a_member_is_out_after_its_session_timeout_and_not_before() -> None:
    c = Context()
    member = c.stable()[0]
    c.heartbeat(member)
    c.advance(9_999)
    assert c.heartbeat(member) is ErrorCode.none
    c.advance(10_000)
    assert c.heartbeat(member) is ErrorCode.unknown_member_id
    assert c.group().state is GroupState.EMPTY


def test_a_member_that_falls_silent_makes_the_others_rebalance() -> None:
    c = Context()
    leader, follower = c.stable(2)
    c.advance(5_000)
    c.heartbeat(follower)
    c.advance(5_000)
    assert c.heartbeat(follower) is ErrorCode.rebalance_in_progress
    token = c.join(follower)
    assert c.joined(token).leader == follower
    assert leader not in c.group().members


def test_a_silent_member_that_the_others_wait_for_ends_their_wait() -> None:
    c = Context()
    leader, follower = c.stable(2)
    c.advance(1_000)
    token = c.join(leader)
    assert token not in c.replies
    c.advance(9_000)
    assert c.joined(token).generation_id == 2
    assert follower not in c.group().members


def test_heartbeats_that_do_not_fit_are_refused() -> None:
    c = Context()
    member = c.stable()[0]
    assert c.heartbeat(member, group_id="") is ErrorCode.invalid_group_id
    assert c.heartbeat(member, group_id="other") is ErrorCode.unknown_member_id
    assert c.heartbeat(member, 0) is ErrorCode.illegal_generation
    assert c.heartbeat("stranger") is ErrorCode.unknown_member_id
    assert c.heartbeat(member, instance="i") is ErrorCode.unknown_member_id


def test_a_leaving_member_makes_the_others_rebalance_at_once() -> None:
    c = Context()
    leader, follower = c.stable(2)
    assert c.leave(leader) == [ErrorCode.none]
    assert c.group().leader_id == follower
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_the_last_one_to_leave_empties_the_group_and_the_log_knows() -> None:
    c = Context()
    member = c.stable()[0]
    assert c.leave(member) == [ErrorCode.none]
    assert (c.group().state, c.group().generation_id) == (GroupState.EMPTY, 2)
    c.restart()
    assert (c.group().state, c.group().generation_id) == (GroupState.EMPTY, 2)
    assert c.leave(member) == [ErrorCode.unknown_member_id]


def test_each_leaving_member_has_an_outcome_of_its_own() -> None:
    c = Context()
    member = c.stable()[0]
    given = c.joined(c.join()).member_id
    unknown = ErrorCode.unknown_member_id
    assert c.leave(member, given, "stranger") == [ErrorCode.none, ErrorCode.none, unknown]
    assert c.leave(member, group_id="other") == [unknown]
    result = c.replies[c.submit(Leave("", (LeavingMember(member),)))]
    assert isinstance(result, LeaveReply)
    assert result.error is ErrorCode.invalid_group_id


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    c = Context()
    c.join(instance="i")
    c.advance(6_000)
    leaving = (
        LeavingMember("", "i"),
        LeavingMember("", "j"),
        LeavingMember("", None),
        LeavingMember("x", "i"),
    )
    result = c.replies[c.submit(Leave("g", leaving))]
    assert isinstance(result, LeaveReply)
    assert [m.error for m in result.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert not c.group().members


def test_a_member_that_leaves_while_its_requests_wait_has_to_rejoin() -> None:
    c = Context()
    leader, first = c.new_member()
    c.leave(leader)
    assert c.joined(first).error is ErrorCode.unknown_member_id
    c.advance(3_000)
    assert c.group().state is GroupState.EMPTY
    _, follower = c.new_member()[0], c.new_member()[0]
    c.advance(6_000)
    waiting = c.sync(follower, c.group().generation_id)
    c.leave(follower)
    assert c.synced(waiting).error is ErrorCode.unknown_member_id


def test_the_last_one_missing_ends_the_gathering_by_leaving() -> None:
    c = Context()
    leader, follower = c.stable(2)
    token = c.join(leader)
    c.leave(follower)
    assert c.joined(token).generation_id == 2


def test_when_emptiness_cannot_be_stored_the_group_is_empty_nevertheless() -> None:
    c = Context()
    member = c.stable()[0]
    c.hold = True
    token = c.submit(Leave("g", (LeavingMember(member),)))
    assert token not in c.replies
    c.fail(ErrorCode.request_timed_out)
    c.hold = False
    result = c.replies[token]
    assert isinstance(result, LeaveReply)
    assert result.error is ErrorCode.coordinator_not_available
    assert c.group().state is GroupState.EMPTY
    # The log still has the member, so a restart brings it back, for one session timeout.
    c.restart()
    c.advance(10_000)
    assert c.group().state is GroupState.EMPTY


def test_a_session_timer_that_was_overtaken_by_a_heartbeat_does_nothing() -> None:
    c = Context()
    member = c.stable()[0]
    c.submit_silently(MemberSessionExpired("g", member))
    c.submit_silently(MemberSessionExpired("g", "stranger"))
    c.submit_silently(MemberSessionExpired("gone", member))
    assert c.heartbeat(member) is ErrorCode.none

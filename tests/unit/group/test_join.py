from oncelog.core.errors import ErrorCode
from oncelog.group.config import GroupConfig
from oncelog.group.events import JoinProtocol, Leave, LeavingMember
from oncelog.group.states import GroupState
from tests.unit.group.context import Context


def test_a_new_dynamic_member_is_given_its_id_first() -> None:
    c = Context()
    first = c.joined(c.join())
    assert (first.error, first.member_id) == (ErrorCode.member_id_required, "c-1")
    assert c.group().state is GroupState.EMPTY


def test_before_version_4_a_new_member_joins_at_once() -> None:
    c = Context()
    token = c.join(version=3)
    assert token not in c.replies
    c.advance(3_000)
    assert c.joined(token).error is ErrorCode.none
    assert c.joined(token).member_id == "c-1"


def test_the_first_rebalance_waits_for_more_members_as_long_as_they_come() -> None:
    c = Context()
    _, first = c.new_member()
    c.advance(2_000)
    _, second = c.new_member()
    c.advance(2_999)
    assert first not in c.replies
    c.advance(1_001)
    assert c.joined(first).generation_id == c.joined(second).generation_id == 1


def test_the_first_rebalance_does_not_wait_beyond_the_rebalance_timeout() -> None:
    c = Context()
    _, first = c.new_member(rebalance_ms=7_000)
    started_ms = c.now_ms
    while first not in c.replies:
        c.new_member(rebalance_ms=7_000)
        c.advance(1_000)
    assert c.now_ms - started_ms == 7_000


def test_only_the_leader_learns_who_the_others_are() -> None:
    c = Context()
    leader, first = c.new_member()
    follower, second = c.new_member()
    c.advance(6_000)
    assert c.joined(first).leader == c.joined(second).leader == leader
    assert [m.member_id for m in c.joined(first).members] == [leader, follower]
    assert c.joined(second).members == ()


def test_the_protocol_that_all_support_and_most_prefer_is_selected() -> None:
    c = Context()
    _, first = c.new_member(protocols=("sticky", "range"))
    c.new_member(protocols=("range", "sticky"))
    c.new_member(protocols=("range", "sticky", "other"))
    c.advance(6_000)
    assert c.joined(first).protocol_name == "range"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    c = Context()
    c.stable()
    assert c.joined(c.join(protocols=("other",))).error is ErrorCode.inconsistent_group_protocol
    assert c.joined(c.join(kind="connect")).error is ErrorCode.inconsistent_group_protocol
    empty = c.joined(c.join(group_id="new", protocols=()))
    assert empty.error is ErrorCode.inconsistent_group_protocol
    assert "new" not in c.shard.store.groups


def test_requests_that_make_no_sense_are_refused() -> None:
    c = Context()
    assert c.joined(c.join(group_id="")).error is ErrorCode.invalid_group_id
    assert c.joined(c.join(session_ms=5_999)).error is ErrorCode.invalid_session_timeout
    assert c.joined(c.join(session_ms=1_800_001)).error is ErrorCode.invalid_session_timeout
    assert c.joined(c.join("who")).error is ErrorCode.unknown_member_id
    c.stable()
    assert c.joined(c.join("who")).error is ErrorCode.unknown_member_id


def test_a_given_id_expires_unless_its_member_comes_back() -> None:
    c = Context()
    given = c.joined(c.join()).member_id
    c.advance(9_999)
    assert c.group().pending_joins == {given}
    c.advance(1)
    assert not c.group().pending_joins
    assert c.joined(c.join(given)).error is ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    c = Context()
    member = c.stable()[0]
    c.join()
    token = c.join(member)
    c.advance(9_999)
    assert token not in c.replies
    c.heartbeat(member, 1)
    c.advance(1)
    assert c.joined(token).generation_id == 2


def test_an_id_that_was_given_out_is_no_static_members() -> None:
    c = Context()
    given = c.joined(c.join()).member_id
    assert c.joined(c.join(given, instance="i")).error is ErrorCode.unknown_server_error


def test_a_follower_that_rejoins_unchanged_gets_its_generation() -> None:
    c = Context()
    _, follower = c.stable(2)
    again = c.joined(c.join(follower))
    assert (again.error, again.generation_id, again.members) == (ErrorCode.none, 1, ())
    assert c.group().state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    c = Context()
    leader, follower = c.stable(2)
    token = c.join(leader)
    assert c.group().state is GroupState.PREPARING_REBALANCE
    assert c.heartbeat(follower) is ErrorCode.rebalance_in_progress
    other = c.join(follower)
    assert c.joined(token).generation_id == c.joined(other).generation_id == 2


def test_a_follower_with_changed_metadata_starts_a_rebalance() -> None:
    c = Context()
    _, follower = c.stable(2)
    c.join(follower, topics=("t", "u"))
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_while_the_assignment_is_awaited_only_a_changed_join_rebalances() -> None:
    c = Context()
    leader, first = c.new_member()
    follower, _ = c.new_member()
    c.advance(6_000)
    assert c.joined(c.join(leader)).members == c.joined(first).members
    waiting = c.sync(follower)
    c.join(leader, topics=("u",))
    assert c.synced(waiting).error is ErrorCode.rebalance_in_progress
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_who_does_not_rejoin_in_time_is_out_and_a_new_leader_is_elected() -> None:
    c = Context()
    leader, follower = c.stable(2)
    token = c.join(follower, topics=("u",))
    for _ in range(12):
        c.heartbeat(leader)
        c.advance(5_000)
    result = c.joined(token)
    assert (result.generation_id, result.leader) == (2, follower)
    assert list(c.group().members) == [follower]


def test_a_waiting_new_member_is_given_up_after_five_minutes() -> None:
    c = Context(GroupConfig(max_session_timeout_ms=10**7))
    member = c.stable(session_ms=2_000_000)[0]
    token = c.join(version=3, rebalance_ms=900_000)
    assert c.group().rebalance_timeout_ms == 900_000
    c.advance(299_999)
    assert token not in c.replies
    c.advance(1)
    assert c.joined(token).error is ErrorCode.unknown_member_id
    assert list(c.group().members) == [member]


def test_a_full_group_turns_new_members_away() -> None:
    c = Context(GroupConfig(max_size=1))
    member = c.stable()[0]
    assert c.joined(c.join()).error is ErrorCode.group_max_size_reached
    token = c.join(member)
    assert c.joined(token).error is ErrorCode.none


def test_in_a_rebalance_the_last_to_rejoin_are_turned_away() -> None:
    c = Context(GroupConfig(max_size=2))
    leader, follower = c.stable(2)
    c.join(leader)
    given = c.joined(c.join()).member_id
    newcomer = c.join(given)
    late = c.joined(c.join(follower))
    assert (late.error, late.member_id) == (ErrorCode.group_max_size_reached, "")
    assert c.joined(newcomer).generation_id == 2
    assert list(c.group().members) == [leader, given]


def test_a_member_of_a_full_rebalance_may_ask_again() -> None:
    c = Context(GroupConfig(max_size=1))
    _, first = c.new_member()
    again = c.join("c-1")
    c.advance(6_000)
    assert first not in c.replies
    assert c.joined(again).error is ErrorCode.none


def test_a_group_whose_limit_was_lowered_rebalances_after_a_restart() -> None:
    c = Context()
    members = c.stable(2)
    c.config = GroupConfig(max_size=1)
    c.restart()
    assert c.group().state is GroupState.PREPARING_REBALANCE
    tokens = [c.join(member) for member in members]
    assert c.joined(tokens[1]).error is ErrorCode.group_max_size_reached
    assert c.joined(tokens[0]).generation_id == 2


def test_version_0_has_no_rebalance_timeout_and_uses_the_session_timeout() -> None:
    c = Context()
    c.join(version=0, rebalance_ms=-1)
    assert c.group().rebalance_timeout_ms == 10_000


# Static members.


def static_group(c: Context, protocols: tuple[str, ...] = ("range",)) -> tuple[str, str]:
    leader = c.join(instance="i", protocols=protocols)
    follower = c.join(instance="j", protocols=protocols)
    c.advance(6_000)
    ids = c.joined(leader).member_id, c.joined(follower).member_id
    c.sync(ids[1])
    c.submit(c.sync_event(ids[0], 1, {ids[0]: b"A", ids[1]: b"B"}))
    assert c.group().state is GroupState.STABLE
    return ids


def test_a_restarted_static_member_takes_its_place_without_a_rebalance() -> None:
    c = Context()
    _, follower = static_group(c)
    result = c.joined(c.join(instance="j"))
    assert (result.error, result.generation_id) == (ErrorCode.none, 1)
    assert result.member_id != follower
    assert c.group().state is GroupState.STABLE
    assert c.synced(c.sync(result.member_id)).assignment == b"B"
    c.restart()
    assert c.heartbeat(result.member_id) is ErrorCode.none
    assert c.heartbeat(follower, instance="j") is ErrorCode.fenced_instance_id


def test_the_former_self_of_a_static_member_is_fenced() -> None:
    c = Context()
    leader, _ = static_group(c)
    c.join(instance="i")
    assert c.heartbeat(leader, instance="i") is ErrorCode.fenced_instance_id
    assert c.heartbeat(leader) is ErrorCode.unknown_member_id
    assert c.joined(c.join(leader, instance="i")).error is ErrorCode.fenced_instance_id
    assert c.joined(c.join(leader, instance="k")).error is ErrorCode.unknown_member_id


def test_a_restarted_static_leader_is_told_to_skip_the_assignment_from_version_9_on() -> None:
    c = Context()
    leader, _ = static_group(c)
    old = c.joined(c.join(instance="i", version=8))
    assert (old.leader, old.skip_assignment, old.members) == (leader, False, ())
    new = c.joined(c.join(instance="i", version=9))
    assert (new.leader, new.skip_assignment) == (new.member_id, True)
    assert len(new.members) == 2
    follower = c.joined(c.join(instance="j", version=9))
    assert (follower.skip_assignment, follower.members) == (False, ())


def test_a_restarted_static_member_that_changes_the_protocol_rebalances() -> None:
    c = Context()
    static_group(c, ("range", "sticky"))
    c.join(instance="i", protocols=("sticky",))
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_a_static_member_restarted_while_others_gather_fences_its_waiting_self() -> None:
    c = Context()
    leader, follower = static_group(c)
    waiting = c.join(leader, instance="i")
    again = c.join(instance="i")
    fenced = c.joined(waiting)
    assert (fenced.error, fenced.member_id) == (ErrorCode.fenced_instance_id, leader)
    c.join(follower, instance="j")
    assert c.joined(again).generation_id == 2


def test_a_static_member_restarted_while_the_assignment_is_awaited_rebalances() -> None:
    c = Context()
    first = c.join(instance="i")
    second = c.join(instance="j")
    c.advance(6_000)
    follower = c.joined(second).member_id
    waiting = c.sync(follower)
    c.join(instance="j")
    assert c.synced(waiting).error is ErrorCode.fenced_instance_id
    assert c.group().state is GroupState.PREPARING_REBALANCE
    again = c.join(c.joined(first).member_id, instance="i")
    assert c.joined(again).generation_id == 2


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    c = Context()
    leader, follower = static_group(c)
    token = c.join(leader, instance="i")
    for _ in range(12):
        c.heartbeat(follower, instance="j")
        c.advance(5_000)
    assert c.joined(token).generation_id == 2
    assert follower in c.group().members


def test_a_rebalance_that_only_absent_static_members_could_finish_is_put_off() -> None:
    c = Context()
    leader, follower = static_group(c)
    c.submit(Leave("g", (LeavingMember("", "i"),)))
    assert leader not in c.group().members
    for _ in range(13):
        c.heartbeat(follower, instance="j")
        c.advance(5_000)
    assert c.group().state is GroupState.PREPARING_REBALANCE
    c.advance(60_000)
    assert c.group().state is GroupState.EMPTY
    assert c.group().generation_id == 2


def test_when_a_replacement_cannot_be_stored_the_former_self_is_a_member_again() -> None:
    c = Context()
    _, follower = static_group(c)
    c.hold = True
    token = c.join(instance="j", session_ms=20_000)
    c.fail(ErrorCode.not_enough_replicas)
    c.hold = False
    assert c.joined(token).error is ErrorCode.coordinator_not_available
    assert c.joined(token).member_id == ""
    assert c.heartbeat(follower, instance="j") is ErrorCode.none
    assert c.group().members[follower].session_timeout_ms == 10_000
    assert c.group().members[follower].protocols == c.join_event().protocols
    assert isinstance(c.group().members[follower].protocols[0], JoinProtocol)


def test_a_static_member_that_took_its_place_and_falls_silent_is_removed() -> None:
    c = Context()
    leader, _ = static_group(c)
    again = c.joined(c.join(instance="j")).member_id
    assert again in c.group().members
    for _ in range(3):
        c.heartbeat(leader, instance="i")
        c.advance(5_000)
    assert list(c.group().members) == [leader]

"""Which groups may change their protocol, and which may not; the scenarios tell how they do."""

import struct
from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat, Quit
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.outcome import BeatReply
from oncelog.group.consumer.settings import ConsumerGroupConfig, MigrationPolicy
from oncelog.group.events import Heartbeat, Join, JoinProtocol, Leave, LeavingMember
from oncelog.group.replies import HeartbeatReply, JoinReply, LeaveReply
from oncelog.protocol.consumer_protocol import encode_assignment
from tests.unit.group.consumer.world import FakeTopics, partitions
from tests.unit.group.context import Context, Written, subscription


def context(**settings: object) -> Context:
    consumer = ConsumerGroupConfig(assignment_interval_ms=0, **settings)  # type: ignore[arg-type]
    return Context(GroupConfig(consumer=consumer), topics=FakeTopics({"t": 4}))


def beat(c: Context, member_id: str = "new", instance_id: str | None = None) -> BeatReply:
    event = Beat(
        "g",
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        topic_names=frozenset({"t"}),
        owned=frozenset(),
        instance_id=instance_id,
    )
    result = c.replies[c.submit(event)]
    assert isinstance(result, BeatReply)
    return result


def stable(c: Context, kind: str = "consumer") -> None:
    c.join(version=3, kind=kind)
    c.advance(3_000)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_group_is_not_upgraded_where_the_policy_forbids_it(policy: MigrationPolicy) -> None:
    c = context(migration_policy=policy)
    stable(c)
    assert beat(c).error is ErrorCode.group_id_not_found
    assert list(c.group().members) == ["c-1"]


def test_a_group_of_something_else_than_consumers_is_not_upgraded() -> None:
    c = context()
    stable(c, kind="connect")
    assert beat(c).error is ErrorCode.group_id_not_found


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    c = context(max_size=0)
    stable(c)
    assert beat(c).error is ErrorCode.group_id_not_found


def test_a_group_whose_assignor_keeps_data_of_its_own_is_not_upgraded() -> None:
    c = context()
    stable(c)
    given = {"c-1": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x"}
    c.submit(c.sync_event("c-1", 1, given))
    found = beat(c)
    assert found.error is ErrorCode.group_id_not_found
    assert found.message is not None
    assert "custom assignor" in found.message


def test_a_partition_that_two_members_were_given_stays_with_one_of_them() -> None:
    """A client's own assignor may have given it twice; no two members own it then (INV-8)."""
    c = context()
    tokens = [c.join(version=3) for _ in range(2)]
    c.advance(6_000)
    members = [c.joined(token).member_id for token in tokens]
    both = encode_assignment([TopicPartition("t", 0), TopicPartition("t", 1)], version=0)
    c.sync(members[0], 1, **dict.fromkeys(members, both))
    assert beat(c).error is ErrorCode.none
    assert sorted(len(c.consumer_group().members[m].assigned) for m in members) == [0, 2]


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_classic_members_stay_in_their_consumer_group_or_do_not_come(
    policy: MigrationPolicy,
) -> None:
    c = context(migration_policy=policy)
    assert beat(c).error is ErrorCode.none
    joined = c.replies[c.join(version=3)]
    assert isinstance(joined, JoinReply)
    if policy is MigrationPolicy.DISABLED:
        assert joined.error is ErrorCode.inconsistent_group_protocol
        return
    c.advance(45_000)
    assert list(c.consumer_group().members) in ([joined.member_id], [])
    assert "g" not in c.shard.store.groups


def test_a_classic_member_shares_a_protocol_with_all_other_classic_ones_or_does_not_come() -> None:
    """As in a classic group: INCONSISTENT_GROUP_PROTOCOL (KIP-848)."""
    c = context()
    assert beat(c).error is ErrorCode.none
    assert c.joined(c.join(version=3, protocols=("range", "sticky"))).error is ErrorCode.none
    assert c.joined(c.join(version=3, protocols=("sticky", "own"))).error is ErrorCode.none
    members = set(c.consumer_group().members)
    refused = c.joined(c.join(version=3, protocols=("range", "own")))
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert set(c.consumer_group().members) == members


def offering(c: Context, *topics: str) -> Join:
    """A JoinGroup with two protocols: only the first one subscribes to the topics."""
    version_1 = struct.pack(">hiii", 1, 0, -1, 0)
    offered = (JoinProtocol("range", subscription(*topics)), JoinProtocol("sticky", version_1))
    return replace(c.join_event(version=3), protocols=offered)


def test_the_first_protocol_of_a_classic_member_counts() -> None:
    c = context()
    assert beat(c).error is ErrorCode.none
    joined = c.joined(c.submit(offering(c, "t")))
    assert joined.protocol_name == "range"
    assert c.consumer_group().members[joined.member_id].topic_names == {"t"}
    asked = c.sync_event(joined.member_id, joined.generation_id)
    synced = c.synced(c.submit(asked))
    assert (synced.error, synced.protocol_name) == (ErrorCode.none, "range")
    assert synced.assignment[:2] == bytes(2), "the version of its subscription"
    other = c.synced(c.submit(replace(asked, protocol_name="sticky")))
    assert other.error is ErrorCode.inconsistent_group_protocol


def test_the_first_protocol_counts_also_of_a_group_that_has_chosen_none_yet() -> None:
    c = context()
    c.submit(offering(c, "t"))
    assert beat(c).error is ErrorCode.none
    classic = c.consumer_group().members["c-1"]
    assert classic.topic_names == {"t"}


def test_a_classic_member_rejoins_once_what_it_waits_for_is_free() -> None:
    c = context()
    assert beat(c).error is ErrorCode.none
    joined = c.joined(c.join(version=3))
    assert c.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.none
    told = Beat("g", "new", 1, owned=partitions("t", 0, 1, 2, 3))
    for event in (told, replace(told, owned=partitions("t", 0, 1))):
        assert c.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.none
        c.submit(event)
    again = c.heartbeat(joined.member_id, joined.generation_id)
    assert again is ErrorCode.rebalance_in_progress


def test_a_downgraded_group_waits_no_more_for_what_its_classic_members_were_called_for() -> None:
    c = context()
    assert beat(c, "new").error is ErrorCode.none
    c.join(version=3)
    (classic_id,) = set(c.consumer_group().members) - {"new"}
    # It is given partitions, and has to fetch them; it never does.
    c.submit(Quit("g", "new", -1))
    assert list(c.group().members) == [classic_id]
    c.advance(300_000)
    assert "g" not in c.shard.store.consumer_groups


def test_a_group_is_downgraded_without_the_classic_members_that_leave_in_the_same_request() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    c.join(version=3)
    c.join(version=3)
    gone, left = sorted(set(c.consumer_group().members) - {"new"})
    request = Leave("g", (LeavingMember(gone), LeavingMember("", "n")))
    result = c.replies[c.submit(request)]
    assert isinstance(result, LeaveReply)
    assert [member.error for member in result.members] == [ErrorCode.none] * 2
    assert list(c.group().members) == [left]
    c.restart()
    assert list(c.group().members) == [left]


def test_an_id_that_no_member_has_joined_with_yet_is_no_classic_group() -> None:
    c = context()
    asked = c.joined(c.join())
    assert asked.error is ErrorCode.member_id_required
    assert beat(c).error is ErrorCode.none
    assert "g" not in c.shard.store.groups
    assert not [key for key in c.shard.store.timers.deadlines if key.member_id == asked.member_id]
    c.advance(40_000)
    assert list(c.consumer_group().members) == ["new"]


def test_a_group_that_waits_for_an_id_given_out_in_its_rebalance_is_upgraded() -> None:
    c = context()
    member = c.stable()[0]
    c.join()
    c.leave(member)
    assert c.group().pending_joins
    assert beat(c).error is ErrorCode.none


@pytest.mark.parametrize("assigned_count", [0, 1, 3])
def test_an_upgrade_assigns_anew_what_the_groups_leader_could_not_know_of(
    assigned_count: int,
) -> None:
    """The topic has grown since the leader assigned it, and an upgraded group has no leader.

    The newcomer is the static member's next process, and subscribes to the same topic.
    """
    c = context()
    token = c.join(version=5, instance="n")
    c.advance(3_000)
    member = c.joined(token).member_id
    known = [TopicPartition("t", number) for number in range(assigned_count)]
    c.sync(member, 1, **{member: encode_assignment(known, version=0)})
    found = beat(c, instance_id="n")
    assert (found.error, found.member_epoch) == (ErrorCode.none, 2)
    assert found.assigned == partitions("t", 0, 1, 2, 3)
    c.restart()
    assert c.consumer_group().state is ConsumerGroupState.STABLE
    assert c.consumer_group().group_epoch == 2


def test_an_upgrade_assigns_to_members_whose_rebalance_it_ends() -> None:
    """One joined while the others had all partitions, and the next process of another upgrades."""
    c = context()
    token = c.join(version=5, instance="n")
    c.advance(3_000)
    member = c.joined(token).member_id
    every = [TopicPartition("t", number) for number in range(4)]
    c.sync(member, 1, **{member: encode_assignment(every, version=0)})
    _, waiting = c.new_member()
    assert beat(c, instance_id="n").error is ErrorCode.none
    assert c.joined(waiting).error is ErrorCode.rebalance_in_progress
    assert sorted(map(len, c.consumer_group().target.values())) == [2, 2]


def fail_upgrade(c: Context) -> None:
    """A member of the new protocol comes, and the converted group is too large for one append."""
    c.hold = True
    c.submit(Beat("g", "new", 0, rebalance_timeout_ms=60_000, topic_names=frozenset({"t"})))
    assert c.in_flight
    c.fail(ErrorCode.message_too_large)
    c.hold = False


def test_a_failed_upgrade_leaves_a_rebalance_as_it_is() -> None:
    c = context()
    member, token = c.new_member()
    fail_upgrade(c)
    c.advance(6_000)
    assert c.joined(token).error is ErrorCode.none
    waiting = [c.new_member()[1] for _ in range(2)]
    leader = c.join(member)
    fail_upgrade(c)
    c.advance(60_000)
    assert [c.joined(each).error for each in (*waiting, leader)] == [ErrorCode.none] * 3


def test_a_failed_upgrade_leaves_waiting_followers_and_their_group_as_they_are() -> None:
    c = context()
    members = [c.new_member() for _ in range(2)]
    c.advance(6_000)
    leader, follower = (member for member, _ in members)
    waiting = c.sync(follower)
    fail_upgrade(c)
    assert waiting not in c.replies
    c.sync(leader)
    assert c.synced(waiting).error is ErrorCode.none
    fail_upgrade(c)
    c.advance(1_000)
    assert c.heartbeat(leader) is ErrorCode.none, "no rebalance: nothing has changed"


def downgraded(c: Context) -> tuple[str, int]:
    """A downgraded group before its rebalance: its only member and the generation it knows."""
    assert beat(c, "new").error is ErrorCode.none
    joined = c.joined(c.join(version=3))
    c.submit(Quit("g", "new", -1))
    assert list(c.group().members) == [joined.member_id]
    return joined.member_id, joined.generation_id


@pytest.mark.parametrize("passed_ms", [0, 1_000])
def test_a_restart_before_the_rebalance_of_a_downgrade_is_over_has_all_members_rejoin(
    passed_ms: int,
) -> None:
    c = context()
    member, generation = downgraded(c)
    c.advance(passed_ms)
    c.restart()
    assert c.heartbeat(member, generation) is ErrorCode.illegal_generation
    assert c.joined(c.join(member, version=3)).generation_id > generation


def test_a_restart_after_a_downgraded_group_has_joined_has_all_members_rejoin() -> None:
    """Their assignments are not stored yet."""
    c = context()
    member, _ = downgraded(c)
    c.advance(1_000)
    generation = c.joined(c.join(member, version=3)).generation_id
    c.restart()
    assert c.heartbeat(member, generation) is ErrorCode.illegal_generation


def test_members_of_a_downgraded_group_are_called_to_rejoin_in_the_generation_they_know() -> None:
    c = context()
    member, generation = downgraded(c)
    c.advance(1)
    assert c.heartbeat(member, generation) is ErrorCode.rebalance_in_progress
    assert c.commit(5, member, generation) is ErrorCode.none


def test_a_heartbeat_that_waits_for_a_downgrade_is_called_to_rejoin() -> None:
    c = context()
    assert beat(c, "new").error is ErrorCode.none
    joined = c.joined(c.join(version=3))
    c.hold = True
    c.submit(Quit("g", "new", -1))
    waiting = c.submit(Heartbeat("g", joined.generation_id, joined.member_id))
    c.advance(1)
    c.hold = False
    c.commit_all()
    result = c.replies[waiting]
    assert isinstance(result, HeartbeatReply)
    assert result.error is ErrorCode.rebalance_in_progress


def test_a_group_is_downgraded_when_its_last_new_member_comes_back_as_a_classic_one() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    other = c.joined(c.join(version=3))
    joined = c.joined(c.join(version=5, instance="n"))
    assert joined.error is ErrorCode.none
    c.advance(1)
    assert set(c.group().members) == {other.member_id, joined.member_id}
    waiting = [
        c.join(other.member_id, version=3),
        c.join(joined.member_id, version=5, instance="n"),
    ]
    assert [c.joined(each).error for each in waiting] == [ErrorCode.none] * 2
    c.restart()
    assert set(c.group().members) == {other.member_id, joined.member_id}


def test_a_group_that_restarts_before_its_downgrade_is_downgraded_then() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    joined = c.joined(c.join(version=5, instance="n"))
    assert joined.error is ErrorCode.none
    c.restart()
    c.advance(1)
    assert list(c.group().members) == [joined.member_id]
    assert c.heartbeat(joined.member_id, 99, "n") is ErrorCode.illegal_generation


def test_a_group_with_new_members_is_not_downgraded_when_one_of_them_is_replaced() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    assert beat(c, "newer").error is ErrorCode.none
    assert c.joined(c.join(version=5, instance="n")).error is ErrorCode.none
    c.advance(1)
    c.restart()
    c.advance(1)
    assert "newer" in c.consumer_group().members


def test_a_replacement_that_was_not_stored_downgrades_nothing() -> None:
    c = context()
    assert beat(c, "new", instance_id="n").error is ErrorCode.none
    c.hold = True
    c.join(version=5, instance="n")
    c.fail(ErrorCode.not_enough_replicas)
    c.hold = False
    c.advance(1)
    assert list(c.consumer_group().members) == ["new"]


def test_an_upgrade_deletes_the_classic_group_before_it_writes_the_new_one() -> None:
    c = context()
    stable(c)
    nothing = struct.pack(">hii", 0, 0, -1)
    c.submit(c.sync_event("c-1", 1, {"c-1": nothing}))
    before = len(c.log)
    assert beat(c).error is ErrorCode.none
    written = [entry.record for entry in c.log[before:] if isinstance(entry, Written)]
    assert [record.value is None for record in written] == [True, *[False] * (len(written) - 1)]
    assert len(written) > 3

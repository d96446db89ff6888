from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.replies import OffsetCommitReply, OffsetDeleteReply, OffsetFetchReply
from tests.unit.group.context import T0, T1, Context, Written, topic_deleted

DAY_MS = 24 * 60 * 60 * 1000


def test_what_is_committed_is_fetched_also_after_a_restart() -> None:
    c = Context()
    assert c.commit(5) is ErrorCode.none
    assert c.fetch().offset == 5
    c.restart()
    assert c.fetch().offset == 5
    assert c.fetch(T1).offset == -1
    assert c.fetch(T1).error is ErrorCode.none
    assert c.fetch(group_id="other").offset == -1
    assert c.fetch_all(group_id="other") == []
    assert [f.partition for f in c.fetch_all()] == [0]


def test_a_commit_is_answered_and_visible_only_when_it_is_in_the_log() -> None:
    c = Context(hold=True)
    token = c.submit(c.commit_event(5))
    assert token not in c.replies
    assert c.fetch().offset == -1
    assert c.fetch(require_stable=True).error is ErrorCode.unstable_offset_commit
    assert [f.error for f in c.fetch_all(True)] == [ErrorCode.unstable_offset_commit]
    c.commit_all()
    assert c.outcome(token) is ErrorCode.none
    assert c.fetch(require_stable=True).offset == 5


def test_a_commit_that_was_not_written_leaves_the_offset_stable() -> None:
    c = Context(hold=True)
    token = c.submit(c.commit_event(5))
    other = c.submit(c.commit_event(6))
    c.in_flight.reverse()
    c.fail(ErrorCode.kafka_storage_error)
    assert c.outcome(other) is ErrorCode.not_coordinator
    assert c.fetch(require_stable=True).error is ErrorCode.unstable_offset_commit
    c.commit_all()
    assert c.outcome(token) is ErrorCode.none
    assert c.fetch(require_stable=True).offset == 5


def test_a_commit_from_an_older_generation_is_refused() -> None:
    """INV-8."""
    c = Context()
    leader, follower = c.stable(2)
    assert c.commit(1, leader, 1) is ErrorCode.none
    c.leave(follower)
    c.join(leader)
    c.sync(leader, 2)
    assert c.commit(2, leader, 1) is ErrorCode.illegal_generation
    assert c.txn_commit(2, 7, leader, 1) is ErrorCode.illegal_generation
    assert c.commit(2, follower, 1) is ErrorCode.unknown_member_id
    assert c.txn_commit(2, 7, follower, 1) is ErrorCode.unknown_member_id
    assert c.commit(2, leader, 2) is ErrorCode.none


def test_a_commit_without_a_member_is_taken_only_while_the_group_is_empty() -> None:
    c = Context()
    member = c.stable()[0]
    assert c.commit(1) is ErrorCode.unknown_member_id
    assert c.commit(1, member) is ErrorCode.illegal_generation
    c.leave(member)
    assert c.commit(1) is ErrorCode.none


def test_a_member_cannot_commit_to_a_group_that_does_not_exist() -> None:
    c = Context()
    assert c.commit(1, "m", 3) is ErrorCode.group_id_not_found
    assert c.txn_commit(1, 7, "m", 3) is ErrorCode.group_id_not_found


def test_a_commit_of_a_fenced_static_member_is_refused() -> None:
    c = Context()
    first = c.joined_static = c.join(instance="i")  # type: ignore[attr-defined]
    c.advance(6_000)
    member = c.joined(first).member_id
    fenced = ErrorCode.fenced_instance_id
    assert c.commit(1, "former", 1, group_instance_id="i") is fenced
    assert c.txn_commit(1, 7, "former", 1, group_instance_id="i") is fenced
    assert c.commit(1, member, 1, group_instance_id="x") is ErrorCode.unknown_member_id


def test_while_an_assignment_is_awaited_only_transactions_commit() -> None:
    c = Context()
    member, _ = c.new_member()
    c.advance(6_000)
    assert c.commit(1, member, 1) is ErrorCode.rebalance_in_progress
    assert c.txn_commit(1, 7, member, 1) is ErrorCode.none


def test_a_transaction_commits_without_naming_a_member_whatever_the_group_does() -> None:
    c = Context()
    c.stable()
    assert c.txn_commit(1) is ErrorCode.none
    assert c.txn_commit(1, group_id="") is ErrorCode.invalid_group_id


def test_commits_count_as_heartbeats() -> None:
    c = Context()
    member = c.stable()[0]
    c.advance(9_000)
    c.commit(1, member, 1)
    c.advance(9_000)
    assert c.heartbeat(member) is ErrorCode.none


def test_metadata_has_a_limit_and_only_its_partition_is_refused() -> None:
    c = Context(GroupConfig(offset_metadata_max_size=3))
    wanted = (
        e.OffsetToCommit("t", 0, 5, 2, "abc"),
        e.OffsetToCommit("t", 1, 6, 2, "abcd"),
        e.OffsetToCommit("t", 2, 7, -1, None),
    )
    result = c.replies[c.submit(e.OffsetCommit("g", 8, -1, "", wanted))]
    assert isinstance(result, OffsetCommitReply)
    too_large = ErrorCode.offset_metadata_too_large
    assert [p.error for p in result.partitions] == [ErrorCode.none, too_large, ErrorCode.none]
    found = c.fetch_all()
    assert [(f.partition, f.offset, f.leader_epoch, f.metadata) for f in found] == [
        (0, 5, 2, "abc"),
        (2, 7, -1, ""),
    ]


def test_a_commit_of_which_everything_is_refused_writes_nothing() -> None:
    c = Context(GroupConfig(offset_metadata_max_size=0))
    wanted = (e.OffsetToCommit("t", 0, 5, -1, "a"),)
    token = c.submit(e.OffsetCommit("g", 8, -1, "", wanted))
    assert c.outcome(token) is ErrorCode.offset_metadata_too_large
    assert c.log == []


def test_a_fetch_does_not_overtake_a_commit_that_waits() -> None:
    c = Context()
    member = c.stable()[0]
    c.join(member)
    c.hold = True
    c.sync(member, 2)
    committing = c.submit(c.commit_event(5, member, 2))
    fetching = c.submit(e.OffsetFetch("g", (e.OffsetToFetch(*T0),), require_stable=True))
    assert not {committing, fetching} & set(c.replies)
    c.hold = False
    c.commit_all()
    assert c.outcome(committing) is ErrorCode.none
    result = c.replies[fetching]
    assert isinstance(result, OffsetFetchReply)
    assert result.partitions[0].error is ErrorCode.unstable_offset_commit
    assert c.fetch(require_stable=True).offset == 5


# In transactions.


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_become_visible_exactly_when_it_commits(commit: bool) -> None:
    """INV-6."""
    c = Context()
    c.commit(1)
    assert c.txn_commit(5) is ErrorCode.none
    assert c.txn_commit(6, partition=T1) is ErrorCode.none
    assert c.fetch().offset == 1
    assert c.fetch(T1).offset == -1
    assert [f.partition for f in c.fetch_all()] == [0]
    unstable = ErrorCode.unstable_offset_commit
    assert c.fetch(require_stable=True).error is unstable
    assert [f.error for f in c.fetch_all(True)] == [unstable, unstable]
    c.restart()
    assert c.fetch().offset == 1
    assert c.fetch(require_stable=True).error is unstable
    c.marker(7, commit)
    for _ in range(2):
        expected = [5, 6] if commit else [1, -1]
        assert [c.fetch(p, True).offset for p in (T0, T1)] == expected
        c.restart()


def test_a_marker_ends_only_what_its_own_producer_holds() -> None:
    c = Context()
    c.txn_commit(5, 7)
    c.txn_commit(6, 8)
    c.txn_commit(9, 8, partition=T1)
    c.marker(7, True)
    c.marker(9, True)
    assert c.fetch().offset == 5
    assert c.fetch(require_stable=True).error is ErrorCode.unstable_offset_commit
    c.marker(8, False)
    assert c.fetch(require_stable=True).offset == 5


def test_of_a_plain_and_a_transactional_commit_the_later_in_the_log_wins() -> None:
    c = Context()
    c.txn_commit(5)
    c.commit(9)
    c.marker(7, True)
    assert c.fetch().offset == 9
    c.restart()
    assert c.fetch().offset == 9


def test_a_transactional_commit_in_flight_makes_its_partition_unstable() -> None:
    """INV-6: a new member must not start from an offset that an older one is about to replace."""
    c = Context(hold=True)
    token = c.submit(c.txn_commit_event(5))
    assert c.fetch(require_stable=True).error is ErrorCode.unstable_offset_commit
    c.fail(ErrorCode.invalid_producer_epoch)
    assert c.outcome(token) is ErrorCode.invalid_producer_epoch
    assert c.fetch(require_stable=True).error is ErrorCode.none


# Topic ids.


def test_an_offset_of_an_older_topic_of_the_same_name_is_not_served() -> None:
    c = Context()
    old, new = UUID(int=1), UUID(int=2)
    wanted = (e.OffsetToCommit("t", 0, 5, -1, "", old),)
    c.submit(e.OffsetCommit("g", 10, -1, "", wanted))
    c.restart()
    for asked, offset in ((old, 5), (new, -1), (e.ZERO_TOPIC_ID, 5)):
        token = c.submit(e.OffsetFetch("g", (e.OffsetToFetch("t", 0, asked),)))
        result = c.replies[token]
        assert isinstance(result, OffsetFetchReply)
        assert result.partitions[0].offset == offset


def test_with_a_topic_its_offsets_go_and_those_of_a_newer_one_stay() -> None:
    c = Context()
    old, new = UUID(int=1), UUID(int=2)
    c.submit(e.OffsetCommit("g", 10, -1, "", (e.OffsetToCommit("t", 0, 5, -1, "", old),)))
    c.submit(e.OffsetCommit("g", 10, -1, "", (e.OffsetToCommit("t", 1, 5, -1, "", new),)))
    c.commit(5, partition=TopicPartition("u", 0))
    c.commit(5, group_id="h")
    c.txn_commit(5, group_id="i")
    c.submit_silently(topic_deleted(old))
    assert [(f.topic, f.partition) for f in c.fetch_all()] == [("t", 1), ("u", 0)]
    assert c.fetch_all(group_id="h") == []
    c.marker(7, True)
    assert c.fetch_all(group_id="i") == []


def test_a_commit_in_flight_outlives_the_deletion_of_an_older_topic() -> None:
    c = Context(hold=True)
    c.submit(c.commit_event(5))
    c.submit_silently(topic_deleted(UUID(int=1)))
    c.commit_all()
    assert c.fetch().offset == 5


# Deleting.


def deleted(c: Context, *partitions: TopicPartition, group_id: str = "g") -> OffsetDeleteReply:
    result = c.replies[c.submit(e.OffsetDelete(group_id, partitions))]
    assert isinstance(result, OffsetDeleteReply)
    return result


def test_offsets_are_deleted_with_those_that_transactions_hold() -> None:
    c = Context()
    c.commit(1)
    c.txn_commit(5)
    c.txn_commit(6, 8, partition=T1)
    c.txn_commit(6, 8, partition=TopicPartition("t", 2))
    result = deleted(c, T0, T1, TopicPartition("t", 9))
    assert [p.error for p in result.partitions] == [ErrorCode.none] * 3
    c.marker(7, True)
    c.marker(8, True)
    assert [f.partition for f in c.fetch_all()] == [2]
    written = len(c.log)
    deleted(c, TopicPartition("t", 9))
    assert len(c.log) == written, "a tombstone for nothing is not written"


def test_a_commit_in_flight_is_deleted_too() -> None:
    c = Context()
    c.commit(1)
    c.hold = True
    c.submit(c.commit_event(2, partition=T1))
    c.submit(e.OffsetDelete("g", (T1,)))
    c.commit_all()
    assert [f.partition for f in c.fetch_all()] == [0]


def test_no_offset_is_deleted_while_a_members_subscription_cannot_be_read() -> None:
    c = Context()
    member = c.stable()[0]
    c.commit(1, member, 1, partition=TopicPartition("u", 0))
    unreadable = (e.JoinProtocol("range", b"?"),)
    c.submit(replace(c.join_event(member), protocols=unreadable))
    result = deleted(c, TopicPartition("u", 0))
    assert [p.error for p in result.partitions] == [ErrorCode.group_subscribed_to_topic]


def test_offsets_of_a_subscribed_topic_are_not_deleted() -> None:
    c = Context()
    member = c.stable()[0]
    c.commit(1, member, 1)
    c.commit(1, member, 1, partition=TopicPartition("u", 0))
    result = deleted(c, T0, TopicPartition("u", 0))
    subscribed = ErrorCode.group_subscribed_to_topic
    assert [p.error for p in result.partitions] == [subscribed, ErrorCode.none]
    assert [f.topic for f in c.fetch_all()] == ["t"]


def test_offsets_of_groups_of_another_kind_are_deleted_only_without_members() -> None:
    c = Context()
    assert deleted(c, T0).error is ErrorCode.group_id_not_found
    assert deleted(c, T0, group_id="").error is ErrorCode.invalid_group_id
    c.stable(kind="connect")
    assert deleted(c, T0).error is ErrorCode.non_empty_group


# Expiring.


def test_offsets_without_members_expire_after_their_own_retention() -> None:
    c = Context()
    c.commit(1)
    c.advance(DAY_MS)
    c.commit(2, partition=T1)
    c.advance(7 * DAY_MS - DAY_MS)
    c.advance(600_000)
    assert [f.partition for f in c.fetch_all()] == [1]
    c.advance(DAY_MS)
    assert c.fetch_all() == []
    assert "g" not in c.shard.store.groups
    c.restart()
    assert "g" not in c.shard.store.groups


def test_a_retention_that_the_commit_names_counts() -> None:
    c = Context()
    c.commit(1, retention_ms=DAY_MS)
    c.advance(DAY_MS - 600_000)
    assert c.fetch().offset == 1
    c.restart()
    c.advance(1_200_000)
    assert c.fetch().offset == -1


def set_clock(c: Context, by_ms: int) -> None:
    """The wall clock was set before the records were written; the next run begins with it."""
    for item in c.log:
        assert isinstance(item, Written)
        item.timestamp_ms += by_ms
    c.now_ms += by_ms
    c.restart()


@pytest.mark.parametrize("set_by_ms", [-30 * DAY_MS, 30 * DAY_MS])
@pytest.mark.parametrize("retention_ms", [-1, DAY_MS])
def test_offsets_live_as_long_wherever_the_wall_clock_was_set(
    set_by_ms: int, retention_ms: int
) -> None:
    c = Context(GroupConfig(offsets_retention_ms=DAY_MS), now_ms=40 * DAY_MS)
    c.commit(1, retention_ms=retention_ms)
    set_clock(c, set_by_ms)
    c.advance(DAY_MS - 600_000)
    assert c.fetch().offset == 1
    c.advance(1_200_000)
    assert c.fetch().offset == -1


@pytest.mark.parametrize("set_by_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_offsets_of_an_empty_group_live_as_long_wherever_the_wall_clock_was_set(
    set_by_ms: int,
) -> None:
    c = Context(GroupConfig(offsets_retention_ms=DAY_MS), now_ms=40 * DAY_MS)
    (member,) = c.stable()
    c.commit(1, member, 1)
    c.leave(member)
    set_clock(c, set_by_ms)
    c.advance(DAY_MS - 600_000)
    assert c.fetch().offset == 1
    c.advance(1_200_000)
    assert "g" not in c.shard.store.groups


def test_a_group_that_became_empty_keeps_its_offsets_from_then_on() -> None:
    c = Context(GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000))
    member = c.stable()[0]
    c.commit(1, member, 1)
    for _ in range(10):
        c.advance(9_000)
        c.heartbeat(member)
    assert c.fetch().offset == 1, "a subscribed topic does not expire"
    c.leave(member)
    c.advance(30_000)
    c.restart()
    c.advance(29_000)
    assert c.fetch().offset == 1
    c.advance(2_000)
    assert c.fetch().offset == -1
    assert "g" not in c.shard.store.groups


def test_offsets_of_topics_that_a_stable_group_left_expire_and_others_stay() -> None:
    c = Context(GroupConfig(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=1_000))
    member = c.stable()[0]
    gone = TopicPartition("gone", 0)
    c.commit(1, member, 1)
    c.commit(1, member, 1, partition=gone)
    for _ in range(4):
        c.advance(5_000)
        c.heartbeat(member)
    c.advance(1_000)
    assert [f.topic for f in c.fetch_all()] == ["t"]
    assert c.heartbeat(member) is ErrorCode.none


@pytest.mark.parametrize("kind", ["connect", "consumer"])
def test_nothing_expires_while_it_is_not_known_what_the_members_read(kind: str) -> None:
    c = Context(GroupConfig(offsets_retention_ms=2_000, offsets_retention_check_interval_ms=1_000))
    gone = TopicPartition("gone", 0)
    c.commit(1, partition=gone)
    c.new_member(kind=kind)
    c.advance(2_900)
    assert c.fetch(gone).offset == 1
    c.advance(9_000)
    assert c.group().members
    assert c.fetch(gone).offset == 1


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire() -> None:
    c = Context()
    c.commit(1)
    c.txn_commit(2)
    c.advance(9 * DAY_MS)
    assert c.fetch().offset == 1
    c.marker(7, True)
    assert c.fetch().offset == 2
    c.advance(DAY_MS)
    assert c.fetch().offset == -1


def test_a_group_whose_first_offset_is_in_a_transaction_does_not_expire() -> None:
    """INV-6: the group would be gone when its offset becomes visible, and never expire then."""
    c = Context()
    c.txn_commit(5)
    c.advance(9 * DAY_MS)
    assert "g" in c.shard.store.groups
    c.marker(7, True)
    assert c.fetch().offset == 5
    assert "g" in c.shard.store.groups


def test_a_group_that_never_was_more_than_a_given_id_is_forgotten() -> None:
    c = Context()
    c.join()
    c.advance(600_001)
    assert "g" not in c.shard.store.groups
    assert c.log == []
    c.submit_silently(e.ExpireOffsets("g"))
    assert c.log == []

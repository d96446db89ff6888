"""Members join, settle, are fenced and refused."""

from dataclasses import replace
from typing import Any

import pytest

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import GROUP_REGEX_REFRESH_MS_MIN
from oncelog.group.consumer import records
from oncelog.group.consumer.events import Beat
from oncelog.group.consumer.members import MemberState, Partitions
from oncelog.group.consumer.outcome import (
    Refusal,
)
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.consumer.timers import MemberTimer
from oncelog.protocol.records import consumer_group_log
from tests.unit.group.consumer.world import GROUP_ID, Client, FakeTopics, World, partitions

T = partitions


def world(**counts: int) -> World:
    return World(FakeTopics(counts or {"t": 4}))


def client(
    member_id: str,
    *topics: str,
    instance_id: str | None = None,
    server_assignor: str | None = None,
) -> Client:
    names = frozenset(topics or ("t",))
    return Client(member_id, names, instance_id=instance_id, server_assignor=server_assignor)


def state(world: World) -> str:
    return world.group.state.value


def code(world: World, client: Client) -> ErrorCode:
    return world.beat(client).error


def test_the_first_member_is_assigned_everything_at_once() -> None:
    here, a = world(), client("a")
    result = here.beat(a)
    assert (result.error, result.member_id, result.member_epoch) == (ErrorCode.none, "a", 1)
    assert result.assigned == T("t", 0, 1, 2, 3)
    assert result.heartbeat_interval_ms == 5_000
    assert state(here) == "Stable"
    a.follow()
    assert here.beat(a).assigned is None


def test_a_heartbeat_without_news_writes_nothing() -> None:
    here, a = world(), client("a")
    here.settle([a])
    written = len(here.log)
    here.settle([a])
    assert len(here.log) == written


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a])
    result = here.beat(b)
    assert result.assigned == frozenset()
    assert here.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    result = here.beat(a)
    assert (result.member_epoch, result.assigned) == (1, T("t", 0, 1))
    assert here.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert state(here) == "Reconciling"
    assert here.beat(b).assigned is None
    a.follow()
    assert here.beat(a).member_epoch == 2
    assert state(here) == "Reconciling"
    assert here.beat(b).assigned == T("t", 2, 3)
    assert state(here) == "Stable"


def test_members_that_join_together_share_one_target() -> None:
    here = World(FakeTopics({"t": 4}), ConsumerGroupConfig(assignment_interval_ms=1_000))
    a, b, c = client("a"), client("b"), client("c")
    here.beat(a)
    here.pass_time(400)
    assert here.beat(b).member_epoch == 1
    assert here.beat(c).member_epoch == 1
    assert (here.group.group_epoch, here.group.assignment_epoch) == (3, 1)
    assert state(here) == "Assigning"
    here.pass_time(600)
    here.beat(a)
    assert here.group.assignment_epoch == 3
    here.settle([a, b, c])
    assert sorted(len(each.owned) for each in (a, b, c)) == [1, 1, 2]


def test_an_answer_that_was_lost_is_given_again() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a])
    here.beat(b)
    here.beat(a)
    a.follow()
    here.beat(a, lose_answer=True)
    assert (a.epoch, here.group.members["a"].member_epoch) == (1, 2)
    result = here.beat(a)
    assert (result.error, result.member_epoch) == (ErrorCode.none, 2)
    assert result.assigned == T("t", 0, 1)


def test_the_epoch_before_is_refused_once_the_member_owns_more_than_it_is_assigned() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a])
    here.settle([a, b])
    stale = replace(a.beat(), member_epoch=a.epoch - 1)
    for owned in (None, T("t", 0, 1, 2, 3)):
        found = here.send(replace(stale, owned=owned))
        assert isinstance(found, Refusal)
        assert found.error is ErrorCode.fenced_member_epoch
    assert not isinstance(here.send(replace(stale, owned=a.owned)), Refusal)


@pytest.mark.parametrize("instance_id", [None, "i"])
@pytest.mark.parametrize("epoch", [5, 100])
def test_an_epoch_from_the_future_is_fenced(epoch: int, instance_id: str | None) -> None:
    here, a = world(), client("a", instance_id=instance_id)
    here.settle([a])
    a.epoch = epoch
    assert code(here, a) is ErrorCode.fenced_member_epoch
    assert a.epoch == 0
    assert here.settle([a]) == 1


def test_a_member_that_joins_again_gets_its_partitions_back() -> None:
    here, a = world(), client("a")
    here.settle([a])
    a.abandon()
    result = here.beat(a)
    assert (result.member_epoch, result.assigned) == (1, T("t", 0, 1, 2, 3))


@pytest.mark.parametrize(
    "news",
    [
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 7},
        {"topic_names": frozenset({"u"})},
        {"topic_regex": "u.*"},
        {"server_assignor": "range"},
    ],
    ids=str,
)
def test_a_heartbeat_changes_what_it_says_of_the_member_until_another_does(
    news: dict[str, Any],
) -> None:
    here, a = world(), client("a", server_assignor="uniform")
    first = replace(a.beat(), rack_id="first", topic_regex="t")
    assert not isinstance(here.send(first), Refusal)
    again = Beat(GROUP_ID, "a", 1, "other", "/host")
    before = here.group.members["a"]
    assert not isinstance(here.send(replace(again, **news)), Refusal)
    now = here.group.members["a"]
    expected = replace(before, client_id="other", client_host="/host", **news)
    assert now.has_metadata_of(expected)
    assert not isinstance(here.send(replace(again, member_epoch=now.member_epoch)), Refusal)
    assert here.group.members["a"].has_metadata_of(expected)


@pytest.mark.parametrize(
    ("assignors", "share"),
    [(("uniform", "range"), T("t", 0, 1)), (("range", "uniform"), T("t", 0) | T("u", 0))],
)
def test_the_first_assignor_of_the_broker_is_that_of_members_that_ask_for_none(
    assignors: tuple[str, ...], share: Partitions
) -> None:
    config = ConsumerGroupConfig(assignment_interval_ms=0, assignors=assignors)
    here = World(FakeTopics({"t": 2, "u": 2}), config)
    a, b = client("a", "t", "u"), client("b", "t", "u")
    here.settle([a, b])
    assert share in (a.owned, b.owned)


def test_a_member_that_is_removed_owns_nothing() -> None:
    here, a = world(), client("a")
    here.settle([a])
    here.group.remove("a")
    assert here.group.owners == {}


def test_a_record_of_kafka_4_0_is_deleted_with_the_next_epoch() -> None:
    here, a = world(), client("a")
    kind = consumer_group_log.ConsumerGroupKind.PARTITION_METADATA
    key = consumer_group_log.encode_key(consumer_group_log.ConsumerGroupKey(kind, GROUP_ID, ""))
    value = consumer_group_log.encode_value(consumer_group_log.PartitionMetadataValue())
    here.commit([CoordinatorRecord(key, value)])
    here.settle([a])
    assert [entry.value for entry in here.log if entry.key == key] == [value, None]
    here.settle([a, client("b")])
    assert here.log.count(CoordinatorRecord(key, None)) == 1


def test_an_unknown_member_is_refused() -> None:
    here, a = world(), client("a")
    a.epoch = 3
    assert code(here, a) is ErrorCode.unknown_member_id
    static = client("s", instance_id="i")
    static.epoch = 3
    assert code(here, static) is ErrorCode.unknown_member_id
    assert not here.log


def test_a_full_group_refuses_new_members() -> None:
    here = World(FakeTopics({"t": 4}), ConsumerGroupConfig(max_size=1))
    a = client("a", instance_id="i")
    here.settle([a])
    assert code(here, client("b")) is ErrorCode.group_max_size_reached
    assert code(here, a) is ErrorCode.none
    here.leave(a, for_now=True)
    assert code(here, client("c", instance_id="i")) is ErrorCode.none


def test_a_silent_member_is_taken_out_and_its_partitions_go_to_the_others() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a, b])
    for _ in range(9):
        assert here.pass_time(5_000) in ([], ["b"])
        here.beat(a)
        a.follow()
    here.settle([a])
    assert a.owned == T("t", 0, 1, 2, 3)
    assert code(here, b) is ErrorCode.unknown_member_id


def test_a_member_that_does_not_revoke_in_time_is_taken_out() -> None:
    here, a, b = world(), client("a"), client("b")
    a.rebalance_timeout_ms = 20_000
    here.settle([a])
    here.beat(b)
    gone = []
    for _ in range(4):
        here.beat(a)
        gone += here.pass_time(5_000)
    assert gone == ["a"]
    assert code(here, a) is ErrorCode.unknown_member_id


def test_a_member_that_revoked_is_not_waited_for_any_more() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a])
    here.beat(b)
    here.beat(a)
    assert (MemberTimer.REVOCATION, "a") in here.deadlines
    a.follow()
    here.beat(a)
    assert (MemberTimer.REVOCATION, "a") not in here.deadlines


# Topics and subscriptions.


def test_more_partitions_and_new_topics_begin_an_epoch() -> None:
    here, a = world(t=2), client("a", "t", "u")
    here.settle([a])
    here.topics = here.topics.with_counts(t=3)
    here.settle([a])
    assert a.owned == T("t", 0, 1, 2)
    here.topics = here.topics.with_counts(u=1, other=5)
    here.settle([a])
    assert a.owned == T("t", 0, 1, 2) | T("u", 0)
    written = len(here.log)
    here.topics = here.topics.with_counts(other=9)
    here.settle([a])
    assert len(here.log) == written


def test_a_topic_that_is_deleted_is_given_up() -> None:
    here, a = world(t=2, u=2), client("a", "t", "u")
    here.settle([a])
    here.topics = here.topics.without("u")
    here.settle([a])
    assert a.owned == T("t", 0, 1)


def test_a_member_without_topics_is_a_member() -> None:
    here = world()
    a = Client("a", frozenset())
    here.settle([a])
    assert (a.epoch, a.owned) == (1, frozenset())
    a.topic_names, a.must_say_all = frozenset({"t"}), True
    here.settle([a])
    assert a.owned == T("t", 0, 1, 2, 3)


def test_a_member_that_unsubscribes_gives_up_before_there_is_a_target() -> None:
    here = World(FakeTopics({"t": 1, "u": 1}), ConsumerGroupConfig(assignment_interval_ms=60_000))
    a = client("a", "t", "u")
    here.settle([a])
    a.topic_names, a.must_say_all = frozenset({"t"}), True
    assert here.beat(a).assigned == T("t", 0)
    assert here.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    here = world(t=2, u=2)
    members = [client(name, "t", "u", server_assignor="range") for name in "ab"]
    here.settle([*members, client("c", "t", "u")][:2])
    assert members[0].owned == T("t", 0) | T("u", 0)
    assert here.group.preferred_assignor("uniform") == "range"


# Regular expressions.


def pattern_client(member_id: str, regex: str, *topics: str) -> Client:
    return Client(member_id, frozenset(topics), regex)


def test_an_expression_is_matched_as_a_whole_and_beside_names() -> None:
    here = world(t=1, t2=1, other=1, xt=1)
    a = pattern_client("a", "t.*", "other")
    here.settle([a])
    assert a.owned == T("t", 0) | T("t2", 0) | T("other", 0)
    assert here.group.regexes["t.*"].topics == {"t", "t2"}


@pytest.mark.parametrize("regex", ["(", "a{2000}", "(?=x)", "x" * 20_000, "(a)\\1"])
def test_an_expression_that_is_not_one_is_refused(regex: str) -> None:
    here = world()
    assert code(here, pattern_client("a", regex)) is ErrorCode.invalid_regular_expression
    assert not here.log


def test_new_topics_are_matched_but_not_too_often() -> None:
    here = world(t=1)
    a = pattern_client("a", "t.*")
    here.settle([a])
    here.topics = here.topics.with_counts(t2=1)
    here.settle([a])
    assert a.owned == T("t", 0) | T("t2", 0)
    refreshed_ms = here.now_ms
    here.topics = here.topics.with_counts(t3=1)
    here.beat(a)
    assert here.group.regexes["t.*"].topics == {"t", "t2"}
    while here.group.regexes["t.*"].topics == {"t", "t2"}:
        here.pass_time(1_000)
        here.beat(a)
    assert here.now_ms - refreshed_ms <= GROUP_REGEX_REFRESH_MS_MIN
    here.settle([a])
    assert a.owned >= T("t3", 0)


def test_an_expression_matches_no_topic_that_its_member_may_not_describe() -> None:
    here, a = world(t=1, hidden=1), pattern_client("a", ".*")
    assert not isinstance(here.send(replace(a.beat(), may_describe="t".__eq__)), Refusal)
    assert here.group.regexes[".*"].topics == {"t"}


def test_only_expressions_without_a_member_get_a_tombstone() -> None:
    here = world(t=1, u=1)
    a, b = pattern_client("a", "t"), pattern_client("b", "t.*")
    here.settle([a, b])
    b.topic_regex, b.must_say_all = "u", True
    before = len(here.log)
    here.settle([a, b])
    written = here.log[before:]
    assert records.no_regular_expression(GROUP_ID, "t.*") in written
    assert records.no_regular_expression(GROUP_ID, "t") not in written


def test_an_expression_is_forgotten_with_its_last_member() -> None:
    here = world(t=1, u=1)
    a, b = pattern_client("a", "t"), pattern_client("b", "t")
    here.settle([a, b])
    b.topic_regex, b.must_say_all = "u", True
    here.settle([a, b])
    assert here.group.regexes.keys() == {"t", "u"}
    here.leave(a)
    assert here.group.regexes.keys() == {"u"}
    b.topic_regex, b.topic_names, b.must_say_all = "", frozenset({"t"}), True
    here.settle([b])
    assert here.group.regexes == {}
    assert b.owned == T("t", 0)


# Static members.


def test_a_static_member_comes_back_to_its_partitions() -> None:
    here = world()
    a, b = client("a1", instance_id="a"), client("b1", instance_id="b")
    here.settle([a, b])
    mine, epoch = a.owned, here.group.group_epoch
    here.leave(a, for_now=True)
    assert here.group.members["a1"].member_epoch == -2
    again = client("a2", instance_id="a")
    result = here.beat(again)
    assert (result.error, result.assigned) == (ErrorCode.none, mine)
    here.settle([again, b])
    assert (here.group.group_epoch, again.owned) == (epoch, mine)
    assert set(here.group.members) == {"a2", "b1"}


def test_an_instance_id_in_use_is_not_given_to_another_member() -> None:
    here, a = world(), client("a1", instance_id="a")
    here.settle([a])
    assert code(here, client("a2", instance_id="a")) is ErrorCode.unreleased_instance_id
    stranger = client("a2", instance_id="a")
    stranger.epoch = 1
    assert code(here, stranger) is ErrorCode.fenced_instance_id


def test_a_static_member_that_was_fenced_joins_again_under_its_own_id() -> None:
    here, a = world(), client("a1", instance_id="a")
    here.settle([a])
    a.abandon()
    assert here.beat(a).assigned == T("t", 0, 1, 2, 3)
    here.leave(a, for_now=True)
    assert here.beat(a).assigned == T("t", 0, 1, 2, 3)
    assert a.epoch == here.group.assignment_epoch


def test_a_static_member_that_does_not_come_back_is_taken_out() -> None:
    here = world()
    a, b = client("a1", instance_id="a"), client("b1")
    here.settle([a, b])
    here.leave(a, for_now=True)
    for _ in range(9):
        here.beat(b)
        b.follow()
        here.pass_time(5_000)
    here.settle([b])
    assert b.owned == T("t", 0, 1, 2, 3)


# Restarts.


def test_a_restart_in_the_middle_of_a_rebalance_loses_nothing() -> None:
    here, a, b = world(), client("a"), client("b")
    here.settle([a])
    here.beat(b)
    here.beat(a)
    here.restart()
    assert here.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert here.group.members["a"].pending_revocation.keys() == T("t", 2, 3)
    a.follow()
    here.beat(a)
    here.restart()
    here.beat(b)
    here.settle([a, b])
    assert (a.owned, b.owned) == (T("t", 0, 1), T("t", 2, 3))


def test_a_record_of_an_old_broker_is_deleted_with_the_next_epoch() -> None:
    here, a = world(), client("a")
    here.group.has_partition_metadata = True
    here.beat(a)
    assert records.no_partition_metadata(here.group.group_id) in here.log
    assert not here.group.has_partition_metadata

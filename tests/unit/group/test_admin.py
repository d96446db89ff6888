from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat
from oncelog.group.replies import DeleteReply, DescribeReply, ListReply
from tests.unit.group.consumer.world import FakeTopics
from tests.unit.group.context import T1, Context, subscription


def described(c: Context, group_id: str = "g", version: int = 6) -> DescribeReply:
    result = c.replies[c.submit(e.DescribeGroup(group_id, version))]
    assert isinstance(result, DescribeReply)
    return result


def listed(c: Context, *states: str, types: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    result = c.replies[c.submit(e.ListGroups(states, types))]
    assert isinstance(result, ListReply)
    return [(g.group_id, g.protocol_type, g.state) for g in result.groups]


def deleted(c: Context, group_id: str = "g") -> ErrorCode:
    result = c.replies[c.submit(e.DeleteGroup(group_id))]
    assert isinstance(result, DeleteReply)
    return result.error


def test_a_stable_group_is_described_with_its_members_metadata() -> None:
    c = Context()
    member = c.stable()[0]
    result = described(c)
    assert (result.state, result.protocol_type, result.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert result.members[0].member_id == member
    assert result.members[0].metadata == subscription("t")
    assert result.members[0].assignment == b"a-" + member.encode()


def test_a_rebalancing_group_is_described_without_metadata() -> None:
    c = Context()
    c.new_member()
    result = described(c)
    assert (result.state, result.protocol_data) == ("PreparingRebalance", "")
    assert result.members[0].metadata == b""


def test_an_unknown_group_is_dead_and_named_as_unknown_from_version_6_on() -> None:
    c = Context()
    assert (described(c).error, described(c).state) == (ErrorCode.group_id_not_found, "Dead")
    old = described(c, version=5)
    assert (old.error, old.state) == (ErrorCode.none, "Dead")


def test_groups_are_listed_by_state_and_type() -> None:
    c = Context()
    c.stable()
    c.commit(1, group_id="simple")
    assert listed(c) == [("g", "consumer", "Stable"), ("simple", "", "Empty")]
    assert listed(c, " stable ") == [("g", "consumer", "Stable")]
    assert listed(c, "Dead") == []
    assert len(listed(c, types=("Classic",))) == 2
    assert listed(c, types=("consumer",)) == []


def test_groups_of_the_new_protocol_are_listed_by_state_and_type() -> None:
    c = Context(GroupConfig(), topics=FakeTopics({"t": 1}))
    names = frozenset({"t"})
    c.submit(Beat("new", "m", 0, rebalance_timeout_ms=1, topic_names=names, owned=frozenset()))
    c.commit(1, group_id="simple")
    line = ("new", "consumer", c.shard.store.consumer_groups["new"].state.value)
    assert listed(c) == [("simple", "", "Empty"), line]
    assert listed(c, line[2].upper()) == [line]
    assert listed(c, "Dead") == []
    assert listed(c, types=("Consumer",)) == [line]
    assert listed(c, line[2], types=("classic",)) == []


def test_a_deleted_group_takes_all_its_offsets_with_it() -> None:
    c = Context()
    c.commit(1)
    c.txn_commit(2, partition=T1)
    assert deleted(c) is ErrorCode.none
    assert deleted(c) is ErrorCode.group_id_not_found
    c.marker(7, True)
    assert c.fetch_all() == []
    c.restart()
    assert c.fetch_all() == []
    assert c.shard.store.groups == {}


def test_a_group_with_members_is_not_deleted() -> None:
    c = Context()
    member = c.stable()[0]
    assert deleted(c) is ErrorCode.non_empty_group
    c.leave(member)
    assert deleted(c) is ErrorCode.none
    assert c.shard.store.recorded == set()


def test_a_commit_in_flight_does_not_outlive_its_group() -> None:
    c = Context()
    c.commit(1)
    c.hold = True
    c.submit(c.commit_event(2, partition=T1))
    token = c.submit(e.DeleteGroup("g"))
    joining = c.join(version=3)
    assert not {token, joining} & set(c.replies)
    c.hold = False
    c.commit_all()
    assert c.fetch_all() == []
    c.advance(3_000)
    assert c.joined(joining).generation_id == 1


def test_a_deletion_that_fails_leaves_the_group_as_it_was() -> None:
    c = Context()
    c.commit(1)
    c.hold = True
    token = c.submit(e.DeleteGroup("g"))
    c.fail(ErrorCode.message_too_large)
    c.hold = False
    result = c.replies[token]
    assert isinstance(result, DeleteReply)
    assert result.error is ErrorCode.unknown_server_error
    assert c.fetch().offset == 1
    assert deleted(c) is ErrorCode.none

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.group.consumer.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec
from oncelog.group.consumer.members import Partitions, TopicIdPartition
from tests.unit.group.consumer.world import partitions, topic_id

T = partitions


def spec(
    counts: Mapping[str, int],
    members: Mapping[str, str],
    before: Mapping[str, Partitions] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    """A group of members with topics of one letter each."""
    return GroupSpec(
        {
            member_id: MemberSpec(
                (instances or {}).get(member_id),
                frozenset(topic_id(name) for name in topics),
                (before or {}).get(member_id, frozenset()),
            )
            for member_id, topics in members.items()
        },
        {topic_id(name): count for name, count in counts.items()},
    )


def moved(before: Mapping[str, Partitions], after: Assignment) -> int:
    """How many partitions have another owner than before."""
    return sum(len(mine - after.get(member_id, frozenset())) for member_id, mine in before.items())


def test_ranges_are_neighbours_and_the_first_members_have_one_more() -> None:
    found = ASSIGNORS["range"](spec({"t": 7, "u": 7}, {"a": "tu", "b": "tu", "c": "tu"}))
    assert found == {
        "a": T("t", 0, 1, 2) | T("u", 0, 1, 2),
        "b": T("t", 3, 4) | T("u", 3, 4),
        "c": T("t", 5, 6) | T("u", 5, 6),
    }


def test_ranges_go_to_the_subscribers_of_each_topic() -> None:
    found = ASSIGNORS["range"](spec({"t": 3, "u": 2}, {"a": "t", "b": "tu", "c": ""}))
    assert found == {"a": T("t", 0, 1), "b": T("t", 2) | T("u", 0, 1), "c": frozenset()}


def test_static_members_have_the_first_ranges_in_the_order_of_their_instances() -> None:
    group = spec({"t": 4}, {"a": "t", "z": "t", "y": "t"}, instances={"z": "1", "y": "2"})
    found = ASSIGNORS["range"](group)
    assert found == {"z": T("t", 0, 1), "y": T("t", 2), "a": T("t", 3)}


def test_uniform_deals_equal_numbers() -> None:
    found = ASSIGNORS["uniform"](spec({"t": 5, "u": 3}, {"a": "tu", "b": "tu", "c": "tu"}))
    assert sorted(map(len, found.values())) == [2, 3, 3]


def test_uniform_moves_one_partition_to_a_member_that_joins() -> None:
    before = {"a": T("t", 0, 1), "b": T("t", 2, 3)}
    after = ASSIGNORS["uniform"](spec({"t": 4}, {"a": "t", "b": "t", "c": "t"}, before))
    assert moved(before, after) == 1
    assert len(after["c"]) == 1


def test_uniform_keeps_the_extra_partitions_where_they_are() -> None:
    before = {"a": T("t", 0), "b": T("t", 1, 2), "c": T("t", 3, 4)}
    after = ASSIGNORS["uniform"](spec({"t": 5}, {"a": "t", "b": "t", "c": "t"}, before))
    assert after == before


def test_uniform_hands_what_a_member_left_to_the_others() -> None:
    before = {"a": T("t", 0, 3), "b": T("t", 1, 4)}
    after = ASSIGNORS["uniform"](spec({"t": 6}, {"a": "t", "b": "t"}, before))
    assert moved(before, after) == 0
    assert [len(mine) for mine in after.values()] == [3, 3]


def test_uniform_balances_over_different_subscriptions() -> None:
    members = {"a": "t", "b": "tu", "c": "u"}
    found = ASSIGNORS["uniform"](spec({"t": 6, "u": 6}, members))
    assert [len(found[member_id]) for member_id in "abc"] == [4, 4, 4]
    assert ASSIGNORS["uniform"](spec({"t": 6, "u": 6}, members, found)) == found


def test_uniform_balances_a_topic_again_after_another_one_was() -> None:
    before = {"a": frozenset[TopicIdPartition](), "b": T("t", 1), "c": T("u", 0)}
    members = {"a": "u", "b": "t", "c": "tu"}
    found = ASSIGNORS["uniform"](spec({"t": 4, "u": 1}, members, before))
    assert [len(found[member_id]) for member_id in "abc"] == [1, 2, 2]


def test_uniform_takes_partitions_of_what_is_no_longer_wanted() -> None:
    before = {"a": T("t", 0, 1, 2, 3), "b": T("u", 0)}
    after = ASSIGNORS["uniform"](spec({"t": 4, "u": 1}, {"a": "t", "b": "tu"}, before))
    assert after["b"] >= T("u", 0)
    assert [len(after["a"]), len(after["b"])] == [3, 2]


def test_partitions_and_topics_that_are_gone_are_not_assigned() -> None:
    before = {"a": T("t", 0, 7) | T("v", 0), "b": T("t", 1)}
    for members in ({"a": "t", "b": "t"}, {"a": "t", "b": "tu"}):
        after = ASSIGNORS["uniform"](spec({"t": 2, "u": 0}, members, before))
        assert after == {"a": T("t", 0), "b": T("t", 1)}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_without_members_or_topics_has_an_empty_assignment(name: str) -> None:
    assert ASSIGNORS[name](spec({}, {})) == {}
    assert ASSIGNORS[name](spec({}, {"a": "", "b": ""})) == {"a": frozenset(), "b": frozenset()}


MEMBERS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.sets(st.sampled_from("tuvw")).map("".join), max_size=8
)
COUNTS = st.fixed_dictionaries({name: st.integers(0, 9) for name in "tuvw"})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=COUNTS, first=MEMBERS, second=MEMBERS)
def test_every_wanted_partition_has_one_owner_who_wants_it(
    name: str, counts: dict[str, int], first: dict[str, str], second: dict[str, str]
) -> None:
    before: Assignment = {}
    for members in (first, second):
        group = spec(counts, members, before)
        after = ASSIGNORS[name](group)
        assert after.keys() == group.members.keys()
        assigned = [each for mine in after.values() for each in mine]
        assert len(assigned) == len(set(assigned))
        wanted: frozenset[UUID] = frozenset().union(*(m.topic_ids for m in group.members.values()))
        assert len(assigned) == sum(group.partition_counts[each] for each in wanted)
        for member_id, mine in after.items():
            assert {each.topic_id for each in mine} <= group.members[member_id].topic_ids
        before = after


@given(counts=COUNTS, names=st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_uniform_is_balanced_and_stable_where_all_want_the_same(
    counts: dict[str, int], names: set[str]
) -> None:
    members = dict.fromkeys(names, "tuvw")
    after = ASSIGNORS["uniform"](spec(counts, members))
    sizes = [len(mine) for mine in after.values()]
    assert max(sizes) - min(sizes) <= 1
    assert ASSIGNORS["uniform"](spec(counts, members, after)) == after
    fewer = dict(list(members.items())[1:])
    if fewer:
        kept = {member_id: after[member_id] for member_id in fewer}
        assert moved(kept, ASSIGNORS["uniform"](spec(counts, fewer, kept))) == 0

"""The assignors of classic groups: what each promises, and Kafka's own examples of them."""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.machines.assignors import ASSIGNORS, Assigned, SubscribedMember
from oncelog.core.ids import TopicPartition
from oncelog.protocol.consumer_protocol import MemberSubscription

T = TopicPartition


def member(
    name: str, *topics: str, owned: Sequence[T] = (), generation: int = 0
) -> SubscribedMember:
    return SubscribedMember(
        name, MemberSubscription(topics, tuple(owned), generation if owned else -1)
    )


def assign(name: str, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
    return ASSIGNORS[name].assign(members, counts)


def parts(topic: str, *indexes: int) -> list[T]:
    return [T(topic, index) for index in indexes]


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    shares = assign("range", [member("b", "t", "u"), member("a", "t", "u")], {"t": 3, "u": 3})
    assert shares == {
        "a": parts("t", 0, 1) + parts("u", 0, 1),
        "b": parts("t", 2) + parts("u", 2),
    }


def test_round_robin_goes_on_with_the_next_member_in_the_next_topic() -> None:
    shares = assign("roundrobin", [member("a", "t", "u"), member("b", "t", "u")], {"t": 3, "u": 3})
    assert shares == {
        "a": parts("t", 0, 2) + parts("u", 1),
        "b": parts("t", 1) + parts("u", 0, 2),
    }


def test_round_robin_passes_over_members_that_do_not_read_the_topic() -> None:
    members = [member("a", "t"), member("b", "t", "u"), member("c", "t", "u", "v")]
    shares = assign("roundrobin", members, {"t": 1, "u": 2, "v": 3})
    assert shares == {
        "a": parts("t", 0),
        "b": parts("u", 0),
        "c": parts("u", 1) + parts("v", 0, 1, 2),
    }


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_keep_their_places_under_new_member_ids(name: str) -> None:
    def restarted(*ids: str) -> Assigned:
        named = zip(ids, ("one", "two"), strict=True)
        members = [
            SubscribedMember(i, MemberSubscription(("t",)), instance) for i, instance in named
        ]
        return assign(name, members, {"t": 4})

    before, after = restarted("x", "y"), restarted("z", "y")
    assert after["z"] == before["x"]
    assert after["y"] == before["y"]


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    for name in ASSIGNORS:
        assert assign(name, [member("a", "gone")], {}) == {"a": []}


def test_sticky_moves_only_what_a_new_member_has_to_get() -> None:
    old = [member("a", "t", owned=parts("t", 0, 1, 2)), member("b", "t", owned=parts("t", 3, 4, 5))]
    told = [with_user_data(each) for each in old]
    shares = assign("sticky", [*told, member("c", "t")], {"t": 6})
    assert {name: len(share) for name, share in shares.items()} == {"a": 2, "b": 2, "c": 2}
    assert set(shares["a"]) < set(parts("t", 0, 1, 2))
    assert set(shares["b"]) < set(parts("t", 3, 4, 5))


def test_sticky_moves_no_more_than_equal_shares_need() -> None:
    """Of 6 and 5 partitions each member may keep 4: 3 move, not 4."""
    old = [
        member("a", "t", owned=parts("t", *range(6))),
        member("b", "t", owned=parts("t", *range(6, 11))),
    ]
    told = [with_user_data(each) for each in old]
    shares = assign("sticky", [*told, member("c", "t")], {"t": 11})
    kept = [len(set(shares[each.member_id]) & set(each.subscription.owned)) for each in old]
    assert kept == [4, 4]


def with_user_data(each: SubscribedMember) -> SubscribedMember:
    """An eager member: it tells what it owned in bytes, and owns nothing."""
    data = ASSIGNORS["sticky"].user_data(each.subscription.owned, 3)
    return SubscribedMember(
        each.member_id, MemberSubscription(each.subscription.topics, user_data=data)
    )


def test_sticky_members_send_the_layout_of_kafkas_assignor() -> None:
    data = ASSIGNORS["sticky"].user_data(parts("t", 1, 0), 7)
    topic = b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1"
    assert data == b"\0\0\0\1" + topic + b"\0\0\0\7"
    assert ASSIGNORS["sticky"].user_data((), 7) is None


def test_a_former_assignment_in_the_first_layout_counts_too() -> None:
    """Members before Kafka 2.3 tell no generation."""
    data = ASSIGNORS["sticky"].user_data(parts("t", 0), 7) or b""
    old = SubscribedMember("b", MemberSubscription(("t",), user_data=data[:-4]))
    assert assign("sticky", [member("a", "t"), old], {"t": 2})["b"] == parts("t", 0)


def test_bytes_that_are_no_former_assignment_do_no_harm() -> None:
    broken = SubscribedMember("a", MemberSubscription(("t",), user_data=b"\x7f\xff\xff\xff"))
    assert assign("sticky", [broken], {"t": 2}) == {"a": parts("t", 0, 1)}


def test_cooperative_sticky_gives_nobody_what_another_still_owns() -> None:
    members = [member("a", "t", owned=parts("t", 0, 1, 2, 3)), member("b", "t")]
    first = assign("cooperative-sticky", members, {"t": 4})
    assert len(first["a"]) == 2
    assert first["b"] == []
    members = [member("a", "t", owned=first["a"], generation=1), member("b", "t")]
    second = assign("cooperative-sticky", members, {"t": 4})
    assert second["a"] == first["a"]
    assert sorted(second["a"] + second["b"]) == parts("t", 0, 1, 2, 3)


def test_of_two_claims_the_later_generation_wins() -> None:
    members = [
        member("a", "t", owned=parts("t", 0), generation=4),
        member("b", "t", owned=parts("t", 0, 1), generation=5),
    ]
    shares = assign("cooperative-sticky", members, {"t": 2})
    assert T("t", 0) not in shares["a"]


def test_two_claims_of_one_generation_are_both_distrusted() -> None:
    members = [
        member("a", "t", owned=parts("t", 0), generation=4),
        member("b", "t", owned=parts("t", 0), generation=4),
    ]
    shares = assign("cooperative-sticky", members, {"t": 1})
    # Whoever claims it has to give it up first: the last claim counts as its owner.
    assert sum(map(len, shares.values())) <= 1


def test_a_member_of_an_older_version_tells_its_generation_in_user_data() -> None:
    old = SubscribedMember(
        "b", MemberSubscription(("t",), tuple(parts("t", 0)), -1, None, b"\0\0\0\5")
    )
    shares = assign(
        "cooperative-sticky", [member("a", "t", owned=parts("t", 0), generation=4), old], {"t": 1}
    )
    assert shares == {"a": [], "b": parts("t", 0)}


# --- what holds for all ------------------------------------------------------------------


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[SubscribedMember], dict[str, int]]:
    """Members with subscriptions of their own, some owning something."""
    counts = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 7), min_size=1))
    topics = st.sets(st.sampled_from(sorted(counts)), min_size=1)
    members = []
    for number in range(draw(st.integers(1, 6))):
        subscribed = draw(topics)
        everything = [T(topic, i) for topic in sorted(subscribed) for i in range(counts[topic])]
        owned = draw(st.lists(st.sampled_from(everything), unique=True, max_size=5))
        generation = draw(st.integers(1, 3))
        members.append(
            member(f"m{number}", *sorted(subscribed), owned=owned, generation=generation)
        )
    return members, counts


def read_by(members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> list[T]:
    topics = {topic for each in members for topic in each.subscription.topics}
    return [
        T(topic, i) for topic in sorted(topics) if topic in counts for i in range(counts[topic])
    ]


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(groups())
def test_each_partition_has_one_reader_of_its_topic(
    name: str, group: tuple[list[SubscribedMember], dict[str, int]]
) -> None:
    members, counts = group
    shares = assign(name, members, counts)
    topics = {each.member_id: each.subscription.topics for each in members}
    assert sorted(chain.from_iterable(shares.values())) == read_by(members, counts)
    assert all(at.topic in topics[owner] for owner, share in shares.items() for at in share)


@given(groups())
def test_sticky_shares_are_as_even_as_subscriptions_allow(
    group: tuple[list[SubscribedMember], dict[str, int]],
) -> None:
    members, counts = group
    shares = assign("sticky", [with_user_data(each) for each in members], counts)
    topics = {each.member_id: each.subscription.topics for each in members}
    for giver, share in shares.items():
        for at in share:
            takers = [each for each in shares if at.topic in topics[each] and each != giver]
            assert all(len(share) - len(shares[taker]) <= 1 for taker in takers)


@given(groups())
def test_what_is_balanced_stays_as_it_is(
    group: tuple[list[SubscribedMember], dict[str, int]],
) -> None:
    members, counts = group
    first = assign("sticky", members, counts)
    again = [
        member(each.member_id, *each.subscription.topics, owned=first[each.member_id], generation=9)
        for each in members
    ]
    assert assign("sticky", [with_user_data(each) for each in again], counts) == first
    assert assign("cooperative-sticky", again, counts) == first


@given(groups())
def test_cooperative_rebalances_end_with_every_partition_given(
    group: tuple[list[SubscribedMember], dict[str, int]],
) -> None:
    members, counts = group
    owners: dict[T, str] = {}
    for round_number in range(4):
        shares = assign("cooperative-sticky", members, counts)
        claimed = {at: each.member_id for each in members for at in each.subscription.owned}
        given_now = {at: owner for owner, share in shares.items() for at in share}
        assert len(given_now) == sum(map(len, shares.values()))
        if round_number:
            # After the first round nobody claims what another does, so claims are ownership.
            assert all(owner == claimed.get(at, owner) for at, owner in given_now.items())
        owners = given_now
        members = [
            member(
                each.member_id,
                *each.subscription.topics,
                owned=shares[each.member_id],
                generation=10 + round_number,
            )
            for each in members
        ]
    assert sorted(owners) == read_by(members, counts)

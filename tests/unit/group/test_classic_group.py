import pytest

from oncelog.core.errors import InvariantViolation
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember
from oncelog.group.events import JoinProtocol
from oncelog.group.states import MOVES, GroupState, may_rebalance
from oncelog.group.subscription import subscribed_topics
from tests.unit.group.context import subscription


def member(
    member_id: str, instance: str | None = None, metadata: bytes = b""
) -> ClassicGroupMember:
    protocols = (JoinProtocol("range", metadata),)
    return ClassicGroupMember(member_id, instance, "c", "/h", 10_000, 60_000, protocols)


def test_moves_that_the_table_does_not_list_are_our_bug() -> None:
    for before in GroupState:
        for after in GroupState:
            group = ClassicGroup("g", state=before)
            if after in MOVES[before]:
                group.move(after, 5)
                assert (group.state, group.previous_state) == (after, before)
            else:
                with pytest.raises(InvariantViolation):
                    group.move(after, 5)
    assert not may_rebalance(GroupState.PREPARING_REBALANCE)


def test_an_instance_id_names_one_member() -> None:
    group = ClassicGroup("g")
    group.add(member("a", "i"), "consumer")
    with pytest.raises(InvariantViolation):
        group.add(member("b", "i"), "consumer")
    group.pending_syncs.add("a")
    group.rename_static_member("a", "b")
    assert (group.pending_syncs, group.leader_id) == ({"b"}, "b")


def test_a_dynamic_member_is_not_renamed_and_an_empty_group_has_no_protocol() -> None:
    group = ClassicGroup("g")
    with pytest.raises(InvariantViolation):
        group.select_protocol()
    group.add(member("a"), "consumer")
    with pytest.raises(InvariantViolation):
        group.rename_static_member("a", "b")


def test_members_without_a_common_protocol_are_our_bug() -> None:
    group = ClassicGroup("g")
    group.add(member("a"), "consumer")
    other = member("b")
    other.protocols = (JoinProtocol("sticky", b""),)
    group.add(other, "consumer")
    with pytest.raises(InvariantViolation):
        group.select_protocol()


def test_metadata_of_a_protocol_that_a_member_does_not_offer_is_empty() -> None:
    assert member("a", metadata=b"x").metadata("sticky") == b""


def test_a_consumer_group_whose_subscription_is_not_known_might_read_any_topic() -> None:
    group = ClassicGroup("g")
    group.add(member("a", metadata=b"garbage"), "consumer")
    group.learn_subscription()
    assert group.is_subscribed_to("t")
    group.protocol_name = "range"
    group.learn_subscription()
    assert group.subscribed_topics is None
    group.members["a"].protocols = (JoinProtocol("range", subscription("t")),)
    group.learn_subscription()
    assert (group.is_subscribed_to("t"), group.is_subscribed_to("u")) == (True, False)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01",
        b"\x00\x00\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_bytes_that_are_no_subscription_are_not_taken_for_one(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_a_subscription_of_a_later_version_is_read_by_its_prefix() -> None:
    later = b"\x00\x03" + subscription("t", "u")[2:] + b"more"
    assert subscribed_topics(later) == frozenset({"t", "u"})

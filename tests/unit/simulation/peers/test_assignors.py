"""Assignments of groups, and the bytes that carry them."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.protocol.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.simulation.peers.assignors import ASSIGNORS, assign

T = [TopicPartition("t", index) for index in range(5)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_subscription_survives_its_bytes(version: int) -> None:
    whole = MemberSubscription(("t", "u"), (T[0], T[2], TopicPartition("u", 1)), 7)
    read = decode_subscription(encode_subscription(whole, version))
    expected = [
        MemberSubscription(whole.topics),
        MemberSubscription(whole.topics, whole.owned),
        whole,
    ]
    assert read == expected[version]


def test_an_assignment_survives_its_bytes() -> None:
    assert decode_assignment(encode_assignment(T)).partitions == tuple(T)
    assert decode_assignment(b"").partitions == ()
    with pytest.raises(ProtocolError):
        decode_assignment(b"\x00\x01\x00")


def test_range_gives_neighbours_and_round_robin_deals_out() -> None:
    members = {name: MemberSubscription(("t",)) for name in "ab"}
    assert assign("range", members, {"t": 5}) == {"a": tuple(T[:3]), "b": tuple(T[3:])}
    assert assign("roundrobin", members, {"t": 5}) == {"a": tuple(T[::2]), "b": tuple(T[1::2])}


def test_a_partition_moves_in_two_rebalances_under_the_cooperative_protocol() -> None:
    members = {"a": MemberSubscription(("t",), tuple(T[:4]), 3), "b": MemberSubscription(("t",))}
    first = assign("cooperative-sticky", members, {"t": 4})
    assert first == {"a": tuple(T[:2]), "b": ()}
    members["a"] = MemberSubscription(("t",), first["a"], 4)
    assert assign("cooperative-sticky", members, {"t": 4}) == {
        "a": tuple(T[:2]),
        "b": tuple(T[2:4]),
    }


def test_of_two_owners_the_later_generation_counts() -> None:
    members = {
        "a": MemberSubscription(("t",), (T[0],), 2),
        "b": MemberSubscription(("t",), (T[0],), 3),
    }
    assert assign("cooperative-sticky", members, {"t": 1}) == {"a": (), "b": (T[0],)}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_no_member_gets_a_topic_that_it_did_not_subscribe_to(assignor: str) -> None:
    members = {"a": MemberSubscription(("t",)), "b": MemberSubscription(("u",))}
    shares = assign(assignor, members, {"t": 2, "u": 2})
    assert {at.topic for at in shares["a"]} == {"t"}
    assert {at.topic for at in shares["b"]} == {"u"}

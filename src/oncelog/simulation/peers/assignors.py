"""Assigns partitions in a group of the classic protocol, for scripted members.

The three assignors behave as Kafka's of these names: "range" and "roundrobin" assign all partitions
at once; "cooperative-sticky" lets each member keep a fair part of what it owns, and assigns a
partition that has to move only after its owner has revoked it, which takes a second rebalance
(KIP-429). Pure.

`protocol.consumer_protocol` has the bytes of subscriptions and assignments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.protocol.consumer_protocol import MemberSubscription

__all__ = ["ASSIGNORS", "assign"]

ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky")

Partitions = tuple[TopicPartition, ...]


# --- assignors ---------------------------------------------------------------------------


def assign(
    assignor: str, members: Mapping[str, MemberSubscription], counts: Mapping[str, int]
) -> dict[str, Partitions]:
    """Return each member's partitions. `counts` are the partition counts of the topics."""
    if assignor == "range":
        shares = _range(members, counts)
    elif assignor == "roundrobin":
        shares = _round_robin(members, counts)
    else:
        shares = _cooperative(members, counts)
    return {member: tuple(sorted(share)) for member, share in shares.items()}


def _range(
    members: Mapping[str, MemberSubscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for topic in sorted(counts):
        readers = [member for member in sorted(members) if topic in members[member].topics]
        begin = 0
        for number, member in enumerate(readers):
            size = counts[topic] // len(readers) + (number < counts[topic] % len(readers))
            shares[member] += [TopicPartition(topic, i) for i in range(begin, begin + size)]
            begin += size
    return shares


def _round_robin(
    members: Mapping[str, MemberSubscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    order = sorted(members)
    turn = 0
    for at in _all(counts):
        for _ in order:
            member = order[turn % len(order)]
            turn += 1
            if at.topic in members[member].topics:
                shares[member].append(at)
                break
    return shares


def _cooperative(
    members: Mapping[str, MemberSubscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    owners = _owners(members)
    shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    partitions = _all(counts)
    fair = -(-len(partitions) // max(1, len(members)))
    homeless = []
    for at in partitions:
        owner = owners.get(at)
        if owner is not None and at.topic in members[owner].topics and len(shares[owner]) < fair:
            shares[owner].append(at)
        else:
            homeless.append(at)
    for at in homeless:
        readers = [member for member in sorted(members) if at.topic in members[member].topics]
        if not readers:
            continue
        taker = min(readers, key=lambda member: len(shares[member]))
        shares[taker].append(at)
    # A partition is not assigned before its former owner has revoked it.
    for member, share in shares.items():
        shares[member] = [at for at in share if owners.get(at, member) == member]
    return shares


def _owners(members: Mapping[str, MemberSubscription]) -> dict[TopicPartition, str]:
    """Return the owner of each partition; of two claims the later generation's is valid."""
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda member: (members[member].generation, member)):
        for at in members[member].owned:
            owners[at] = member
    return owners


def _all(counts: Mapping[str, int]) -> Sequence[TopicPartition]:
    return [TopicPartition(topic, i) for topic in sorted(counts) for i in range(counts[topic])]

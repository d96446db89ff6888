"""Assigns partitions in a group of the classic protocol: subscriptions and assignors.

The three assignors behave as Kafka's of these names: "range" and "roundrobin" assign all partitions
at once; "cooperative-sticky" lets each member keep a fair part of what it owns, and assigns a
partition that has to move only after its owner has revoked it, which takes a second rebalance
(KIP-429). Pure.

Layouts: `ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.integers import integers

__all__ = [
    "ASSIGNORS",
    "PeerSubscription",
    "assign",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky")

_INT16: Final = integers(">h")
_INT32: Final = integers(">i")

Partitions = tuple[TopicPartition, ...]


class PeerSubscription(NamedTuple):
    """A member's subscription, which the group's leader receives.

    `generation` is the generation in which it owned `owned`.
    """

    topics: tuple[str, ...]
    owned: Partitions = ()
    generation: int = -1


# --- bytes -------------------------------------------------------------------------------


def encode_subscription(subscription: PeerSubscription, version: int) -> bytes:
    """Encode it in version 0, 1 (with owned partitions) or 2 (with the generation)."""
    out = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    out += [_string(topic) for topic in subscription.topics]
    out.append(_INT32.pack(-1))
    if version >= 1:
        out.append(_topics(subscription.owned))
    if version >= 2:
        out.append(_INT32.pack(subscription.generation))
    return b"".join(out)


def decode_subscription(data: bytes) -> PeerSubscription:
    """Decode a subscription. Raises `ProtocolError`."""
    try:
        reader = _Reader(data)
        version = reader.int16()
        topics = tuple(reader.string() for _ in range(reader.int32()))
        reader.skip_bytes()
        owned = reader.topics() if version >= 1 else ()
        generation = reader.int32() if version >= 2 else -1
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(ErrorCode.invalid_request, f"subscription: {error}") from error
    return PeerSubscription(topics, owned, generation)


def encode_assignment(partitions: Iterable[TopicPartition], version: int = 1) -> bytes:
    """Encode one member's assignment."""
    return _INT16.pack(version) + _topics(partitions) + _INT32.pack(-1)


def decode_assignment(data: bytes) -> Partitions:
    """Decode an assignment; empty bytes are no partitions. Raises `ProtocolError`."""
    if not data:
        return ()
    try:
        reader = _Reader(data)
        reader.int16()
        return reader.topics()
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(ErrorCode.invalid_request, f"assignment: {error}") from error


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _topics(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    out = [_INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        out.append(_string(topic) + _INT32.pack(len(indexes)))
        out += [_INT32.pack(index) for index in indexes]
    return b"".join(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._position = 0

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self._data, self._position)[0]
        self._position += 2
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self._data, self._position)[0]
        self._position += 4
        return value

    def string(self) -> str:
        size = self.int16()
        raw = self._data[self._position : self._position + size]
        self._position += size
        return raw.decode()

    def skip_bytes(self) -> None:
        size = self.int32()
        self._position += max(0, size)

    def topics(self) -> Partitions:
        found = []
        for _ in range(self.int32()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.int32())]
        return tuple(found)


# --- assignors ---------------------------------------------------------------------------


def assign(
    assignor: str, members: Mapping[str, PeerSubscription], counts: Mapping[str, int]
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
    members: Mapping[str, PeerSubscription], counts: Mapping[str, int]
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
    members: Mapping[str, PeerSubscription], counts: Mapping[str, int]
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
    members: Mapping[str, PeerSubscription], counts: Mapping[str, int]
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


def _owners(members: Mapping[str, PeerSubscription]) -> dict[TopicPartition, str]:
    """Return the owner of each partition; of two claims the later generation's is valid."""
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda member: (members[member].generation, member)):
        for at in members[member].owned:
            owners[at] = member
    return owners


def _all(counts: Mapping[str, int]) -> Sequence[TopicPartition]:
    return [TopicPartition(topic, i) for topic in sorted(counts) for i in range(counts[topic])]

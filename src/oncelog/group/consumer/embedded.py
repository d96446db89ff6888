"""Encodes the subscriptions and assignments that classic-protocol consumers exchange.

From Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`, versions 0
to 3. A newer version is read as 3, which is its prefix.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from oncelog.coordinator.metadata import Topics
from oncelog.core.errors import ProtocolError
from oncelog.group.consumer.members import Partitions, TopicIdPartition
from oncelog.protocol.codec import reader, writer
from oncelog.protocol.fields import Bytes, Int32, String, Versions
from oncelog.protocol.wire import INT16

_VERSION_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPartitions:
    """Partitions of a topic, by its name."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics that a member subscribes to, and the partitions it owns."""

    topics: tuple[String, ...] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[NamedPartitions, ...], Versions(1)] = ()
    generation_id: Annotated[Int32, Versions(2)] = -1
    rack_id: Annotated[String | None, Versions(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicAssignment:
    """The partitions that a member is assigned."""

    assigned_partitions: tuple[NamedPartitions, ...] = ()
    user_data: Bytes | None = None


def _version(raw: bytes) -> int:
    version = int.from_bytes(raw[:2], signed=True) if len(raw) >= 2 else -1
    return min(version, _VERSION_MAX)


def read_subscription(raw: bytes) -> Subscription | None:
    """Decode a subscription; None for invalid bytes."""
    version = _version(raw)
    if version < 0:
        return None
    try:
        found: Subscription = reader(Subscription, version, flexible=False)(raw, 2)
    except ProtocolError:
        return None
    return found


def read_assignment(raw: bytes) -> ClassicAssignment | None:
    """Decode an assignment; None for invalid bytes. Empty bytes are an empty assignment."""
    if not raw:
        return ClassicAssignment()
    if _version(raw) < 0:
        return None
    try:
        found: ClassicAssignment = reader(ClassicAssignment, 0, flexible=False)(raw, 2)
    except ProtocolError:
        return None
    return found


def write_assignment(partitions: Partitions, topics: Topics, subscription: bytes) -> bytes:
    """Encode an assignment in the version of the member's subscription, without deleted topics."""
    named: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topic = topics.find_id(topic_id)
        if topic is not None:
            named.setdefault(topic.name, []).append(number)
    value = ClassicAssignment(
        assigned_partitions=tuple(
            NamedPartitions(topic=name, partitions=tuple(numbers))
            for name, numbers in named.items()
        )
    )
    out = bytearray(INT16.pack(max(_version(subscription), 0)))
    writer(ClassicAssignment, 0, flexible=False)(out, value)
    return bytes(out)


def identified(named: tuple[NamedPartitions, ...], topics: Topics) -> Partitions:
    """Return partitions by the current ids of their topics."""
    found = ((topics.find(each.topic), each.partitions) for each in named)
    return frozenset(
        TopicIdPartition(topic.topic_id, number)
        for topic, numbers in found
        if topic is not None
        for number in numbers
    )

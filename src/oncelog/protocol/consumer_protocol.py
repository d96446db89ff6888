"""What consumers of a classic group tell each other: subscriptions and assignments.

The coordinator carries both as bytes that it does not read (KIP-429, KIP-792, KIP-881). From
Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`, versions 0 to 3,
none of them flexible. A version is an int16 in front; what a later version adds comes last, so a
later one than ours is read as version 3.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.values import message
from oncelog.protocol.codec import reader, writer
from oncelog.protocol.fields import Bytes, Int32, String, Versions
from oncelog.protocol.wire import INT16, Buffer

__all__ = [
    "NO_GENERATION",
    "ConsumerProtocolPartitions",
    "DecodedAssignment",
    "MemberSubscription",
    "by_topic",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "flat",
]

VERSION_MAX: Final = 3
NO_GENERATION: Final = -1


class MemberSubscription(NamedTuple):
    """A member's subscription, which the group's leader receives.

    `generation` is the generation in which the member owned `owned`; both matter to sticky
    assignors. A rack of None is not known.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None
    user_data: bytes | None = None


class DecodedAssignment(NamedTuple):
    """What the leader gives one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@message
class ConsumerProtocolPartitions:
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class ConsumerProtocolSubscription:
    """A subscription on the wire."""

    topics: tuple[String, ...] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[ConsumerProtocolPartitions, ...], Versions(1)] = ()
    generation_id: Annotated[Int32, Versions(2)] = NO_GENERATION
    rack_id: Annotated[String | None, Versions(3)] = None


@message
class ConsumerProtocolAssignment:
    """An assignment on the wire."""

    assigned_partitions: tuple[ConsumerProtocolPartitions, ...] = ()
    user_data: Bytes | None = None


def encode_subscription(subscription: MemberSubscription, version: int = VERSION_MAX) -> bytes:
    """Encode a subscription in a version, which may not carry all of it."""
    return _encode(
        ConsumerProtocolSubscription(
            topics=subscription.topics,
            user_data=subscription.user_data,
            owned_partitions=by_topic(subscription.owned),
            generation_id=subscription.generation,
            rack_id=subscription.rack_id,
        ),
        version,
    )


def decode_subscription(data: Buffer) -> MemberSubscription:
    """Decode a subscription. Raises `ProtocolError` (invalid_request)."""
    found: ConsumerProtocolSubscription = _decode(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        found.topics,
        flat(found.owned_partitions),
        found.generation_id,
        found.rack_id,
        None if found.user_data is None else bytes(found.user_data),
    )


def encode_assignment(
    partitions: Iterable[TopicPartition],
    user_data: bytes | None = None,
    version: int = VERSION_MAX,
) -> bytes:
    """Encode one member's assignment."""
    value = ConsumerProtocolAssignment(
        assigned_partitions=by_topic(partitions), user_data=user_data
    )
    return _encode(value, version)


def decode_assignment(data: Buffer) -> DecodedAssignment:
    """Decode an assignment; empty bytes are no partitions. Raises `ProtocolError`."""
    if not data:
        return DecodedAssignment(())
    found: ConsumerProtocolAssignment = _decode(ConsumerProtocolAssignment, data)
    user_data = None if found.user_data is None else bytes(found.user_data)
    return DecodedAssignment(flat(found.assigned_partitions), user_data)


def _encode(
    value: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int
) -> bytes:
    out = bytearray(INT16.pack(version))
    cls: type = type(value)
    writer(cls, version, flexible=False)(out, value)
    return bytes(out)


def _decode(cls: type, data: Buffer) -> Any:
    version = int.from_bytes(data[:2], signed=True) if len(data) >= 2 else -1
    if version < 0:
        raise ProtocolError(ErrorCode.invalid_request, f"{cls.__name__} without a version")
    return reader(cls, min(version, VERSION_MAX), flexible=False)(data, 2)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[ConsumerProtocolPartitions, ...]:
    """The partitions as the wire has them: topics in order, and their partitions in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return tuple(
        ConsumerProtocolPartitions(topic=topic, partitions=tuple(indexes))
        for topic, indexes in topics.items()
    )


def flat(topics: Iterable[ConsumerProtocolPartitions]) -> tuple[TopicPartition, ...]:
    """The partitions that `by_topic` put together."""
    return tuple(
        TopicPartition(topic.topic, int(index)) for topic in topics for index in topic.partitions
    )

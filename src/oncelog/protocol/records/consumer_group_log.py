"""`__consumer_offsets`: the records of consumer groups (KIP-848).

From Kafka's `ConsumerGroup*Key.json` and `ConsumerGroup*Value.json`: key kinds 3 to 8 and 16, all
values in version 0 with tagged fields. A key names the group, and most also a member or a regular
expression. A record without a value deletes its key. Brokers before Kafka 4.1 write partition
metadata (kind 4); later ones use the hash in `GroupEpochValue`, and only delete such records.

The values are declared as messages are, and `oncelog.protocol.codec` makes their codecs.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Annotated, Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import GROUP_RECORD_ELEMENTS_COUNT_MAX
from oncelog.protocol import wire
from oncelog.protocol.codec import reader, writer
from oncelog.protocol.fields import Bytes, Int8, Int32, Int64, String, Tag, Uuid
from oncelog.protocol.wire import INT16, Buffer

VALUE_VERSION: Final = 0


class ConsumerGroupKind(IntEnum):
    """The type of a record: the number that its key begins with."""

    GROUP_EPOCH = 3
    PARTITION_METADATA = 4
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


class ConsumerGroupKey(NamedTuple):
    """Names one record. `name` is a member's id or a regular expression where the kind has one."""

    kind: ConsumerGroupKind
    group_id: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochValue:
    """The group's epoch, and a hash of its subscribed topics (0: none)."""

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, Tag(0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRacks:
    """An element of `partition_metadata` in TopicMetadata."""

    partition: Int32 = 0
    racks: tuple[String, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """An element of `topics` in PartitionMetadataValue."""

    topic_id: Uuid = None
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataValue:
    """Kafka 4.0's record of the subscribed topics."""

    topics: tuple[TopicMetadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    """A protocol that a member of the classic protocol offers, with its subscription."""

    name: String = ""
    metadata: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """The additional state of a member that speaks the classic protocol."""

    session_timeout_ms: Int32 = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataValue:
    """A member's metadata and subscription."""

    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadataValue:
    """The group epoch that the target assignment was made for, and when (0: not known)."""

    assignment_epoch: Int32 = 0
    assignment_timestamp_ms: Annotated[Int64, Tag(0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartitions:
    """An element of `topic_partitions` in TargetAssignmentMemberValue."""

    topic_id: Uuid = None
    partitions: tuple[Int32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: tuple[TargetPartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """Partitions of one topic that a member owns.

    `assignment_epochs`, one per partition, are the member epochs at which each was assigned.
    """

    topic_id: Uuid = None
    partitions: tuple[Int32, ...] = ()
    assignment_epochs: Annotated[tuple[Int32, ...] | None, Tag(0)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentValue:
    """A member's assignment, and its progress towards its target."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: tuple[OwnedPartitions, ...] = ()
    partitions_pending_revocation: tuple[OwnedPartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionValue:
    """The topics that an expression matched at a revision of the metadata, and when."""

    topics: tuple[String, ...] = ()
    version: Int64 = 0
    timestamp_ms: Int64 = 0


ConsumerGroupValue = (
    GroupEpochValue
    | PartitionMetadataValue
    | MemberMetadataValue
    | TargetAssignmentMetadataValue
    | TargetAssignmentMemberValue
    | CurrentAssignmentValue
    | RegularExpressionValue
)

VALUE_CLASSES: Final[dict[ConsumerGroupKind, type[ConsumerGroupValue]]] = {
    ConsumerGroupKind.GROUP_EPOCH: GroupEpochValue,
    ConsumerGroupKind.PARTITION_METADATA: PartitionMetadataValue,
    ConsumerGroupKind.MEMBER_METADATA: MemberMetadataValue,
    ConsumerGroupKind.TARGET_ASSIGNMENT_METADATA: TargetAssignmentMetadataValue,
    ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER: TargetAssignmentMemberValue,
    ConsumerGroupKind.CURRENT_ASSIGNMENT: CurrentAssignmentValue,
    ConsumerGroupKind.REGULAR_EXPRESSION: RegularExpressionValue,
}

_KINDS: Final = {int(kind): kind for kind in ConsumerGroupKind}
_NAMED: Final = frozenset(
    {
        ConsumerGroupKind.MEMBER_METADATA,
        ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER,
        ConsumerGroupKind.CURRENT_ASSIGNMENT,
        ConsumerGroupKind.REGULAR_EXPRESSION,
    }
)
"""The kinds whose keys name a member or an expression beside the group."""


def encode_key(key: ConsumerGroupKey) -> bytes:
    """The bytes of a key."""
    out = INT16.pack(key.kind) + wire.string(key.group_id)
    return out + wire.string(key.name) if key.kind in _NAMED else out


def decode_key(key: Buffer) -> ConsumerGroupKey | None:
    """The key; None for another kind of record. Raises `ProtocolError` (corrupt_message)."""
    kind = _KINDS.get(int.from_bytes(key[:2], signed=True)) if len(key) >= 2 else None
    if kind is None:
        return None
    try:
        group_id, position = wire.read_string(key, 2)
        name = wire.read_string(key, position)[0] if kind in _NAMED else ""
    except (IndexError, ValueError, StructError, ProtocolError) as error:
        raise _corrupt(f"key of {kind.name}", error) from error
    return ConsumerGroupKey(kind, group_id, name)


def encode_value(value: ConsumerGroupValue) -> bytes:
    """The bytes of a value, as Kafka 4.3 writes it."""
    cls: type = type(value)
    out = bytearray(INT16.pack(VALUE_VERSION))
    writer(cls, VALUE_VERSION, flexible=True)(out, value)
    return bytes(out)


def decode_value(kind: ConsumerGroupKind, value: Buffer) -> ConsumerGroupValue:
    """The value of a record whose key is of this kind. Raises `ProtocolError` (corrupt_message)."""
    cls: type = VALUE_CLASSES[kind]
    version = int.from_bytes(value[:2], signed=True) if len(value) >= 2 else -1
    read = reader(
        cls, VALUE_VERSION, flexible=True, elements_count_max=GROUP_RECORD_ELEMENTS_COUNT_MAX
    )
    try:
        if version != VALUE_VERSION:
            raise wire.malformed(f"version {version}")
        found: ConsumerGroupValue = read(value, 2)
    except ProtocolError as error:
        raise _corrupt(cls.__name__, error) from error
    return found


def _corrupt(what: str, error: Exception) -> ProtocolError:
    reason = error.message if isinstance(error, ProtocolError) else str(error)
    return ProtocolError(ErrorCode.corrupt_message, f"consumer group {what}: {reason}")

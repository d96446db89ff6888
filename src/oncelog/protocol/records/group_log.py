"""`__consumer_offsets`: committed offsets and the state of classic groups.

From `OffsetCommitKey/Value.json` (key kinds 0 and 1, value versions 0 to 4) and
`GroupMetadataKey/Value.json` (key kind 2, value versions 0 to 4). A record without a value deletes
its key. Keys of other kinds (`consumer_group_log`) decode to None. The member subscription and
assignment are bytes that only clients understand.
"""

from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final
from uuid import UUID

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.values import value
from oncelog.protocol import wire
from oncelog.protocol.wire import INT16, INT32, INT64, Buffer, uvarint

OFFSET_COMMIT_KEYS: Final = (0, 1)
OFFSET_COMMIT_KEY: Final = 1
GROUP_METADATA_KEY: Final = 2

OFFSET_COMMIT_VALUE_VERSION: Final = 4
"""The version that Kafka writes. An offset with its own expiry is written in version 1."""
GROUP_METADATA_VALUE_VERSION: Final = 3
_VALUE_VERSION_MAX: Final = 4
_FLEXIBLE_SINCE: Final = 4
_TOPIC_ID_TAG: Final = 0

_OFFSET_EPOCH: Final = integers(">hqi")
_VERSION_OFFSET: Final = integers(">hq")


@value
class OffsetCommitKey:
    """Names a committed offset."""

    group: str
    topic: str
    partition: int


@value
class GroupMetadataKey:
    """Names a classic group."""

    group: str


@value
class OffsetCommitValue:
    """A committed offset. Times are milliseconds since the epoch; -1 for none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID | None = None


@value
class MemberMetadata:
    """A member of a classic group as of its last completed rebalance."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@value
class GroupMetadataValue:
    """A classic group; an empty one has no members, protocol or leader."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


def encode_offset_commit_key(key: OffsetCommitKey) -> bytes:
    """The key of a committed offset."""
    kind = INT16.pack(OFFSET_COMMIT_KEY)
    return kind + wire.string(key.group) + wire.string(key.topic) + INT32.pack(key.partition)


def encode_group_metadata_key(key: GroupMetadataKey) -> bytes:
    """The key of a classic group."""
    return INT16.pack(GROUP_METADATA_KEY) + wire.string(key.group)


def decode_key(key: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key; None for a kind that is not known. Raises `ProtocolError` (corrupt_message)."""
    try:
        kind = INT16.unpack_from(key, 0)[0]
        if kind in OFFSET_COMMIT_KEYS:
            group, position = wire.read_string(key, 2)
            topic, position = wire.read_string(key, position)
            return OffsetCommitKey(group, topic, INT32.unpack_from(key, position)[0])
        if kind == GROUP_METADATA_KEY:
            return GroupMetadataKey(wire.read_string(key, 2)[0])
    except (StructError, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _corrupt("key", error) from error
    return None


def encode_offset_commit_value(value: OffsetCommitValue, version: int | None = None) -> bytes:
    """Encode a committed offset, by default in the version that Kafka would choose.

    Version 1 is the only one with an expiry, versions from 3 on have the leader epoch, 4 the topic
    id; what a version lacks is left out.
    """
    if version is None:
        version = OFFSET_COMMIT_VALUE_VERSION if value.expire_timestamp_ms == -1 else 1
    flexible = version >= _FLEXIBLE_SINCE
    if version >= 3:
        out = _OFFSET_EPOCH.pack(version, value.offset, value.leader_epoch)
    else:
        out = _VERSION_OFFSET.pack(version, value.offset)
    out += wire.compact_string(value.metadata) if flexible else wire.string(value.metadata)
    out += INT64.pack(value.commit_timestamp_ms)
    if version == 1:
        out += INT64.pack(value.expire_timestamp_ms)
    if flexible:
        if value.topic_id is None:
            out += b"\x00"
        else:
            out += b"\x01" + wire.tag(_TOPIC_ID_TAG, value.topic_id.bytes)
    return out


def decode_offset_commit_value(value: Buffer) -> OffsetCommitValue:
    """Decode a committed offset. Raises `ProtocolError` (corrupt_message)."""
    try:
        return _decode_offset_commit_value(value)
    except (StructError, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _corrupt("offset commit value", error) from error


def _decode_offset_commit_value(value: Buffer) -> OffsetCommitValue:
    version, offset = _VERSION_OFFSET.unpack_from(value, 0)
    _check_version(version)
    position = _VERSION_OFFSET.size
    leader_epoch = expire_ms = -1
    topic_id = None
    if version >= 3:
        leader_epoch = INT32.unpack_from(value, position)[0]
        position += 4
    if version >= _FLEXIBLE_SINCE:
        metadata, position = wire.read_compact_string(value, position)
    else:
        metadata, position = wire.read_string(value, position)
    commit_ms = INT64.unpack_from(value, position)[0]
    position += 8
    if version == 1:
        expire_ms = INT64.unpack_from(value, position)[0]
    if version >= _FLEXIBLE_SINCE:
        for number, start, _end in wire.iter_tags(value, position):
            if number == _TOPIC_ID_TAG:
                topic_id, _ = wire.read_uuid(value, start)
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


def encode_group_metadata_value(
    value: GroupMetadataValue, version: int = GROUP_METADATA_VALUE_VERSION
) -> bytes:
    """Encode a classic group.

    Version 1 brought rebalance timeouts, 2 the timestamp, 3 instance ids; what a version lacks is
    left out.
    """
    flexible = version >= _FLEXIBLE_SINCE
    string = wire.compact_string if flexible else wire.string
    out = bytearray(INT16.pack(version))
    out += string(value.protocol_type)
    out += INT32.pack(value.generation)
    out += string(value.protocol)
    out += string(value.leader)
    if version >= 2:
        out += INT64.pack(value.current_state_timestamp_ms)
    out += _count(len(value.members), flexible)
    for member in value.members:
        out += string(member.member_id)
        if version >= 3:
            out += string(member.group_instance_id)
        out += string(member.client_id)
        out += string(member.client_host)
        if version >= 1:
            out += INT32.pack(member.rebalance_timeout_ms)
        out += INT32.pack(member.session_timeout_ms)
        out += _count(len(member.subscription), flexible) + member.subscription
        out += _count(len(member.assignment), flexible) + member.assignment
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return bytes(out)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def decode_group_metadata_value(value: Buffer) -> GroupMetadataValue:
    """Decode a classic group. Raises `ProtocolError` (corrupt_message)."""
    try:
        return _decode_group_metadata_value(value)
    except (StructError, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _corrupt("group metadata value", error) from error


def _decode_group_metadata_value(value: Buffer) -> GroupMetadataValue:
    version = INT16.unpack_from(value, 0)[0]
    _check_version(version)
    flexible = version >= _FLEXIBLE_SINCE
    read_string = wire.read_compact_string if flexible else wire.read_string
    read_nullable = wire.read_compact_nullable_string if flexible else wire.read_nullable_string
    protocol_type, position = read_string(value, 2)
    generation = INT32.unpack_from(value, position)[0]
    protocol, position = read_nullable(value, position + 4)
    leader, position = read_nullable(value, position)
    timestamp_ms = -1
    if version >= 2:
        timestamp_ms = INT64.unpack_from(value, position)[0]
        position += 8
    read_count = wire.read_compact_array_count if flexible else wire.read_array_count
    count, position = read_count(value, position)
    members = []
    for _ in range(count):
        member, position = _read_member(value, version, position)
        members.append(member)
    return GroupMetadataValue(
        protocol_type, generation, protocol, leader, timestamp_ms, tuple(members)
    )


def _read_member(value: Buffer, version: int, position: int) -> tuple[MemberMetadata, int]:
    flexible = version >= _FLEXIBLE_SINCE
    read_string = wire.read_compact_string if flexible else wire.read_string
    read_nullable = wire.read_compact_nullable_string if flexible else wire.read_nullable_string
    instance_id = None
    rebalance_ms = -1
    member_id, position = read_string(value, position)
    if version >= 3:
        instance_id, position = read_nullable(value, position)
    client_id, position = read_string(value, position)
    client_host, position = read_string(value, position)
    if version >= 1:
        rebalance_ms = INT32.unpack_from(value, position)[0]
        position += 4
    session_ms = INT32.unpack_from(value, position)[0]
    subscription, position = _read_bytes(value, position + 4, flexible)
    assignment, position = _read_bytes(value, position, flexible)
    if flexible:
        position = wire.skip_tags(value, position)
    member = MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_ms,
        session_ms,
        subscription,
        assignment,
    )
    return member, position


def _read_bytes(value: Buffer, position: int, flexible: bool) -> tuple[bytes, int]:
    # A byte string has the same length prefix as an array of its bytes.
    read_count = wire.read_compact_array_count if flexible else wire.read_array_count
    size, position = read_count(value, position)
    return bytes(value[position : position + size]), position + size


def _check_version(version: int) -> None:
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise wire.malformed(f"version {version}")


def _corrupt(what: str, error: Exception) -> ProtocolError:
    reason = error.message if isinstance(error, ProtocolError) else str(error)
    return ProtocolError(ErrorCode.corrupt_message, f"group log {what}: {reason}")

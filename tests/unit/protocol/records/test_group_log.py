from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.records.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tests.unit.protocol.damage import check_damage

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=150)
VERSIONS = st.integers(0, 4)
OFFSETS = st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, INT64, st.none() | st.uuids())
MEMBERS = st.lists(
    st.builds(
        MemberMetadata,
        TEXT,
        st.none() | TEXT,
        TEXT,
        TEXT,
        INT32,
        INT32,
        st.binary(max_size=200),
        st.binary(max_size=200),
    ),
    max_size=3,
).map(tuple)
GROUPS = st.builds(
    GroupMetadataValue, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, MEMBERS
)


@given(VERSIONS, OFFSETS)
def test_offsets_come_back_as_far_as_their_version_goes(
    version: int, value: OffsetCommitValue
) -> None:
    expected = value
    if version != 1:
        expected = replace(expected, expire_timestamp_ms=-1)
    if version < 3:
        expected = replace(expected, leader_epoch=-1)
    if version < 4:
        expected = replace(expected, topic_id=None)
    assert decode_offset_commit_value(encode_offset_commit_value(value, version)) == expected


@given(VERSIONS, GROUPS)
def test_groups_come_back_as_far_as_their_version_goes(
    version: int, value: GroupMetadataValue
) -> None:
    members = []
    for member in value.members:
        if version < 1:
            member = replace(member, rebalance_timeout_ms=-1)
        if version < 3:
            member = replace(member, group_instance_id=None)
        members.append(member)
    expected = replace(value, members=tuple(members))
    if version < 2:
        expected = replace(expected, current_state_timestamp_ms=-1)
    assert decode_group_metadata_value(encode_group_metadata_value(value, version)) == expected


@given(TEXT, TEXT, INT32)
def test_keys_come_back(group: str, topic: str, partition: int) -> None:
    key = OffsetCommitKey(group, topic, partition)
    assert decode_key(encode_offset_commit_key(key)) == key
    legacy = b"\x00\x00" + encode_offset_commit_key(key)[2:]
    assert decode_key(legacy) == key
    assert decode_key(encode_group_metadata_key(GroupMetadataKey(group))) == GroupMetadataKey(group)


def test_the_bytes_are_those_of_the_schema() -> None:
    assert encode_offset_commit_key(OffsetCommitKey("g", "t", 3)).hex() == (
        "0001" + "000167" + "000174" + "00000003"
    )
    assert encode_group_metadata_key(GroupMetadataKey("g")).hex() == "0002" + "000167"
    value = OffsetCommitValue(7, 2, "m", 9)
    assert encode_offset_commit_value(value, 3).hex() == (
        "0003" + "0000000000000007" + "00000002" + "00016d" + "0000000000000009"
    )
    topic_id = UUID(int=1)
    assert encode_offset_commit_value(replace(value, topic_id=topic_id)).hex() == (
        "0004"
        + "0000000000000007"
        + "00000002"
        + "026d"
        + "0000000000000009"
        + "010010"
        + topic_id.hex
    )


def test_an_expiry_needs_version_1() -> None:
    value = OffsetCommitValue(7, 2, "m", 9, expire_timestamp_ms=50)
    assert encode_offset_commit_value(value)[:2] == b"\x00\x01"
    assert decode_offset_commit_value(encode_offset_commit_value(value)).expire_timestamp_ms == 50


@pytest.mark.parametrize("kind", [3, 8, 16, 900])
def test_keys_of_newer_groups_are_not_known(kind: int) -> None:
    assert decode_key(kind.to_bytes(2, "big") + b"whatever") is None


@pytest.mark.parametrize("version", [-1, 5])
def test_values_of_other_versions_are_refused(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + bytes(60)
    for decode in (decode_offset_commit_value, decode_group_metadata_value):
        with pytest.raises(ProtocolError) as caught:
            decode(data)
        assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("version", range(5))
def test_damaged_values_raise_protocol_errors_only(version: int) -> None:
    offset = OffsetCommitValue(7, 2, "meta", 9, 10, UUID(int=3))
    member = MemberMetadata("m", "i", "c", "h", 1, 2, b"sub", b"assignment")
    group = GroupMetadataValue("consumer", 3, "range", "m", 5, (member, member))
    check_damage(
        decode_offset_commit_value, encode_offset_commit_value(offset, version), version, 200
    )
    check_damage(
        decode_group_metadata_value, encode_group_metadata_value(group, version), version, 300
    )
    check_damage(decode_key, encode_offset_commit_key(OffsetCommitKey("g", "t", 3)), version, 100)

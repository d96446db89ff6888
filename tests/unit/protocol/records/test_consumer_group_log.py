from random import Random
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.records.consumer_group_log import (
    VALUE_CLASSES,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupKey,
    ConsumerGroupKind,
    ConsumerGroupValue,
    CurrentAssignmentValue,
    GroupEpochValue,
    MemberMetadataValue,
    OwnedPartitions,
    RegularExpressionValue,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TargetPartitions,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tests.unit.protocol.damage import check_damage
from tests.unit.protocol.samples import sample

TOPIC_ID = UUID(int=1)


@pytest.mark.parametrize("kind", ConsumerGroupKind)
def test_values_come_back(kind: ConsumerGroupKind) -> None:
    random = Random(kind.name)
    for _ in range(20):
        value = sample(VALUE_CLASSES[kind], 0, random)
        assert decode_value(kind, encode_value(value)) == value


@pytest.mark.parametrize("kind", ConsumerGroupKind)
def test_damaged_values_raise_protocol_errors_only(kind: ConsumerGroupKind) -> None:
    value = sample(VALUE_CLASSES[kind], 0, Random(kind.name))
    check_damage(lambda data: decode_value(kind, data), encode_value(value), 0, 100)


@pytest.mark.parametrize("kind", ConsumerGroupKind)
def test_a_value_of_another_version_is_refused(kind: ConsumerGroupKind) -> None:
    for data in (b"", b"\x00", b"\x00\x01" + bytes(40), b"\xff\xff" + bytes(40)):
        with pytest.raises(ProtocolError) as caught:
            decode_value(kind, data)
        assert caught.value.code is ErrorCode.corrupt_message


def test_keys_are_those_of_the_schema() -> None:
    assert encode_key(ConsumerGroupKey(ConsumerGroupKind.GROUP_EPOCH, "g")).hex() == "0003000167"
    named = ConsumerGroupKey(ConsumerGroupKind.CURRENT_ASSIGNMENT, "g", "m")
    assert encode_key(named).hex() == "0008" + "000167" + "00016d"
    assert decode_key(encode_key(named)) == named
    expression = ConsumerGroupKey(ConsumerGroupKind.REGULAR_EXPRESSION, "g", "a.*")
    assert encode_key(expression).hex() == "0010" + "000167" + "0003612e2a"


def test_keys_of_other_groups_are_not_known() -> None:
    for data in (b"", b"\x00", b"\x00\x02\x00\x01g", b"\x00\x09whatever", b"\x00\x0fwhatever"):
        assert decode_key(data) is None


@pytest.mark.parametrize("kind", ConsumerGroupKind)
def test_a_damaged_key_is_refused(kind: ConsumerGroupKind) -> None:
    whole = encode_key(ConsumerGroupKey(kind, "group", "name"))
    for data in (whole[:4], whole[:2] + b"\xff\xff", whole[:2] + b"\x00\x02\xff\xfe\x00\x00"):
        with pytest.raises(ProtocolError) as caught:
            decode_key(data)
        assert caught.value.code is ErrorCode.corrupt_message


def test_values_are_those_of_the_schema() -> None:
    hexes: dict[ConsumerGroupValue, str] = {
        GroupEpochValue(epoch=7): "0000" + "00000007" + "00",
        GroupEpochValue(epoch=7, metadata_hash=5): "0000" + "00000007" + "010008" + f"{5:016x}",
        TargetAssignmentMetadataValue(assignment_epoch=7): "0000" + "00000007" + "00",
        TargetAssignmentMemberValue(
            topic_partitions=(TargetPartitions(topic_id=TOPIC_ID, partitions=(0, 3)),)
        ): "0000" + "02" + TOPIC_ID.hex + "03" + "00000000" + "00000003" + "00" + "00",
        CurrentAssignmentValue(
            member_epoch=4,
            previous_member_epoch=3,
            state=1,
            assigned_partitions=(
                OwnedPartitions(topic_id=TOPIC_ID, partitions=(2,), assignment_epochs=(3,)),
            ),
        ): (
            "0000" + "00000004" + "00000003" + "01"
            "02" + TOPIC_ID.hex + "02" + "00000002" + "01" + "00" + "05" + "02" + "00000003"
            "01" + "00"
        ),
        RegularExpressionValue(topics=("t",), version=2, timestamp_ms=3): (
            "0000" + "02" + "0274" + f"{2:016x}" + f"{3:016x}" + "00"
        ),
    }
    for value, expected in hexes.items():
        assert encode_value(value).hex() == expected


def test_a_classic_member_carries_its_protocols_in_a_nullable_tag() -> None:
    classic = ClassicMemberMetadata(
        session_timeout_ms=9, supported_protocols=(ClassicProtocol(name="r", metadata=b"s"),)
    )
    value = MemberMetadataValue(client_id="c", client_host="h", classic_member_metadata=classic)
    # Kafka's generator marks a tagged nullable struct as present with a varint of 1.
    struct = "01" + "00000009" + "02" + "0272" + "0273" + "00" + "00"
    plain = "0000" + "00" + "00" + "0263" + "0268" + "01" + "00" + "ffffffff" + "00"
    assert encode_value(value).hex() == plain + "01" + "00" + f"{len(struct) // 2:02x}" + struct
    null = bytes.fromhex(plain + "01" + "00" + "01" + "00")
    found = decode_value(ConsumerGroupKind.MEMBER_METADATA, null)
    assert found == MemberMetadataValue(client_id="c", client_host="h")

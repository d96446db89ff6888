"""`oncelog log dump --records` reads every kind of record that consumer groups write."""

import pytest

from oncelog.cli.log.decoding import Decoded, decoder_for, why_unreadable
from oncelog.protocol.record import Record
from oncelog.protocol.records.consumer_group_log import (
    VALUE_CLASSES,
    ConsumerGroupKey,
    ConsumerGroupKind,
    encode_key,
    encode_value,
)

TOPIC = "__consumer_offsets"
NAMED = {
    ConsumerGroupKind.MEMBER_METADATA: "m",
    ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER: "m",
    ConsumerGroupKind.CURRENT_ASSIGNMENT: "m",
    ConsumerGroupKind.REGULAR_EXPRESSION: "t.*",
}
"""What the key names beside the group."""


def decoded(record: Record) -> Decoded | None:
    decode = decoder_for(TOPIC)
    assert decode is not None
    return decode(record)


@pytest.mark.parametrize("kind", ConsumerGroupKind)
def test_every_record_of_a_consumer_group_is_read(kind: ConsumerGroupKind) -> None:
    name = NAMED.get(kind, "")
    key = encode_key(ConsumerGroupKey(kind, "g", name))
    record = Record(0, 0, key, encode_value(VALUE_CLASSES[kind]()))
    found = decoded(record)
    assert found is not None
    assert found.key == {"group": "g", "kind": kind.name.lower(), "name": name}
    assert found.value is not None
    assert found.value.keys() == VALUE_CLASSES[kind].__dataclass_fields__.keys()
    assert why_unreadable(TOPIC, record) is None
    tombstone = Record(0, 0, key, None)
    assert decoded(tombstone) == Decoded(found.key, None)
    assert why_unreadable(TOPIC, tombstone) is None


def test_a_record_of_share_groups_is_not_read_as_another() -> None:
    share_group_epoch = (11).to_bytes(2) + b"\x00\x01g"
    assert decoded(Record(0, 0, share_group_epoch, b"\x00\x00")) is None


def test_a_damaged_record_is_named() -> None:
    key = encode_key(ConsumerGroupKey(ConsumerGroupKind.CURRENT_ASSIGNMENT, "g", "m"))
    reason = why_unreadable(TOPIC, Record(0, 0, key, b"\x00\x09"))
    assert reason is not None
    assert "CurrentAssignmentValue" in reason

from uuid import UUID

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.storage.checkpoints import (
    format_epochs,
    format_offsets,
    format_partition_metadata,
    format_properties,
    kafka_uuid,
    parse_epochs,
    parse_kafka_uuid,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)

TOPIC_ID = UUID("01234567-89ab-cdef-fedc-ba9876543210")


def test_offsets_are_written_as_kafka_writes_them() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 0}
    data = format_offsets(offsets)
    assert data == b"0\n2\na 10 0\nb 1 7\n"
    assert parse_offsets(data) == offsets
    assert parse_offsets(format_offsets({})) == {}


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na 0 1",
        b"\xff\n1\na 0 1\n",
    ],
)
def test_a_torn_offset_checkpoint_is_refused(data: bytes | None) -> None:
    assert parse_offsets(data) is None


def test_epochs_must_rise() -> None:
    assert parse_epochs(format_epochs([(0, 0), (3, 10)])) == [(0, 0), (3, 10)]
    assert parse_epochs(b"0\n2\n3 10\n0 0\n") is None
    assert parse_epochs(b"0\n1\nx 0\n") is None
    assert parse_epochs(None) is None


def test_a_folder_names_its_topic() -> None:
    data = format_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"
    assert parse_partition_metadata(data) == TOPIC_ID
    assert parse_partition_metadata(None) is None
    assert parse_partition_metadata(b"version: 0\ntopic_id: short") is None
    assert parse_kafka_uuid(kafka_uuid(TOPIC_ID)) == TOPIC_ID


def test_properties_come_back() -> None:
    fields = {"version": "1", "node.id": "4"}
    assert parse_properties(b"# a comment\n\n" + format_properties(fields)) == fields

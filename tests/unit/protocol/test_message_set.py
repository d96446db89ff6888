"""Messages of the formats v0 and v1 as batches of v2. kafka-python is the writer."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import LOG_APPEND_TIME, check_crc, read_header
from oncelog.protocol.message_set import as_batch, sound_magic
from oncelog.protocol.record import Record, iter_records
from tests.support.old_formats import TIME_MS, fields, message_set, stamped

CODECS = ("none", "gzip", "snappy", "lz4")


def records(message: bytes | bytearray, position: int = 0) -> list[Record]:
    batch = as_batch(message, position)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    return list(iter_records(batch, 0, header))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_offset_time_key_and_value_stay(magic: int, codec: str) -> None:
    message = message_set(magic, 40, 9, codec)
    found = records(message) if codec != "none" else singly(message)
    assert [record[:4] for record in found] == [fields(40 + i, magic) for i in range(9)]


def singly(data: bytearray) -> list[Record]:
    found, position = [], 0
    while position < len(data):
        found += records(data, position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_of_a_message_is_that_of_all_in_it(codec: str) -> None:
    message = stamped(message_set(1, 5, 1 if codec == "none" else 3, codec), 77)
    assert {record.timestamp for record in records(message)} == {77}
    header = read_header(as_batch(message, 0))
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, 77)


def test_a_wrapper_whose_first_messages_were_compacted_away_keeps_its_offsets() -> None:
    """Inner offsets of v1 are relative to the first that there was, the outer is the last."""
    message = message_set(1, 0, 3, "gzip")
    message[:8] = (102).to_bytes(8, "big")
    assert [record.offset for record in records(message)] == [100, 101, 102]


def test_a_wrapper_of_offset_0_has_inner_offsets_from_0_on() -> None:
    message = message_set(1, 0, 3, "gzip")
    message[:8] = bytes(8)
    assert [record.offset for record in records(message)] == [0, 1, 2]


def test_a_wrapper_below_what_it_holds_is_corrupt() -> None:
    message = message_set(1, 0, 3, "gzip")
    message[:8] = (1).to_bytes(8, "big")
    with pytest.raises(ProtocolError, match="below"):
        records(message)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_any_changed_byte_behind_the_size_is_noticed(magic: int, codec: str) -> None:
    message = message_set(magic, 0, 1 if codec == "none" else 2, codec)
    assert sound_magic(message) == magic
    for at in range(12, len(message)):
        changed = bytearray(message)
        changed[at] ^= 0x01
        assert sound_magic(changed) is None
        with pytest.raises(ProtocolError) as caught:
            as_batch(changed, 0)
        assert caught.value.code is ErrorCode.corrupt_message


def test_no_size_reads_beyond_the_buffer() -> None:
    message = message_set(1, 0, 2, "gzip")
    for size in (*range(len(message)), len(message)):
        cut = message[:size]
        assert sound_magic(cut) == (1 if size == len(message) else None)
    message[8:12] = (2**31 - 1).to_bytes(4, "big")
    assert sound_magic(message) is None


def test_a_wrapper_unpacks_to_at_most_the_limit() -> None:
    message = message_set(1, 0, 50, "gzip")
    with pytest.raises(ProtocolError) as caught:
        as_batch(message, 0, limit_bytes=100)
    assert caught.value.code is ErrorCode.message_too_large


def test_a_time_of_v0_is_none() -> None:
    assert records(message_set(0, 3, 1))[0].timestamp == -1
    assert records(message_set(1, 3, 1))[0].timestamp == TIME_MS + 3

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    check_crc,
    iter_headers,
    next_sequence,
    read_header,
    set_log_append_time,
    set_producer,
)
from oncelog.protocol.record import Record, build_batch, iter_records


def batch(count: int = 3, **options: object) -> bytearray:
    records = [Record(0, 1000 + i, b"k", b"value %d" % i) for i in range(count)]
    return build_batch(records, **options)  # type: ignore[arg-type]


def test_a_header_shows_what_the_batch_was_built_with() -> None:
    data = batch(
        base_offset=70,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=9,
        transactional=True,
        leader_epoch=5,
        codec="zstd",
    )
    header = read_header(data)
    assert header.length == len(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 72, 73)
    assert (header.producer_id, header.producer_epoch) == (2**40, 3)
    assert (header.base_sequence, header.last_sequence) == (9, 11)
    assert (header.leader_epoch, header.codec, header.record_count) == (5, "zstd", 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer_id
    assert check_crc(data, 0, header)


def test_any_changed_byte_under_the_crc_is_noticed() -> None:
    data = batch()
    header = read_header(data)
    for position in range(21, len(data)):
        data[position] ^= 0x40
        assert not check_crc(data, 0, header)
        data[position] ^= 0x40


def test_log_append_time_replaces_the_time_of_every_record() -> None:
    data = bytearray(b"....") + batch()
    set_log_append_time(data, 4, read_header(data, 4), 5_000_000)
    header = read_header(data, 4)
    assert header.timestamp_type == LOG_APPEND_TIME
    assert check_crc(data, 4, header)
    assert {record.timestamp for record in iter_records(data, 4, header)} == {5_000_000}


def test_a_batch_can_be_stamped_with_a_producer_after_it_was_encoded() -> None:
    data = batch()
    set_producer(data, 0, producer_id=8, producer_epoch=2, base_sequence=100, transactional=True)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, 100)
    assert header.is_transactional
    assert check_crc(data, 0, header)


def test_headers_are_found_one_after_the_other() -> None:
    data = batch(1) + batch(2, base_offset=1) + batch(5, base_offset=3)
    found = [(position, header.base_offset) for position, header in iter_headers(data)]
    assert found == [(0, 0), (len(batch(1)), 1), (len(batch(1)) + len(batch(2)), 3)]


def test_a_cut_batch_at_the_end_is_left_out_only_when_allowed() -> None:
    whole = batch(2)
    for size in range(1, len(whole)):
        data = whole + whole[:size]
        assert len(list(iter_headers(data, allow_partial=True))) == 1
        with pytest.raises(ProtocolError):
            list(iter_headers(data))


@pytest.mark.parametrize(
    ("position", "value", "code"),
    [
        (16, 1, ErrorCode.unsupported_for_message_format),
        (16, 0, ErrorCode.unsupported_for_message_format),
        (16, 3, ErrorCode.corrupt_message),
        (8, 0x80, ErrorCode.corrupt_message),
        (8, 0x7F, ErrorCode.corrupt_message),
        (23, 0x80, ErrorCode.corrupt_message),
        (57, 0x80, ErrorCode.corrupt_message),
    ],
)
def test_impossible_headers_are_refused(position: int, value: int, code: ErrorCode) -> None:
    data = batch()
    data[position] = value
    with pytest.raises(ProtocolError) as caught:
        read_header(data)
    assert caught.value.code is code


def test_a_length_below_the_header_cannot_stop_the_walk() -> None:
    data = batch()
    data[8:12] = (HEADER_SIZE - 13).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        list(iter_headers(data))


def test_an_unassigned_codec_is_named() -> None:
    data = batch()
    data[22] |= 7
    with pytest.raises(ProtocolError) as caught:
        _ = read_header(data).codec
    assert caught.value.code is ErrorCode.unsupported_compression_type


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_protocol_errors(data: bytes) -> None:
    with suppress(ProtocolError):
        for _position, header in iter_headers(data):
            assert header.length >= HEADER_SIZE


@pytest.mark.parametrize(
    ("sequence", "count", "expected"), [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)]
)
def test_sequences_wrap_at_2_to_the_31_inv_2(sequence: int, count: int, expected: int) -> None:
    assert next_sequence(sequence, count) == expected


def test_the_last_sequence_wraps_too_inv_2() -> None:
    data = batch(5, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(data).last_sequence == 2

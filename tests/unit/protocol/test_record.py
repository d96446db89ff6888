import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, InvariantViolation, ProtocolError
from oncelog.protocol.batch import (
    CODEC_NAMES,
    HEADER,
    HEADER_SIZE,
    check_crc,
    read_header,
    renew_crc,
)
from oncelog.protocol.record import (
    EndMarker,
    Record,
    build_batch,
    control_batch,
    encode_record,
    iter_records,
    read_end_marker,
)
from oncelog.protocol.wire import varint
from tests.unit.protocol.damage import check_damage

CONTENT = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**62),
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=20), CONTENT), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def read_all(data: bytes | bytearray, limit_bytes: int = 1 << 20) -> list[Record]:
    return list(iter_records(data, 0, read_header(data), limit_bytes=limit_bytes))


@pytest.mark.parametrize("size", [0, 63, 64, 4095, 4096, 8191, 8192])
def test_lengths_and_deltas_are_the_same_varints_below_and_above_the_table(size: int) -> None:
    """A record by the general encoding, piece by piece."""
    content = bytes(size)
    plain = (b"\0", varint(size), varint(size), varint(size), content, varint(size), content, b"\0")
    expected = b"".join(plain)
    assert encode_record(Record(0, 0, content, content), size, size) == expected
    batch = build_batch([Record(size, 0, content, content)], keep_offsets=True)
    same = encode_record(Record(0, 0, content, content), size, 0)
    assert bytes(batch[HEADER_SIZE:]) == varint(len(same)) + same


def test_a_timestamp_below_the_first_is_a_negative_delta() -> None:
    assert encode_record(Record(0, 0, None, None), 0, -3) == b"\0\x05\0\1\1\0"


@given(RECORDS, st.sampled_from(CODEC_NAMES), st.integers(0, 2**60))
def test_records_come_back_as_they_went_in(
    records: list[Record], codec: str, base_offset: int
) -> None:
    data = build_batch(records, codec=codec, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + i) for i, record in enumerate(records)]
    assert read_all(data) == expected


def test_compaction_keeps_the_offsets_of_records() -> None:
    records = [Record(10, 5, b"a", b"1"), Record(17, 6, b"b", b"2")]
    data = build_batch(records, base_offset=10, keep_offsets=True)
    assert read_all(data) == records
    assert read_header(data).last_offset == 17


def test_an_empty_batch_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        build_batch([])


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ValueError, match="brotli"):
        build_batch([Record(0, 0, None, b"x")], codec="brotli")


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_says_how_the_transaction_ended(commit: bool) -> None:
    data = control_batch(commit, 7, 3, 12, 1000)
    header = read_header(data)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    [record] = read_all(data)
    assert read_end_marker(record) == EndMarker(commit, 12)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 2**31 - 1])
def test_a_marker_is_the_batch_of_its_one_record(commit: bool, coordinator_epoch: int) -> None:
    """The marker is packed in one step; here it is built from its parts."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    assert control_batch(
        commit, 2**40, 3, coordinator_epoch, 1000, base_offset=2**50, leader_epoch=5
    ) == build_batch(
        [Record(0, 1000, key, value)],
        base_offset=2**50,
        producer_id=2**40,
        producer_epoch=3,
        transactional=True,
        control=True,
        leader_epoch=5,
    )


@given(RECORDS, st.sampled_from(CODEC_NAMES))
def test_the_crc_of_a_batch_is_right(records: list[Record], codec: str) -> None:
    data = build_batch(records, codec=codec, producer_id=7, transactional=True)
    assert check_crc(data, 0, read_header(data))


def test_a_control_record_of_another_kind_ends_no_transaction() -> None:
    assert read_end_marker(Record(0, 0, b"\x00\x00\x00\x02", b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"\x00", b""), (b"\x00\x00\x00\x01", None), (b"\xff\xff\x00\x01", b"\x00" * 6)],
)
def test_a_broken_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_end_marker(Record(0, 0, key, value))
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_damaged_records_raise_protocol_errors_only(codec: str) -> None:
    records = [Record(0, i, b"key%d" % i, b"v" * i, [("h", b"x")]) for i in range(30)]
    data = build_batch(records, codec=codec)
    header = read_header(data)

    def parse(body: bytes) -> object:
        length = HEADER_SIZE + len(body)
        fields = (header.base_offset, length - 12, *header[2:])
        return read_all(HEADER.pack(*fields) + body)

    check_damage(parse, bytes(data[HEADER_SIZE:]), seed=3, rounds=150)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_a_small_batch_cannot_ask_for_unbounded_memory(codec: str) -> None:
    data = build_batch([Record(0, 0, None, bytes(5_000_000))], codec=codec)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as caught:
            read_all(data, limit_bytes=100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.message_too_large
    assert peak < 1_000_000


def test_a_count_that_the_bytes_cannot_hold_is_refused_at_once() -> None:
    data = build_batch([Record(0, 0, None, b"x")])
    header = read_header(data)._replace(record_count=2**31 - 1)
    with pytest.raises(ProtocolError) as caught:
        list(iter_records(data, 0, header))
    assert caught.value.code is ErrorCode.corrupt_message


NAME = b"\xff na\x80me \xc3"
"""No UTF-8; Kafka stores it as any other name."""


def with_such_a_name() -> bytearray:
    batch = build_batch([Record(0, 1, b"k", b"v", (("n" * len(NAME), b"c"), ("plain", None)))])
    at = batch.index(b"n" * len(NAME))
    batch[at : at + len(NAME)] = NAME
    renew_crc(batch, 0, len(batch))
    return batch


def test_a_headers_name_that_is_no_utf_8_keeps_its_bytes() -> None:
    batch = with_such_a_name()
    (record,) = read_all(batch)
    (name, content), other = record.headers
    assert (name.encode("utf-8", "surrogateescape"), content) == (NAME, b"c")
    assert other == ("plain", None)
    assert build_batch([record]) == batch

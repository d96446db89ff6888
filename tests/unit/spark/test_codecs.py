"""Arrow <-> record batches, judged by the per-record codec of `oncelog.protocol.record`."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.machines.fetching import visible_batches
from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import check_crc, iter_headers, read_header
from oncelog.protocol.record import Record, build_batch, control_batch, iter_records
from oncelog.spark.codecs import (
    HEADERS_TYPE,
    DecodedRecords,
    EncodedRecordBatch,
    decode_batches,
    encode_batches,
)
from tests.support.old_formats import fields, message_set
from tests.unit.protocol.test_record import with_such_a_name

NO_HEADERS = ()
Headers = list[tuple[str, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers, int]
field = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
rows = st.lists(st.tuples(field, field, headers, st.integers(0, 2**41)), min_size=1, max_size=40)


def encode(
    given_rows: list[Row], batch_size: int = 1 << 20, codec: str = "none"
) -> list[EncodedRecordBatch]:
    keys, values, header_lists, timestamps = zip(*given_rows, strict=True)
    as_structs = [[{"key": k, "value": v} for k, v in hs] or None for hs in header_lists]
    return list(
        encode_batches(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(as_structs, HEADERS_TYPE),
            np.array(timestamps, np.int64),
            batch_size=batch_size,
            codec=codec,
        )
    )


def records_of(batches: Iterable[EncodedRecordBatch]) -> list[Row]:
    out = []
    for batch in batches:
        for position, header in iter_headers(batch.data):
            assert check_crc(batch.data, position, header)
            assert header.record_count == batch.record_count
            out += [
                (r.key, r.value, list(r.headers), r.timestamp)
                for r in iter_records(batch.data, position, header)
            ]
    return out


def decoded_rows(
    parts: Iterable[DecodedRecords],
) -> list[tuple[int, bytes | None, bytes | None, Headers, int]]:
    out = []
    for part in parts:
        for i in range(len(part)):
            hs = part.headers[i].as_py()
            out.append(
                (
                    int(part.offsets[i]),
                    part.keys[i].as_py(),
                    part.values[i].as_py(),
                    [(h["key"], h["value"]) for h in hs or []],
                    int(part.timestamps_ms[i]),
                )
            )
    return out


@settings(deadline=None)
@given(rows, st.sampled_from([100, 700, 1 << 20]), st.sampled_from(["none", "gzip", "lz4", "zstd"]))
def test_what_is_encoded_is_read_back_by_the_record_codec(
    given_rows: list[Row], batch_size: int, codec: str
) -> None:
    expected = [(k, v, hs, t) for k, v, hs, t in given_rows]
    assert records_of(encode(given_rows, batch_size, codec)) == expected


@settings(deadline=None)
@given(rows, st.integers(0, 2**40), st.sampled_from(["none", "snappy", "zstd"]))
def test_what_the_record_codec_builds_is_decoded_into_the_same_columns(
    given_rows: list[Row], base: int, codec: str
) -> None:
    records = [Record(base + i, t, k, v, tuple(hs)) for i, (k, v, hs, t) in enumerate(given_rows)]
    buffer = build_batch(records, base_offset=base, codec=codec)
    expected = [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in records]
    assert decoded_rows(decode_batches(buffer, 0, 2**62)) == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(rows, st.sampled_from(["none", "snappy", "zstd"])), min_size=2, max_size=6),
    st.sampled_from([1, 500, 1 << 20]),
)
def test_batches_that_are_decoded_together_have_the_same_columns(
    parts: list[tuple[list[Row], str]], size_max: int
) -> None:
    buffer, expected, base = bytearray(), [], 0
    for given_rows, codec in parts:
        records = [
            Record(base + i, t, k, v, tuple(hs)) for i, (k, v, hs, t) in enumerate(given_rows)
        ]
        buffer += build_batch(records, base_offset=base, codec=codec)
        expected += [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in records]
        base += len(records) + 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oncelog.spark.codecs.DECODE_SIZE_MAX", size_max)
        assert decoded_rows(decode_batches(buffer, 0, 2**62)) == expected
        assert decoded_rows(decode_batches(bytes(buffer), 1, base - 4)) == [
            row for row in expected if 1 <= row[0] < base - 4
        ]


def test_each_of_many_batches_keeps_its_type_of_timestamp() -> None:
    by_log, by_client = numbered(0, 3), numbered(3, 3)
    header = read_header(by_log)
    by_log[21:23] = (header.attributes | 0x08).to_bytes(2, "big")
    by_log[35:43] = (99).to_bytes(8, "big")
    (records,) = decode_batches(by_log + by_client, 0, 100)
    assert records.timestamps_ms.tolist() == [99, 99, 99, 7, 7, 7]
    assert records.timestamp_types.tolist() == [1, 1, 1, 0, 0, 0]


def test_records_that_reach_into_the_next_batch_are_refused() -> None:
    first, second = numbered(0, 2), numbered(2, 2)
    # The same bytes and as many records, but the second batch claims the last byte of the first.
    moved = first[:-1] + second[:61] + first[-1:] + second[61:]
    moved[8:12] = (len(first) - 1 - 12).to_bytes(4, "big")
    at = len(first) - 1 + 8
    moved[at : at + 4] = (len(second) + 1 - 12).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="end elsewhere"):
        list(decode_batches(moved, 0, 100))


def numbered(first: int, count: int) -> bytearray:
    records = [Record(first + i, 7, b"k", b"%d" % (first + i), NO_HEADERS) for i in range(count)]
    return build_batch(records, base_offset=first)


def test_records_outside_the_range_are_left_out_and_control_batches_too() -> None:
    buffer = numbered(0, 5) + control_batch(True, 1, 0, 0, 7, base_offset=5) + numbered(6, 5)
    offsets = [row[0] for row in decoded_rows(decode_batches(buffer, 3, 9))]
    assert offsets == [3, 4, 6, 7, 8]


def test_batches_are_cut_at_batch_size_and_a_large_record_stands_alone() -> None:
    given_rows: list[Row] = [(None, b"x" * size, [], 1) for size in (100, 100, 5000, 100)]
    batches = encode(given_rows, batch_size=400)
    assert [batch.record_count for batch in batches] == [2, 1, 1]
    assert all(len(batch.data) <= 400 for batch in batches if batch.record_count > 1)


def test_slices_of_arrow_columns_are_encoded_from_where_they_begin() -> None:
    values = pa.array([b"a", b"b", b"c", None], pa.binary())[1:]
    batches = list(encode_batches(values, values, None, np.array([1, 2, 3]), batch_size=1 << 20))
    assert [row[1] for row in records_of(batches)] == [b"b", b"c", None]


@pytest.mark.parametrize("keep", range(62, 120, 7))
def test_a_batch_whose_records_are_cut_is_refused(keep: int) -> None:
    buffer = numbered(0, 20)
    cut = bytearray(buffer[:keep])
    cut[8:12] = (keep - 12).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="CORRUPT_MESSAGE"):
        list(decode_batches(cut, 0, 100))


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=80))
def test_garbage_in_place_of_records_never_does_worse_than_a_protocol_error(garbage: bytes) -> None:
    buffer = numbered(0, 3)[:61] + garbage
    buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
    try:
        decoded = decoded_rows(decode_batches(buffer, 0, 2**62))
    except ProtocolError:
        return
    assert len(decoded) <= 3


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_from_before_kafka_0_11_become_columns(magic: int, codec: str) -> None:
    """The client gives them to Spark as batches of v2."""
    data = bytes(message_set(magic, 4, 6, codec))
    fetched = visible_batches(data, 5, None)
    (found,) = decode_batches(fetched.batches, 5, 9)
    rows = zip(
        found.offsets.tolist(),
        found.timestamps_ms.tolist(),
        found.keys.to_pylist(),
        found.values.to_pylist(),
        strict=True,
    )
    assert list(rows) == [fields(offset, magic) for offset in range(5, 9)]


def test_a_headers_name_that_is_no_utf_8_has_replacement_characters() -> None:
    (found,) = decode_batches(with_such_a_name(), 0, 1)
    (headers,) = found.headers.to_pylist()
    assert [header["key"] for header in headers] == ["\ufffd na\ufffdme \ufffd", "plain"]

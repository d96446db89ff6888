"""Scanning reads what the careful way reads, and names what is damaged."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import HEADER, HEADER_SIZE, BatchHeader, iter_headers, renew_crc
from oncelog.protocol.record import Record, build_batch, control_batch, iter_records
from oncelog.protocol.records.scan import DamagedRecord, ScannedRecord, scan_batches
from tests.support.examples import examples


@dataclass(frozen=True)
class Shape:
    """One batch: (offset delta, timestamp delta, key, value, with headers) of each record."""

    records: Sequence[tuple[int, int, bytes | None, bytes | None, bool]]
    codec: str
    timestamp_type: int
    transactional: bool


fields = st.one_of(
    st.none(),
    st.binary(max_size=3),
    st.binary(min_size=60, max_size=70),
    st.sampled_from([8_100, 8_191, 8_192, 20_000]).map(bytes),
)
one_record = st.tuples(st.integers(0, 200), st.integers(-200, 200), fields, fields, st.booleans())
shapes = st.builds(
    Shape,
    st.lists(one_record, min_size=1, max_size=3),
    st.sampled_from(["none", "none", "none", "gzip"]),
    st.sampled_from([0, 0, 0, 1]),
    st.booleans(),
)


def build(shapes: Sequence[Shape]) -> bytes:
    out, offset = bytearray(), 0
    for shape in shapes:
        records = []
        at = offset
        for delta, time, key, value, has_headers in shape.records:
            headers = (("name", b"content"),) if has_headers else ()
            records.append(Record(at + delta, 1_000 + time, key, value, headers))
            at = records[-1].offset + 1
        out += build_batch(
            records,
            base_offset=offset,
            codec=shape.codec,
            timestamp_type=shape.timestamp_type,
            transactional=shape.transactional,
            producer_id=5 if shape.transactional else -1,
            keep_offsets=True,
        )
        offset = at + 7
    return bytes(out)


def emptied(batch: bytearray) -> bytes:
    """What compaction leaves of a batch whose records all went: its header."""
    header = list(HEADER.unpack_from(batch))
    header[1], header[12] = HEADER_SIZE - 12, 0
    left = bytearray(HEADER.pack(*header))
    renew_crc(left, 0, len(left))
    return bytes(left)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(shapes, max_size=6), st.integers(1, 3))
def test_scanning_reads_what_walking_the_records_reads(wanted: list[Shape], run_count: int) -> None:
    batches = build(wanted)
    found = list(scan_batches(batches, 0, run_count))
    expected: list[tuple[BatchHeader | None, ScannedRecord]] = []
    for position, header in iter_headers(batches):
        is_plain = not (header.is_transactional or header.is_control)
        for record in iter_records(batches, position, header):
            expected.append((None if is_plain else header, record[:4]))
    assert [(one.header, record) for one in found for record in one.records] == expected
    assert all(len(one.records) <= max(3, run_count) for one in found)
    assert [one.next_offset for one in found] == sorted({one.next_offset for one in found})


def test_an_empty_batch_and_a_gap_are_passed_over() -> None:
    first = emptied(build_batch([Record(0, 1, b"k", b"v")] * 3, base_offset=4))
    second = build_batch([Record(0, 1, b"k", b"v")], base_offset=90)
    found = list(scan_batches(first + bytes(second), 2))
    assert [(one.next_offset, one.records) for one in found] == [
        (7, []),
        (91, [(90, 1, b"k", b"v")]),
    ]


def test_an_end_marker_is_a_record_too() -> None:
    ((header, records, _),) = scan_batches(bytes(control_batch(True, 5, 0, 0, 1)), 0)
    assert header is not None
    assert header.is_control
    assert len(records) == 1


@pytest.mark.parametrize("position", range(16, 75))
def test_any_flipped_bit_is_named_with_its_offset(position: int) -> None:
    """All but the base offset, the length and the leader epoch are covered by magic and CRC."""
    batches = bytearray(build_batch([Record(0, 1, b"key", b"value")], base_offset=8))
    sound = len(batches)
    batches += build_batch([Record(0, 1, b"key", b"value")], base_offset=9)
    batches[sound + position % (len(batches) - sound)] ^= 0x10
    scan = scan_batches(bytes(batches), 8)
    assert next(scan).next_offset == 9
    with pytest.raises(DamagedRecord, match="offset 9") as caught:
        next(scan)
    assert caught.value.offset == 9


def test_offsets_that_do_not_rise_are_damage() -> None:
    batch = bytes(build_batch([Record(0, 1, b"key", b"value")], base_offset=3))
    with pytest.raises(ProtocolError, match="offset 4: offsets do not rise"):
        list(scan_batches(batch + batch, 3))

import pytest

from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.simulation.oracle.batches import RawEndMarker, batches_in
from oncelog.simulation.oracle.cursor import BytesCursor
from oncelog.simulation.oracle.files import crc32c

RECORDS = [Record(0, 1_000, b"key", b"value" * 50), Record(1, 1_007, None, None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_read(codec: str) -> None:
    data = bytes(build_batch(RECORDS, base_offset=5, codec=codec))
    (batch,) = batches_in(data)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (5, 6, 2)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in batch.records()] == [
        (5, 1_000, b"key", b"value" * 50),
        (6, 1_007, None, None),
    ]


def test_batches_are_read_up_to_a_torn_one() -> None:
    whole = bytes(build_batch(RECORDS, producer_id=7, producer_epoch=2, base_sequence=2**31 - 1))
    first, second = batches_in(whole + whole + whole[:-1])
    assert (first.producer_id, first.producer_epoch) == (7, 2)
    assert (first.base_sequence, first.last_sequence) == (2**31 - 1, 0)
    assert (second.position, second.data) == (len(whole), whole)
    assert [batch.position for batch in batches_in(whole * 2, len(whole))] == [len(whole)]


def test_end_markers_are_read_and_other_batches_are_none() -> None:
    data = bytes(control_batch(False, 1, 2, 9, 1_000) + build_batch(RECORDS))
    marker, plain = batches_in(data)
    assert marker.is_control
    assert marker.end_marker() == RawEndMarker(is_commit=False, coordinator_epoch=9)
    assert plain.end_marker() is None


def test_both_kinds_of_lengths_and_tags_are_read() -> None:
    classic = BytesCursor(b"\x00\x02ab\xff\xff\x00\x00\x00\x01\x07")
    assert (classic.text(), classic.text()) == ("ab", None)
    assert classic.blob() == b"\x07"
    flexible = BytesCursor(b"\x03ab\x00\x01\x05\x02hi")
    flexible.flexible = True
    assert (flexible.text(), flexible.text()) == ("ab", None)
    assert flexible.tags()[5].data == b"hi"


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283

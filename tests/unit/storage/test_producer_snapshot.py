import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.producer_snapshot import (
    format_batches,
    format_snapshot,
    parse_batches,
    parse_snapshot,
)
from oncelog.storage.producer_state import CachedBatch, EndedTransactions, ProducerEntry

ENTRIES = [
    ProducerEntry(
        7, 2, 5, 1000, 40, [CachedBatch(0, 1, 40, 41, 900), CachedBatch(2, 4, 42, 44, 950)]
    ),
    ProducerEntry(8, 0, -1, 2000),
    ProducerEntry(9, 1, 0, 3000, -1, [CachedBatch(2**31 - 1, 1, 50, 52, 3000)]),
]
ENDED = EndedTransactions(31, {20: 33, 30: 32})


def test_kafkas_file_keeps_the_last_batch() -> None:
    data = format_snapshot(ENTRIES)
    assert len(data) == 10 + 46 * 3
    assert data[:2] == b"\x00\x01"
    found = parse_snapshot(data)
    assert found is not None
    first, second, third = found
    assert (first.producer_id, first.epoch, first.coordinator_epoch) == (7, 2, 5)
    assert (first.last_timestamp_ms, first.transaction_first_offset) == (1000, 40)
    assert first.batches == [CachedBatch(2, 4, 42, 44, 1000)]
    assert (second.batches, second.last_sequence) == ([], -1)
    assert third.batches == ENTRIES[2].batches


def test_our_file_keeps_all_cached_batches() -> None:
    found = parse_batches(format_batches(ENTRIES, ENDED))
    assert found == ({7: ENTRIES[0].batches, 9: ENTRIES[2].batches}, ENDED)


@pytest.mark.slow
@given(st.integers(0, 147), st.integers(1, 255))
def test_any_damaged_byte_is_noticed(position: int, change: int) -> None:
    for data, parse in (
        (format_snapshot(ENTRIES), parse_snapshot),
        (format_batches(ENTRIES, ENDED), parse_batches),
    ):
        torn = bytearray(data)
        torn[position % len(data)] ^= change
        assert parse(bytes(torn)) is None
        assert parse(data[: position % len(data)]) is None
    assert parse_snapshot(None) is None
    assert parse_batches(None) is None

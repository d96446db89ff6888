from oncelog.storage.aborted import (
    ABORTED_ENTRY_SIZE_BYTES,
    AbortedTransactions,
    AbortedTxn,
    format_aborted,
    parse_aborted,
)

FIRST = AbortedTxn(1, 0, 9, 4)
SECOND = AbortedTxn(2, 4, 12, 13)
THIRD = AbortedTxn(1, 20, 25, 26)


def filled() -> AbortedTransactions:
    aborted = AbortedTransactions()
    for entry in (FIRST, SECOND, THIRD):
        aborted.append(entry)
    return aborted


def test_a_range_finds_the_transactions_that_overlap_it() -> None:
    aborted = filled()
    assert aborted.overlapping(0, 4) == [FIRST]
    assert aborted.overlapping(0, 5) == [FIRST, SECOND]
    assert aborted.overlapping(10, 30) == [SECOND, THIRD]
    assert aborted.overlapping(13, 20) == []
    assert aborted.overlapping(26, 30) == []
    assert AbortedTransactions().overlapping(0, 100) == []


def test_truncation_from_both_ends() -> None:
    aborted = filled()
    aborted.truncate_from_end(25)
    assert aborted.between(0, 100) == [FIRST, SECOND]
    aborted.truncate_from_start(10)
    assert aborted.between(0, 100) == [SECOND]
    assert len(aborted) == 1


def test_the_index_file_has_kafkas_entries() -> None:
    data = format_aborted([FIRST, SECOND])
    assert ABORTED_ENTRY_SIZE_BYTES == 34
    assert data[:34].hex() == "0000" + "".join(f"{n:016x}" for n in FIRST)
    assert parse_aborted(data) == [FIRST, SECOND]
    assert parse_aborted(None) == []
    assert parse_aborted(data[:-1]) is None
    assert parse_aborted(format_aborted([SECOND, FIRST])) is None
    # Each entry ends behind the one before, not only behind the first.
    assert parse_aborted(format_aborted([FIRST, THIRD, SECOND])) is None
    assert parse_aborted(b"\x00\x09" + data[2:]) is None

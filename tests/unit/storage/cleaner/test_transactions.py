"""Which markers a cleaning may drop, told batch by batch."""

from oncelog.protocol.batch import BatchHeader, read_header
from oncelog.protocol.record import EndMarker, Record, build_batch, control_batch
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.cleaner.transactions import CleanedTransactions

COMMIT, ABORT = EndMarker(True, 0), EndMarker(False, 0)


def data(offset: int, producer: int, *, transactional: bool = True) -> BatchHeader:
    made = build_batch(
        [Record(0, 0, b"k", b"v")],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )
    return read_header(made)


def end(offset: int, producer: int) -> BatchHeader:
    return read_header(control_batch(True, producer, 0, 0, 0, base_offset=offset))


def test_a_marker_is_over_when_no_batch_of_its_transaction_was_met() -> None:
    passed = CleanedTransactions([])
    assert not passed.is_aborted(data(0, 1))
    assert not passed.is_over(end(1, 1), COMMIT)
    assert passed.is_over(end(2, 1), COMMIT)
    assert not passed.is_aborted(data(3, 1, transactional=False))
    assert passed.is_over(end(4, 1), COMMIT)


def test_aborted_transactions_are_kept_while_their_batches_are_met() -> None:
    entries = [AbortedTxn(2, 5, 8, 9), AbortedTxn(1, 0, 3, 4)]
    passed = CleanedTransactions(entries)
    assert passed.is_aborted(data(0, 1))
    assert not passed.is_aborted(data(1, 3))
    assert not passed.is_over(end(3, 1), ABORT)
    assert passed.take_kept() == [entries[1]]
    # Its records are gone, so all that came between is of others.
    assert passed.is_over(end(8, 2), ABORT)
    assert passed.take_kept() == []
    assert not passed.is_aborted(data(9, 1))


def test_a_marker_without_an_entry_any_more_is_over() -> None:
    assert CleanedTransactions([]).is_over(end(3, 1), ABORT)


def test_an_emptied_control_batch_is_over_and_other_control_records_never_are() -> None:
    passed = CleanedTransactions([])
    assert passed.is_over(end(3, 1)._replace(record_count=0), None)
    assert not passed.is_over(end(3, 1), None)

"""The last committed value of a key, whatever other producers have open."""

import pytest

from oncelog.client.machines.decided import DecidedValue
from oncelog.core.errors import ProtocolError
from oncelog.protocol.record import Record, build_batch, control_batch

KEY = b"app"


def data(offset: int, producer_id: int, value: bytes | None, key: bytes = KEY) -> bytes:
    return bytes(
        build_batch(
            [Record(offset, 0, key, value, ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def end(offset: int, producer_id: int, commit: bool) -> bytes:
    return bytes(control_batch(commit, producer_id, 0, 0, 0, base_offset=offset))


def decided(log: bytes) -> DecidedValue:
    value = DecidedValue(KEY)
    value.read(log, 0)
    return value


def test_a_record_counts_once_its_own_transaction_committed() -> None:
    open_one = data(0, 5, b"one")
    assert (decided(open_one).value, decided(open_one).is_undecided) == (None, True)
    closed = decided(open_one + end(1, 5, commit=True))
    assert (closed.value, closed.is_undecided) == (b"one", False)


def test_an_aborted_record_leaves_the_one_before_it() -> None:
    log = data(0, 5, b"one") + end(1, 5, commit=True) + data(2, 5, b"two") + end(3, 5, commit=False)
    assert decided(log).value == b"one"


def test_open_transactions_of_others_hide_nothing() -> None:
    log = data(0, 9, b"theirs", key=b"other") + data(1, 5, b"one") + end(2, 5, commit=True)
    assert (decided(log).value, decided(log).is_undecided) == (b"one", False)


def test_the_end_of_another_producer_decides_nothing_of_ours() -> None:
    log = data(0, 5, b"one") + data(1, 9, b"theirs", key=b"other") + end(2, 9, commit=True)
    assert (decided(log).value, decided(log).is_undecided) == (None, True)


def test_a_record_outside_transactions_and_a_tombstone_count_at_once() -> None:
    assert decided(data(0, -1, b"by hand")).value == b"by hand"
    assert decided(data(0, -1, b"by hand") + data(1, -1, None)).value is None


def test_the_last_record_of_the_key_in_a_batch_counts() -> None:
    records = [
        Record(0, 0, b"other", b"theirs", ()),
        Record(1, 0, KEY, b"one", ()),
        Record(2, 0, KEY, b"two", ()),
    ]
    assert decided(bytes(build_batch(records))).value == b"two"


def test_records_below_the_position_were_read_before() -> None:
    log = data(0, 5, b"one") + end(1, 5, commit=True) + data(2, -1, b"two")
    value = DecidedValue(KEY)
    assert value.read(log, 0) == 3
    assert value.read(data(2, -1, b"again"), 3) == 3
    assert value.value == b"two"


def test_a_batch_cut_off_is_left_for_the_next_fetch_and_a_damaged_one_refused() -> None:
    log = data(0, -1, b"one") + data(1, -1, b"two")
    assert DecidedValue(KEY).read(log[:-1], 0) == 1
    with pytest.raises(ProtocolError, match="CRC"):
        DecidedValue(KEY).read(log[:-1] + b"x", 0)

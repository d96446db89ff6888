"""What a reader may see (INV-3)."""

import pytest

from oncelog.client.machines.fetching import Aborted, visible_batches
from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import Record, build_batch, control_batch


def batch(offset: int, producer_id: int = -1, count: int = 1) -> bytes:
    records = [Record(offset + i, 0, None, b"v", ()) for i in range(count)]
    return bytes(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    made = control_batch(commit, producer_id, 0, 0, 0)
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def offsets(buffer: bytes | bytearray | memoryview) -> list[int]:
    return [header.base_offset for _position, header in iter_headers(buffer)]


def test_control_batches_are_left_out_and_passed_over() -> None:
    seen = visible_batches(batch(0, 5) + marker(1, 5, True), 0, None)
    assert offsets(seen.batches) == [0]
    assert seen.next_offset == 2


def test_an_aborted_producer_is_hidden_from_its_first_offset_to_its_marker() -> None:
    log = (
        batch(0, 5)
        + marker(1, 5, True)
        + batch(2, 5)
        + batch(3, 6)
        + batch(4)
        + marker(5, 5, False)
        + batch(6, 5)
        + marker(7, 5, True)
    )
    seen = visible_batches(log, 0, [Aborted(2, 5)])
    assert offsets(seen.batches) == [0, 3, 4, 6]
    assert seen.next_offset == 8


def test_two_aborted_transactions_of_one_producer_are_both_hidden() -> None:
    log = batch(0, 5) + marker(1, 5, False) + batch(2, 5) + marker(3, 5, False) + batch(4)
    seen = visible_batches(log, 0, [Aborted(2, 5), Aborted(0, 5)])
    assert offsets(seen.batches) == [4]


def test_read_uncommitted_sees_aborted_records() -> None:
    assert offsets(visible_batches(batch(0, 5) + marker(1, 5, False), 0, None).batches) == [0]


def test_a_cut_batch_at_the_end_is_ignored() -> None:
    log = batch(0) + batch(1)
    seen = visible_batches(log[:-3], 0, None)
    assert offsets(seen.batches) == [0]
    assert seen.next_offset == 1


def test_the_position_moves_past_a_fetch_with_nothing_to_see() -> None:
    seen = visible_batches(batch(3, 5, count=4) + marker(7, 5, False), 3, [Aborted(3, 5)])
    assert (bytes(seen.batches), seen.next_offset) == (b"", 8)


def test_an_empty_fetch_keeps_the_position() -> None:
    assert visible_batches(b"", 42, []).next_offset == 42


def test_batches_before_the_position_are_left_out() -> None:
    assert offsets(visible_batches(batch(0, count=2) + batch(2), 2, None).batches) == [2]


def test_nothing_is_copied_when_everything_is_seen() -> None:
    log = bytearray(batch(0) + batch(1))
    seen = visible_batches(log, 0, [])
    assert isinstance(seen.batches, memoryview)
    assert seen.batches.obj is log


def test_what_is_on_both_sides_of_a_dropped_batch_is_put_together() -> None:
    log = batch(0) + batch(1) + batch(2, 5) + batch(3) + batch(4)
    seen = visible_batches(log, 0, [Aborted(2, 5)])
    assert offsets(seen.batches) == [0, 1, 3, 4]


def test_bytes_that_are_no_batches_are_refused() -> None:
    with pytest.raises(ProtocolError):
        visible_batches(b"\0" * 80, 0, None)


def damaged(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def test_a_damaged_batch_ends_what_may_be_seen() -> None:
    log = batch(0) + batch(1) + damaged(batch(2)) + batch(3)
    seen = visible_batches(log, 0, None)
    assert offsets(seen.batches) == [0, 1]
    assert seen.next_offset == 2
    with pytest.raises(ProtocolError, match="offset 2"):
        visible_batches(damaged(batch(2)) + batch(3), 2, None)
    with pytest.raises(ProtocolError, match="offset 2"):
        visible_batches(damaged(batch(2, count=3)), 3, None)


def test_a_damaged_marker_is_not_believed() -> None:
    log = batch(0, 5) + damaged(marker(1, 5, False)) + batch(2, 5)
    seen = visible_batches(log, 0, [Aborted(0, 5)])
    assert (seen.batches, seen.next_offset) == (b"", 1)


def test_checks_can_be_left_out() -> None:
    seen = visible_batches(damaged(batch(0)) + batch(1), 0, None, check_crcs=False)
    assert offsets(seen.batches) == [0, 1]

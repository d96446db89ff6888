"""A folder's `.log` files, read again and again while they change."""

from __future__ import annotations

from oncelog.simulation.oracle.history import RawLog
from tests.unit.storage.context import batch

NAMES = [f"{base:020}.log" for base in (0, 1)]


def written(epoch: int, value: bytes = b"value") -> bytes:
    data = batch(value=value)
    data[12:16] = epoch.to_bytes(4)
    return bytes(data)


def epochs_of(raw: RawLog, *files: bytes) -> list[int]:
    """The epochs of the batches that are read from files with these bytes."""
    held = dict(zip(NAMES, files, strict=False))
    raw.read(held, held.__getitem__)
    return [each.leader_epoch for each in raw.batches()]


def test_what_was_added_is_read_behind_what_is_known() -> None:
    raw = RawLog()
    assert epochs_of(raw, written(1)) == [1]
    assert epochs_of(raw, written(1) + written(2) + b"\0" * 20) == [1, 2]
    assert epochs_of(raw, written(1) + written(2), written(3)) == [1, 2, 3]
    assert raw.turn == 0


def test_a_log_that_was_cut_and_has_grown_as_long_again_is_read_anew() -> None:
    raw = RawLog()
    epochs_of(raw, written(0))
    assert epochs_of(raw, written(2)) == [2]
    assert epochs_of(raw, written(3) + written(3)) == [3, 3]
    assert raw.turn == 2
    assert raw.state.epochs[0][0] == 3


def test_a_sealed_file_with_other_bytes_is_read_anew() -> None:
    raw = RawLog()
    epochs_of(raw, written(0), written(1))
    assert epochs_of(raw, written(1), written(1)) == [1, 1]
    assert epochs_of(raw, written(1)) == [1]
    assert raw.turn == 2

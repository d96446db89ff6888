"""A record of a sealed segment is believed only as it was written."""

from pathlib import Path

import pytest

from oncelog.runtime.disk import SystemDisk
from oncelog.storage.files import REGISTER_NAME
from oncelog.storage.segment_register import SealedSegment, SegmentRegister, parse_register

ONE = SealedSegment(0, 7, 500, 1, 2, 3, is_damaged=False)
OTHER = SealedSegment(7, 12, 400, 4, 5, 6, is_damaged=True)


@pytest.fixture
def written(tmp_path: Path) -> bytes:
    """A register of two segments."""
    register = SegmentRegister(SystemDisk(), str(tmp_path), is_new=True)
    register.add(ONE)
    register.add(OTHER)
    return (tmp_path / REGISTER_NAME).read_bytes()


def test_records_are_read_as_they_were_written(written: bytes) -> None:
    assert parse_register(written) == [ONE, OTHER]


def test_a_record_with_any_flipped_bit_is_none_and_the_other_one_stays(written: bytes) -> None:
    size = len(written) // 2
    for position in range(size):
        for bit in range(8):
            damaged = bytearray(written)
            damaged[position] ^= 1 << bit
            assert parse_register(bytes(damaged)) == [None, OTHER], (position, bit)


def test_half_a_record_at_the_end_is_no_record(written: bytes) -> None:
    assert parse_register(written[:-1]) == [ONE]


def test_a_forgotten_segment_was_never_whole(tmp_path: Path) -> None:
    register = SegmentRegister(SystemDisk(), str(tmp_path), is_new=True)
    register.add(ONE)
    register.add(OTHER)
    assert register.was_whole(0, 500, 7)
    register.keep_only([7])
    assert not register.was_whole(0, 500, 7)

"""The memory of large frames: used again, unless somebody still looks into it."""

from oncelog.broker.net.frames import ReadBuffer
from oncelog.core.limits import FRAME_BYTES_MIN, SPARE_FRAME_BYTES_MAX


def test_the_memory_of_a_frame_with_views_is_not_reused() -> None:
    shared = ReadBuffer()
    frame = bytearray(b"x" * FRAME_BYTES_MIN)
    view = memoryview(frame)
    shared.keep(frame)
    other = shared.new_frame(FRAME_BYTES_MIN, 10)
    assert other is not frame
    assert bytes(view) == b"x" * FRAME_BYTES_MIN


def test_a_small_or_huge_frame_is_not_kept() -> None:
    shared = ReadBuffer()
    for size in (FRAME_BYTES_MIN - 1, SPARE_FRAME_BYTES_MAX + 1):
        shared.keep(bytearray(size))
        assert shared._spare is None

"""Marks where records stay: exact while memory allows, and never one too few."""

import pytest

from oncelog.core import limits
from oncelog.storage.cleaner import marks as module
from oncelog.storage.cleaner.marks import Marks


def test_a_range_without_a_mark_is_known() -> None:
    marks = Marks(10, 20)
    marks.add([12, 17])
    assert marks.none_between(10, 11)
    assert not marks.none_between(10, 12)
    assert marks.none_between(13, 16)
    assert not marks.none_between(17, 17)
    assert marks.none_between(18, 19)


def test_nothing_is_known_outside_of_the_part_that_was_marked() -> None:
    marks = Marks(10, 20)
    assert not marks.none_between(9, 10)
    assert not marks.none_between(19, 20)
    assert not Marks(10, 10).none_between(10, 10)


@pytest.mark.parametrize("count", [7, 8, 9, 1000, 2**40])
def test_marks_of_many_offsets_stay_within_their_memory(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLEANER_MARKS_SIZE_BYTES", 8)
    first = 1000
    marks = Marks(first, first + count)
    assert len(marks._marks) <= 8 + 1
    marks.add([first, first + count - 1])
    assert not marks.none_between(first, first)
    assert not marks.none_between(first + count // 2, first + count - 1)
    assert marks.none_between(first + count // 2, first + count // 2 + count // 16)


def test_the_memory_of_marks_is_small_beside_that_of_the_keys() -> None:
    assert limits.CLEANER_MARKS_SIZE_BYTES * 100 <= 128 * 1024 * 1024

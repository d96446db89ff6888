"""The share of `Any` is counted by room, and one room above the bound is named."""

from tests.support.any_share import Share, shares, too_high

REPORT = """
                Name   Anys    Exprs   Coverage
-----------------------------------------------
             oncelog      1       40     97.50%
    oncelog.__main__      1        2     50.00%
   oncelog.core.ids       3      100     97.00%
 oncelog.core.errors      0      300    100.00%
oncelog.spark.sink       90      100     10.00%
-----------------------------------------------
               Total     95      542     82.47%
"""


def test_modules_are_added_up_by_room_and_those_beside_the_rooms_left_out() -> None:
    assert shares(REPORT) == [Share("core", 3, 400), Share("spark", 90, 100)]


def test_a_room_with_one_percent_is_too_high_unless_it_is_exempt() -> None:
    low, high, exempt = Share("core", 3, 400), Share("peer", 10, 1000), Share("spark", 90, 100)
    assert too_high([low, high, exempt]) == [high]


def test_a_room_without_expressions_has_no_share() -> None:
    assert Share("core", 0, 0).percent == 0

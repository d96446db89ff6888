"""What `python -m tests.spark.soak` draws."""

from tests.spark.crash_table import LARGE
from tests.spark.faults import CASES
from tests.spark.queries import QUERIES
from tests.spark.soak import draw


def test_every_case_is_drawn_equally_often_and_every_fault_can_strike() -> None:
    for seed in range(20):
        drawn = draw(10 * len(CASES), seed)
        hits = [(case.row, case.victim) for case in drawn]
        assert {hits.count(case) for case in CASES} == {10}
        in_a_task = [case for case in drawn if case.row == "mid_task"]
        assert all(case.batch >= QUERIES[case.query].first_batch for case in in_a_task)
        late = [case for case in in_a_task if QUERIES[case.query].first_batch]
        assert {case.per_batch for case in late} <= {LARGE}
        assert {case.query for case in drawn} == set(QUERIES)

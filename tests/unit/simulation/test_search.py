"""The search with runs that are scripted: what each plan reaches and what is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from oncelog.simulation.campaign import RunFinding, Summary
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.plan import Plan, from_json, to_json
from oncelog.simulation.search import LAG_RUNS, Corpus, Search

Reaches = Callable[[int, Plan], frozenset[str]]
FOUND = RunFinding("lost-write", "a record is lost")


class Runs:
    """Starts runs whose outcome is scripted. They end when they are waited for."""

    def __init__(self, reaches: Reaches, finds: Callable[[Plan], bool] = lambda _: False) -> None:
        self.plans: list[Plan] = []
        self.waiting_count = 0
        self.most_waiting_count = 0
        self._reaches, self._finds = reaches, finds

    def start(self, plan: Plan) -> Callable[[], Summary]:
        index = len(self.plans)
        self.plans.append(plan)
        self.waiting_count += 1
        self.most_waiting_count = max(self.most_waiting_count, self.waiting_count)

        def wait() -> Summary:
            self.waiting_count -= 1
            found = (FOUND,) if self._finds(plan) else ()
            reached = self._reaches(index, plan)
            return Summary(plan.seed, plan.profile, "", 1.0, 1.0, 1, 0, found, "{}", reached)

        return wait


def new_each_time(index: int, _: Plan) -> frozenset[str]:
    return frozenset({"always", f"name {index}"})


def new_once(_: int, __: Plan) -> frozenset[str]:
    return frozenset({"always"})


@cache
def fresh_plans(seed: int) -> list[Plan]:
    return [draw_plan(seed + index) for index in range(60)]


def is_fresh(plan: Plan, search: Search) -> bool:
    return plan in fresh_plans(search.seed)


def test_a_plan_is_kept_when_its_run_reached_something_new() -> None:
    runs, search = Runs(lambda index, _: frozenset({f"name {index // 5}"})), Search(1)
    list(search.run(20, runs.start))
    assert search.corpus.plans == [runs.plans[index] for index in (0, 5, 10, 15)]
    assert search.curve == [1 + index // 5 for index in range(20)]


def test_runs_that_reach_nothing_new_keep_one_plan_only() -> None:
    runs, search = Runs(new_once), Search(1)
    list(search.run(20, runs.start))
    assert search.corpus.plans == [runs.plans[0]]
    assert search.names_by_mutated == 0


def test_plans_are_fresh_until_one_is_kept_and_then_most_are_changed() -> None:
    runs, search = Runs(new_each_time), Search(7)
    list(search.run(60, runs.start))
    fresh = [is_fresh(plan, search) for plan in runs.plans]
    assert all(fresh[:LAG_RUNS])
    assert 20 <= search.mutated_count <= 45
    assert 20 <= fresh.count(False) <= search.mutated_count
    assert search.names_by_mutated == search.mutated_count


def test_the_kind_of_plan_that_reaches_more_is_drawn_more_often() -> None:
    for mutated_are_better in (True, False):
        search = Search(1)

        def reaches(index: int, plan: Plan, better: bool = mutated_are_better) -> frozenset[str]:
            is_better = is_fresh(plan, Search(1)) is not better
            return frozenset({f"name {index}"}) if is_better or index < 8 else frozenset()

        list(search.run(60, Runs(reaches).start))
        assert (search.mutated_chance > 0.7) is mutated_are_better
        assert (search.mutated_chance < 0.3) is not mutated_are_better
        assert 0 < search.mutated_count < 52


def test_a_search_of_a_profile_changes_only_plans_of_that_profile() -> None:
    corpus = Corpus()
    corpus.add(draw_plan(1, "calm"), frozenset({"one"}))
    corpus.add(draw_plan(2, "power"), frozenset({"two"}))
    runs, search = Runs(new_each_time), Search(7, "power", corpus=corpus)
    list(search.run(30, runs.start))
    assert {plan.profile for plan in runs.plans} == {"power"}
    assert search.mutated_count


@pytest.mark.parametrize("at_once", [1, 3, LAG_RUNS])
def test_the_seed_decides_the_search_whenever_runs_end(at_once: int) -> None:
    """Plans depend on results in their order only, so the number of processes has no influence."""
    first, again = Runs(new_each_time), Runs(new_each_time)
    list(Search(3).run(40, first.start))
    ended: list[tuple[int, Summary]] = []
    waiting: list[tuple[int, Callable[[], Summary]]] = []

    def start(plan: Plan) -> Callable[[], Summary]:
        index = len(again.plans)
        waiting.append((index, again.start(plan)))
        if len(waiting) >= at_once:
            ended.extend((number, run()) for number, run in reversed(waiting))
            waiting.clear()

        def wait() -> Summary:
            ended.extend((number, run()) for number, run in waiting)
            waiting.clear()
            return next(summary for number, summary in ended if number == index)

        return wait

    list(Search(3).run(40, start))
    assert again.plans == first.plans
    others = Runs(new_each_time)
    list(Search(4).run(40, others.start))
    assert others.plans != first.plans


def test_only_so_many_runs_are_under_way() -> None:
    runs, search = Runs(new_once), Search(1)
    list(search.run(30, runs.start))
    assert runs.most_waiting_count == LAG_RUNS
    assert (len(runs.plans), runs.waiting_count) == (30, 0)


@pytest.mark.parametrize("run_count", [1, LAG_RUNS - 1, LAG_RUNS, LAG_RUNS + 1])
def test_a_search_of_few_runs_ends_them_all(run_count: int) -> None:
    runs, search = Runs(new_each_time), Search(1)
    assert len(list(search.run(run_count, runs.start))) == run_count
    assert search.campaign.run_count == len(search.curve) == run_count


def test_the_plan_of_a_finding_and_how_it_was_made_are_kept() -> None:
    search = Search(1)
    runs = Runs(new_each_time, lambda plan: not is_fresh(plan, search))
    found = [new for _, new in search.run(60, runs.start) if new]
    assert found == [[FOUND]]
    assert search.plans == {
        "lost-write": next(plan for plan in runs.plans if not is_fresh(plan, search))
    }
    assert search.findings_by_mutated == 1
    assert search.facts()["findings_by_mutated"] == 1


def test_a_folder_keeps_plans_and_names_for_the_next_search(tmp_path: Path) -> None:
    first = Search(1, corpus=Corpus(tmp_path / "corpus"))
    list(first.run(20, Runs(new_each_time).start))
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.reached == first.corpus.reached
    assert sorted(map(to_json, corpus.plans)) == sorted(map(to_json, first.corpus.plans))
    second, runs = Search(2, corpus=corpus), Runs(new_each_time)
    list(second.run(20, runs.start))
    assert second.curve == [21] * 20
    assert not all(is_fresh(plan, second) for plan in runs.plans[:LAG_RUNS])


def test_each_file_of_a_corpus_is_a_plan_that_can_be_replayed(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.add(draw_plan(4), frozenset({"one"}))
    corpus.add(draw_plan(5), frozenset({"one"}))
    (path,) = tmp_path.glob("*.json")
    assert from_json(path.read_text()) == draw_plan(4)


def test_a_file_of_a_corpus_that_is_no_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text("[]")
    with pytest.raises(ValueError, match=r"wrong\.json is not a plan"):
        Corpus(tmp_path)


def test_the_curve_is_told_at_each_tenth_of_the_runs() -> None:
    search = Search(1)
    search.curve = list(range(100, 125))
    assert list(search.tenths()) == [2, 5, 7, 10, 12, 15, 17, 20, 22, 25]
    assert search.tenths()[25] == 124
    search.curve = []
    assert search.tenths() == {}

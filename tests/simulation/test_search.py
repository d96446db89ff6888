"""A short search of real runs finds nothing new, and its changed plans can be replayed."""

from functools import partial
from pathlib import Path

import pytest

from oncelog.simulation.campaign import run_plan
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.plan import from_json
from oncelog.simulation.search import Corpus, Search

RUNS = 4


@pytest.mark.soak
def test_a_short_search_reaches_more_than_its_corpus(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.plans.append(draw_plan(11, "crash-points", 2.0))
    search = Search(9, "crash-points", 2.0, corpus)
    runs = list(search.run(RUNS, lambda plan: partial(run_plan, plan)))
    assert [new for _, new in runs if new] == []
    assert len(runs) == RUNS
    assert search.mutated_count >= 2
    assert search.names_by_mutated > 0
    assert len(corpus.reached) == search.curve[-1]


def test_a_run_of_a_changed_plan_is_replayed_from_its_file(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.plans.append(draw_plan(11, "crash-points", 2.0))
    search = Search(9, "crash-points", 2.0, corpus)
    drawn = next(one for one in map(search.draw, range(20)) if one.is_mutated)
    first = run_plan(drawn.plan)
    corpus.add(drawn.plan, first.reached)
    (path,) = tmp_path.glob("*.json")
    again = run_plan(from_json(path.read_text()))
    assert (again.digest, again.reached) == (first.digest, first.reached)

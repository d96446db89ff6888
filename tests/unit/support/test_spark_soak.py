"""What `python -m tests.spark.soak` draws, and how it and the whole table go on."""

from pathlib import Path

import pytest

from tests.spark import matrix, soak
from tests.spark.campaign import AGAIN, PEERS, Verdicts
from tests.spark.crash_table import LARGE
from tests.spark.faults import CASES
from tests.spark.queries import QUERIES
from tests.spark.soak import draw
from tests.support import evidence


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


def test_an_interrupted_soak_goes_on_where_it_was(
    evidence_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "commit", lambda: "a")
    verdicts = soak.begun("oncelog", seed=7, runs=3)
    assert verdicts.count == 0
    verdicts.others.add(4.0)
    verdicts.killing_the_driver.add(20.0)
    verdicts.exact["mid_task, driver"] += 2
    verdicts.ended["1 copy"] = ["out-0"]
    soak.keep_all(verdicts, seed=7, runs=3)
    assert soak.begun("oncelog", seed=7, runs=3) == verdicts
    for peer, seed, runs in (("kafka", 7, 3), ("oncelog", 8, 3), ("oncelog", 7, 4)):
        assert soak.begun(peer, seed, runs).count == 0
    monkeypatch.setattr(evidence, "commit", lambda: "b")
    assert soak.begun("oncelog", seed=7, runs=3).count == 0


def test_a_campaign_is_exact_once_all_its_cases_are() -> None:
    verdicts = Verdicts("kafka")
    verdicts.others.add(1.0)
    assert (verdicts.verdict(2), verdicts.verdict(1)) == ("not all run", "exact")
    verdicts.wrong["0"] = ["lost"]
    assert verdicts.verdict(2) == verdicts.verdict(1) == "not exact"


def test_the_evidence_of_the_table_has_both_brokers_and_both_places(
    evidence_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "commit", lambda: "a")
    *others, last = [Verdicts(peer, place) for place in (False, True) for peer in PEERS]
    for verdicts in others:
        verdicts.others.add(1.0)
        matrix.keep(verdicts, 1)
    matrix.keep(last, 1)
    assert matrix.begun("kafka", on_cluster=True) == last
    assert "| spark-crash, kafka, cluster | not all run | 0 cases" in evidence.TABLE.read_text()
    last.others.add(1.0)
    matrix.keep(last, 1)
    assert evidence.TABLE.read_text().count(" | exact | 1 cases") == 4
    assert matrix.begun("kafka", on_cluster=True).count == 0


def test_cases_that_are_run_again_keep_the_commit_of_the_others(
    evidence_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "commit", lambda: "a")
    verdicts = Verdicts("kafka")
    verdicts.others.add(1.0)
    verdicts.wrong["0 copy"] = ["7: 2 instead of 1"]
    matrix.keep(verdicts, 1)
    monkeypatch.setattr(evidence, "commit", lambda: "b")
    assert matrix.begun("kafka", on_cluster=False).count == 0
    verdicts = matrix.begun("kafka", on_cluster=False, again=True)
    verdicts.forget("0 copy")
    matrix.keep(verdicts, 1)
    entry = evidence.kept(matrix.NAME)["kafka"]
    assert (entry["verdict"], entry["commit"]) == ("exact", "a")
    assert entry[AGAIN] == {"0 copy": {"commit": "b", "found": ["7: 2 instead of 1"]}}


def test_a_case_that_waits_to_be_run_again_is_not_exact_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "commit", lambda: "b")
    verdicts = Verdicts("kafka", wrong={"0 copy": ["7"], "1 copy": ["8"]})
    verdicts.others.add(1.0)
    verdicts.others.add(1.0)
    verdicts.ended["0 copy"] = ["out-0 aborted"]
    verdicts.forget("0 copy")
    assert verdicts.verdict(2) == "not exact"
    assert verdicts.again["0 copy"]["ended"] == ["out-0 aborted"]
    assert verdicts.ended == {}
    verdicts.forget("1 copy")
    assert verdicts.verdict(2) == "exact"

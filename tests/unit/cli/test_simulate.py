import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.main import main
from oncelog.simulation.checkers import CHECKERS, Anomaly, Evidence
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.known import KnownDefect
from oncelog.simulation.plan import from_json, to_json

DEFECT = KnownDefect("a planted finding", "planted", "*", (), None, 8, "planted.json")


def simulate(*words: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, words)])


def test_a_seed_is_run_and_leaves_a_page_a_plan_and_a_trace(tmp_path: Path) -> None:
    page, plan, trace = tmp_path / "page.html", tmp_path / "plan.json", tmp_path / "trace"
    files = ["--page", page, "--save", plan, "--trace", trace]
    done = simulate("--seed", 3, "--profile", "calm", "--duration", 1, "--without", "c1", *files)
    assert done.exit_code == 0, done.output
    assert "nothing was found" in done.output
    assert "c1" not in from_json(plan.read_text()).parts
    assert page.read_text().startswith("<!doctype html>")
    assert len(trace.read_text().splitlines()) > 100
    (line,) = [line for line in done.output.splitlines() if line.startswith("hash ")]
    again = simulate("--plan", plan)
    assert line in again.output


@pytest.fixture
def defective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run finds the same, whatever else is mended."""

    def check(evidence: Evidence) -> list[Anomaly]:
        assert evidence.end_s > 0
        return [Anomaly("planted", "it is planted", 0.0, "", None, -1, (), "")]

    monkeypatch.setitem(CHECKERS, "planted", check)


@pytest.mark.usefixtures("defective")
def test_a_known_defect_is_told_and_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.simulation.campaign.known_defects", lambda: (DEFECT,))
    done = simulate("--seed", 3, "--profile", "calm", "--duration", 1)
    assert done.exit_code == 0
    assert "known (issue 8, a planted finding)" in done.output


def test_many_runs_add_up(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.json"
    words = ["--profile", "calm", "--duration", 1, "--jobs", 1, "--evidence", evidence]
    done = simulate("--runs", 2, *words)
    assert done.exit_code == 0, done.output
    assert "0 unknown findings" in done.output
    found = json.loads(evidence.read_text())
    assert (found["runs"], found["profiles"]) == (2, {"calm": 2})


@pytest.mark.usefixtures("defective")
def test_an_unknown_finding_fails_is_made_smaller_and_kept(tmp_path: Path) -> None:
    words = ["--profile", "calm", "--duration", 1, "--jobs", 1, "--first-seed", 3]
    done = simulate("--runs", 1, *words, "--keep", tmp_path / "kept")
    assert done.exit_code == 1
    assert "oncelog simulate --seed" in done.output
    (kept,) = [from_json(path.read_text()) for path in tmp_path.glob("kept/*.json")]
    assert kept.seed == 3
    assert len(kept.parts) < len(draw_plan(3, "calm", 1.0).parts)


def test_a_search_keeps_plans_and_says_what_was_reached(tmp_path: Path) -> None:
    evidence, corpus = tmp_path / "evidence.json", tmp_path / "corpus"
    words = ["--runs", 2, "--profile", "calm", "--duration", 1, "--jobs", 1]
    done = simulate("--search", *words, "--corpus", corpus, "--evidence", evidence)
    assert done.exit_code == 0, done.output
    assert "names reached" in done.output
    search = json.loads(evidence.read_text())["search"]
    assert search["plans_kept"] == len(list(corpus.glob("*.json"))) > 0
    assert search["reached"] == search["reached_after_runs"]["2"] > 10


@pytest.mark.usefixtures("defective")
def test_a_finding_of_a_search_is_made_smaller_and_replayed(tmp_path: Path) -> None:
    corpus, kept = tmp_path / "corpus", tmp_path / "kept"
    corpus.mkdir()
    (corpus / "one.json").write_text(to_json(draw_plan(3, "calm", 1.0)))
    words = ["--runs", 1, "--profile", "calm", "--duration", 1, "--jobs", 1]
    done = simulate("--search", *words, "--corpus", corpus, "--keep", kept)
    assert done.exit_code == 1
    (path,) = kept.glob("*.json")
    assert f"oncelog simulate --plan {path}" in done.output.replace("\n", "")
    assert len(from_json(path.read_text()).parts) < 2
    assert simulate("--plan", path).exit_code == 1


def test_a_corpus_that_holds_no_plan_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{}")
    done = simulate("--search", "--runs", 1, "--corpus", tmp_path)
    assert done.exit_code == 1
    assert "is not a plan" in done.output
    assert "Traceback" not in done.output


def test_a_search_needs_runs_and_a_corpus_a_search(tmp_path: Path) -> None:
    assert "--search goes with --runs" in simulate("--search").output
    assert "--corpus goes with --search" in simulate("--runs", 1, "--corpus", tmp_path).output


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"seed": 1}', to_json(draw_plan(1))[:-50]])
def test_a_file_that_is_no_plan_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    done = simulate("--plan", path)
    assert done.exit_code == 1
    assert "is not a plan" in done.output
    assert "Traceback" not in done.output


def test_misuse_is_told() -> None:
    assert simulate("--plan", "nowhere.json").exit_code == 1
    done = simulate()
    assert done.exit_code == 2
    assert "give --seed, --plan or --runs" in done.output

"""Evidence of a campaign adds up over its calls, and only those of the same sources are judged."""

import json
from pathlib import Path

import pytest

from tests.support import evidence
from tests.support.evidence import Entry, Sum

OLD, NEW = "old+changes", "new+changes"
"""Commits that no git knows, so that each stands for sources of its own."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    return tmp_path


def entry(count: int, *, seed: int = 1, commit: str = NEW, verdict: str = "passed") -> Entry:
    return {"commit": commit, "seeds": [seed, seed + 9], "files": count, "verdict": verdict}


def kept(folder: Path) -> Entry:
    found: Entry = json.loads((folder / "some.json").read_text())
    return found


def test_calls_on_the_same_sources_add_up(folder: Path) -> None:
    for count in (3, 4):
        Sum("some", "files", "src").write([entry(count)])
    assert kept(folder)["files on these sources"] == 7
    assert [each["files"] for each in kept(folder)["campaigns"]] == [3, 4]


def test_a_call_on_other_sources_begins_a_new_sum_and_keeps_the_old_entries(folder: Path) -> None:
    Sum("some", "files", "src").write([entry(3, commit=OLD)])
    Sum("some", "files", "src").write([entry(4)])
    assert kept(folder)["files on these sources"] == 4
    assert kept(folder)["files on all commits"] == 7


def test_a_call_that_writes_as_it_goes_is_one_entry(folder: Path) -> None:
    Sum("some", "files", "src").write([entry(3)])
    going = Sum("some", "files", "src")
    for count in (1, 2, 5):
        going.write([entry(count)])
    assert [each["files"] for each in kept(folder)["campaigns"]] == [3, 5]


def test_calls_side_by_side_keep_each_other(folder: Path) -> None:
    one, other = Sum("some", "files", "src"), Sum("some", "files", "src")
    for count in (1, 2):
        one.write([entry(count, seed=1)])
        other.write([entry(10 * count, seed=50)])
    assert sorted(each["files"] for each in kept(folder)["campaigns"]) == [2, 20]


def test_a_failed_call_stays_the_verdict_until_the_sources_change(folder: Path) -> None:
    Sum("some", "files", "src").write([entry(3, verdict="failed")])
    Sum("some", "files", "src").write([entry(4)])
    assert kept(folder)["verdict"] == "failed"
    Sum("some", "files", "src").write([entry(5, commit=OLD)])
    assert kept(folder)["verdict"] == "passed"


def test_facts_are_those_of_the_same_sources(folder: Path) -> None:
    runs = Sum("some", "files", "src")
    assert runs.facts(NEW) == {}
    runs.write([entry(3)], {"reached": {"a": 2}})
    assert runs.facts(evidence.commit())["reached"] == {"a": 2}
    assert runs.facts(OLD) == {}
    (folder / "some.json").write_text('{"verdict": "passed", "seed": 11}')
    assert runs.facts(NEW) == {}


def test_a_seed_is_seen_once_on_the_same_sources() -> None:
    runs = Sum("some", "files", "src")
    runs.write([entry(3, seed=20)])
    assert runs.has_seen(NEW, range(29, 31))
    assert not runs.has_seen(NEW, range(30, 31))
    assert not runs.has_seen(OLD, range(29, 31))


def test_a_file_of_an_older_shape_counts_nothing(folder: Path) -> None:
    (folder / "some.json").write_text('{"verdict": "passed", "seed": 11}')
    Sum("some", "files", "src").write([entry(4)])
    assert kept(folder)["files on all commits"] == 4


def test_sources_are_told_by_the_folders_that_matter_and_not_by_the_commit() -> None:
    last = evidence.git("log", "-1", "--format=%H", "--", "src")
    assert evidence.sources("HEAD", "src") == evidence.sources(last, "src")
    assert evidence.sources("HEAD", "src") != evidence.sources("HEAD", "tests")

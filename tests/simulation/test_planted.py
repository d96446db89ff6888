"""Every planted bug fits the code as it is, and the simulation finds a few of them at once."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from oncelog.simulation.checkers import CHECKERS
from tests.simulation import planted_units
from tests.simulation.planted import (
    FOLDER,
    ROOT,
    Bug,
    Search,
    Tally,
    Unplanted,
    load,
    names,
    search,
)
from tests.support import campaigns, evidence
from tests.support.campaigns import INTERRUPTED, Shown
from tests.support.patches import BadPatch, patched

GOOD = """
file = "src/a.py"
before = "x = 1"
after = "x = 2"
why = "x would be two"
caught_by = ["lost-write"]
profile = "calm"

[[edit]]
file = "src/a.py"
before = "y = 1"
after = "y = 2"
"""
STARTS = [1, 2]
SOONEST = "recovery_cuts_the_last_batch"
SOON = {
    SOONEST: 1_000_000,
    "fetch_reads_past_the_stable_offset": 5,
    "decisions_outlive_their_rights": 1_000_000,
}
"""Bugs, and a start whose first run finds them with one broker."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one file and one bug."""
    for folder in ("src", "tests/simulation/planted"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("x = 1\ny = 1\n")
    (tmp_path / "tests/simulation/planted/a.toml").write_text(GOOD)
    return tmp_path


MISSED = [f"missed/{path.stem}" for path in sorted((FOLDER / "missed").glob("*.toml"))]


@pytest.mark.parametrize("name", [*names(), *MISSED])
def test_a_planted_bug_fits_the_code(name: str) -> None:
    bug = load(name)
    for file, text in patched(name, bug.edits, ROOT).items():
        compile(text, file, "exec")
    assert set(bug.caught_by) <= set(CHECKERS)


@pytest.mark.parametrize("name", planted_units.names())
def test_a_bug_for_unit_tests_fits_the_code_and_names_tests(name: str) -> None:
    bug = planted_units.load(name)
    for file, text in patched(name, bug.edits, ROOT).items():
        compile(text, file, "exec")
    assert bug.tests


def test_every_checker_is_expected_to_find_something() -> None:
    expected = {kind for name in names() for kind in load(name).caught_by}
    # No slip was found that puts one producer's transactions out of order and leaves the broker's
    # checks of sequences quiet; tests/unit/simulation/checkers/test_cycles.py has G0 fire.
    assert expected == set(CHECKERS) - {"G0"}


def test_all_edits_of_a_bug_are_planted(root: Path) -> None:
    assert patched("a", load("a", root).edits, root) == {"src/a.py": "x = 2\ny = 2\n"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("why", "reason", "reason, why"),
        ('"x would be two"', '" "', "`why` is empty"),
        ('"x = 2"', '"x = 1"', "changes nothing"),
        ("x = 1", "z = 1", "src/a.py has `before` 0 times"),
        ("src/a.py", "src/b.py", "no src/b.py"),
        ('["lost-write"]', "[]", "`caught_by` is a list"),
        ("file =", "file", "a: "),
        ("[[edit]]", "[[edit]]\nmore = 1", "more"),
    ],
)
def test_a_bug_that_does_not_fit_is_refused_by_name(
    root: Path, old: str, new: str, reason: str
) -> None:
    (root / "tests/simulation/planted/a.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(BadPatch, match=r"^a: ") as refused:
        load("a", root)
    assert reason in str(refused.value)


def test_a_bug_that_fits_twice_is_refused(root: Path) -> None:
    (root / "src/a.py").write_text("x = 1\nx = 1\ny = 1\n")
    with pytest.raises(BadPatch, match="2 times"):
        load("a", root)


def test_a_bug_is_found_when_every_start_finds_it_and_half_of_them_soon() -> None:
    def found(*runs: int | None) -> Search:
        return Search(Bug("a", (), "why", ("lost-write",), ""), dict(enumerate(runs)))

    assert found(1, 200, 2000).is_found
    assert not found(1, 201, 2000).is_found
    assert not found(1, 1, None).is_found
    assert found(1, None, 3).median == 3
    assert found(1, None, None).median is None


def searched(name: str, *runs: int | None) -> Search:
    bug = Bug(name, (), "why", ("lost-write",), "")
    return Search(bug, dict(zip(STARTS, runs, strict=True)))


def tally(**sources: str) -> Tally:
    made = Tally(STARTS, 2000, {"a": "1", "b": "1", "c": "1"} | sources)
    made.take_known()
    return made


def carry_out(made: Tally, *parts: Search, then: BaseException | None = None) -> int:
    def going() -> Iterator[Search]:
        yield from parts
        if then is not None:
            raise then

    shown = Shown(Console(quiet=True), "bugs", len(parts))
    return campaigns.carry_out(going(), made, shown, lambda part, console: None, made.keep)


@pytest.mark.usefixtures("evidence_folder")
def test_a_search_that_is_interrupted_keeps_what_it_has_and_says_what_is_to_do() -> None:
    code = carry_out(tally(), searched("a", 3, 4), then=KeyboardInterrupt())
    assert code == INTERRUPTED
    assert "| planted-bugs | 2 to do | 1 bugs, half" in evidence.TABLE.read_text()
    assert tally().to_do == ["b", "c"]


@pytest.mark.usefixtures("evidence_folder")
def test_a_search_goes_on_where_the_last_one_on_the_same_sources_ended() -> None:
    carry_out(tally(), searched("a", 3, 4), searched("b", 1, None), then=KeyboardInterrupt())
    resumed = tally()
    assert [name for name in "abc" if resumed.is_known(searched(name, 1, 1).bug)] == ["a"]
    assert carry_out(resumed, searched("b", 5, 6), searched("c", 7, None)) == 1
    assert tally().verdict == "missed: c"
    assert carry_out(tally(), searched("c", 7, 8)) == 0
    assert (tally().verdict, tally().to_do) == ("all found", [])


@pytest.mark.usefixtures("evidence_folder")
def test_a_bug_is_searched_again_when_its_sources_or_the_starts_are_others() -> None:
    carry_out(tally(b="1+changes"), *(searched(name, 1, 1) for name in "abc"))
    changed = tally(b="1+changes", c="2")
    assert [name for name in "abc" if changed.is_known(searched(name, 1, 1).bug)] == ["a"]
    other = Tally([*STARTS, 9], 2000, {"a": "1"})
    other.take_known()
    assert other.to_do == ["a"]


def test_a_search_that_is_given_up_ends_after_its_present_run() -> None:
    given_up = threading.Event()
    given_up.set()
    bug = replace(load(next(iter(SOON))), brokers=1)
    found = search(bug, Unplanted(), [1_000_000], 2_000, 600, given_up)
    assert (found.problem, dict(found.tried)) == ("it was ended", {})


@pytest.mark.parametrize(
    "name",
    [name if name == SOONEST else pytest.param(name, marks=pytest.mark.soak) for name in SOON],
)
def test_the_simulation_finds_a_planted_bug(name: str) -> None:
    bug = replace(load(name), brokers=1)
    found = search(bug, Unplanted(), [SOON[name]], runs_max=20, seconds_max=60)
    assert found.is_found, found

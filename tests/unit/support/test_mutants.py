"""Where the generator of small bugs finds them, and that its list of survivors is up to date."""

import ast
from pathlib import Path

import pytest

from tests.support import evidence
from tests.support.mutant_sites import Mutant, mutants_of
from tests.support.mutants import (
    KILLED,
    NAME,
    ROOMS,
    SURVIVED,
    Tally,
    Verdict,
    drawn,
    hand_kept,
    key_of,
    reasons,
)

SOURCE = b'''
LIMIT = 5


class Room:
    def decide(self, event, limit):
        """A text with 3 in it."""
        if event.epoch != self.epoch:
            return ErrorCode.producer_fenced
        self.count += 1
        self.report(event)
        if limit <= 2 and self.is_open:
            log.warning("7 %s", event)
        return Decision(entries=(event,), effects=(event,), wait=True)
'''

SOURCES = dict.fromkeys(ROOMS, "as they are")


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mutant]]:
    """Three mutants, and no evidence yet."""
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    return [("coordinator", mutant) for mutant in drawn("coordinator", 1, 3)]


def judged(
    wanted: list[tuple[str, Mutant]], outcome: str, sources: dict[str, str] = SOURCES
) -> Tally:
    """A call that judges the first mutant, and keeps it in the evidence."""
    tally = Tally(1, len(wanted), sources)
    tally.take_known(wanted)
    tally.add(Verdict(*wanted[0], outcome))
    evidence.write(NAME, tally.verdict, tally.entry())
    return tally


def test_every_kind_of_place_is_found() -> None:
    found = {m.name.removeprefix("Room.decide: "): m.after for m in mutants_of("f.py", SOURCE)}
    assert found == {
        "condition negated #1": "(not (event.epoch != self.epoch))",
        "error changed #1": "ErrorCode.unknown_server_error",
        "assignment dropped #1": "pass",
        "constant changed #1": "2",
        "call dropped #1": "pass",
        "condition negated #2": "(not (limit <= 2 and self.is_open))",
        "comparison changed #1": "<",
        "constant changed #2": "3",
        "and to or #1": "or",
        "effects dropped #1": "()",
        "constant changed #3": "False",
    }


def test_a_planted_mutant_differs_in_one_place_and_is_still_python() -> None:
    for mutant in mutants_of("f.py", SOURCE):
        planted = mutant.planted(SOURCE)
        assert planted != SOURCE
        ast.parse(planted)


def test_a_seed_draws_the_same_mutants_each_time() -> None:
    assert drawn("coordinator", 7, 12) == drawn("coordinator", 7, 12)
    assert drawn("coordinator", 7, 12) != drawn("coordinator", 8, 12)


@pytest.mark.parametrize("room", ROOMS)
def test_the_mutants_of_each_room_are_python(room: str) -> None:
    root = Path(__file__).resolve().parents[3]
    for mutant in drawn(room, 1, 15):
        ast.parse(mutant.planted((root / mutant.file).read_bytes()))


def test_every_explained_survivor_is_a_mutant_that_there_is() -> None:
    """After a rename its name has to follow."""
    names = {key_of(mutant) for room in ROOMS for mutant in drawn(room, 1, 10**6)}
    assert sorted(reasons().keys() - names) == []


def test_there_are_mutations_by_hand_in_these_rooms() -> None:
    assert len(hand_kept()) >= 10


def test_what_an_interrupted_call_judged_is_kept_and_not_judged_again(
    wanted: list[tuple[str, Mutant]],
) -> None:
    assert judged(wanted, KILLED).verdict == "not finished"
    tally = Tally(1, len(wanted), SOURCES)
    assert tally.take_known(wanted) == wanted[1:]
    for each in wanted[1:]:
        tally.add(Verdict(*each, KILLED))
    assert tally.verdict == "all killed or explained"
    assert tally.entry()["counts"] == {KILLED: 3}


def test_a_survivor_stays_a_hole_in_later_calls(wanted: list[tuple[str, Mutant]]) -> None:
    judged(wanted, SURVIVED)
    tally = Tally(1, len(wanted), SOURCES)
    tally.take_known(wanted)
    assert tally.holes == [key_of(wanted[0][1])]
    assert tally.verdict == "some survived"


@pytest.mark.parametrize(("before", "now"), [("others", "as they are"), ("a+changes", "a+changes")])
def test_a_mutant_of_other_sources_is_judged_again(
    wanted: list[tuple[str, Mutant]], before: str, now: str
) -> None:
    judged(wanted, SURVIVED, dict.fromkeys(ROOMS, before))
    tally = Tally(1, len(wanted), dict.fromkeys(ROOMS, now))
    assert tally.take_known(wanted) == wanted
    assert tally.entry()["mutants"] == {}

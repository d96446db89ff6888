"""Where the generator of small bugs finds them, and that its list of survivors is up to date."""

import ast
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.support.mutant_draw import ROOMS, Drawn, all_of, drawn, key_of
from tests.support.mutants import KILLED, SURVIVED, Tally, Verdict, reasons
from tests.support.patches import ROOT, limited
from tests.support.semantic_sites import semantic_mutants_of

SEMANTIC = b"""
class Room:
    def decide(self, events, first, last):
        self.opened(first, last)
        self.count += last - first
        for event in events:
            if event.epoch > self.epoch and event.ready:
                continue
            self.take(min(event.epoch, event.term))
        return [each for each in events[0].parts if each.known]
"""


@pytest.fixture
def wanted(evidence_folder: Path) -> list[Drawn]:
    """Three mutants, and no evidence yet."""
    return list(islice(drawn(["coordinator"], 1), 3))


def judged(
    wanted: list[Drawn], tests: str, simulated: str = SURVIVED, commit: str = "one"
) -> Tally:
    """A call that judges the first mutant, and keeps it in the evidence."""
    tally = Tally(1, wanted, commit)
    tally.take_known()
    tally.add(Verdict(*wanted[0], tests, simulated))
    tally.keep()
    return tally


def test_every_kind_of_mistake_is_found() -> None:
    found = {
        m.name.removeprefix("Room.decide: "): m.after for m in semantic_mutants_of("f.py", SEMANTIC)
    }
    steps = "self.count += last - first\n        self.opened(first, last)"
    assert found == {
        "steps exchanged #1": steps,
        "call forgotten #1": "pass",
        "arguments exchanged #1": "last, first",
        "the other of a pair #1": "last",
        "the other of a pair #2": "first",
        "assignment forgotten #1": "pass",
        "difference reversed #1": "((first) - (last))",
        "the other of a pair #3": "first",
        "the other of a pair #4": "last",
        "only the first #1": "list(events)[:1]",
        "condition forgotten #1": "((event.ready))",
        "condition forgotten #2": "((event.epoch > self.epoch))",
        "another attribute #1": "event.ready",
        "another attribute #2": "event.term",
        "continue forgotten #1": "pass",
        "call forgotten #2": "pass",
        "the other of a pair #5": "max",
        "another attribute #3": "event.ready",
        "another attribute #4": "event.epoch",
        "the other end #1": "-1",
        "filter forgotten #1": "True",
    }


def test_steps_whose_order_cannot_matter_are_not_exchanged() -> None:
    source = """
class Room:
    def independent(self, answer):
        self.bytes += len(answer)
        self.answers[0] = answer

    def of_one_another(self, answer):
        self.bytes += len(answer)
        self.answers[0] = self.bytes

    def with_a_call(self, answer):
        self.bytes += answer.size()
        self.answers[0] = answer

    def containers(self, answer):
        self.answers.append(answer)
        self.waiting.pop(answer.token, None)

    def a_value_that_is_made(self, answer):
        self.answers[0] = Answer(answer)
        heappush(self.waiting, (0, answer))

    def an_event(self, answer):
        self.answers.discard(answer)
        self.woken.set()

    def copies(self, answer):
        self.answers.clear()
        self.changed = set(self.wanted)

    def a_timer(self, answer):
        self.waiting.clear()
        self.timers.cancel(answer)

    def one_container(self, answer):
        self.answers.append(answer)
        self.latest = self.answers[-1]

    def two_calls(self, answer):
        self.answers.append(answer)
        self.tell(answer)
"""
    found = semantic_mutants_of("f.py", source.encode())
    exchanged = [mutant.name for mutant in found if "exchanged" in mutant.name]
    assert exchanged == [
        "Room.of_one_another: steps exchanged #1",
        "Room.with_a_call: steps exchanged #1",
        "Room.one_container: steps exchanged #1",
        "Room.two_calls: steps exchanged #1",
    ]


def test_a_planted_mutant_differs_in_one_place_and_is_still_python() -> None:
    for mutant in semantic_mutants_of("f.py", SEMANTIC):
        planted = mutant.planted(SEMANTIC)
        assert planted != SEMANTIC
        ast.parse(planted)


def test_a_seed_draws_the_same_mutants_each_time() -> None:
    def draw(seed: int) -> list[Drawn]:
        return list(islice(drawn(["coordinator", "replication"], seed), 12))

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_a_draw_of_some_size_plants_bugs_in_every_room() -> None:
    assert {room for room, _ in islice(drawn(ROOMS, 1), 100)} == set(ROOMS)


def test_a_draw_ends_with_the_last_mutant() -> None:
    found = list(drawn(["replication"], 1))
    assert sorted(map(key_of, (mutant for _, mutant in found))) == sorted(
        map(key_of, all_of("replication"))
    )


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
def test_a_bug_that_counts_without_end_does_not_take_all_memory() -> None:
    endless = [sys.executable, "-c", "print(len(bytearray(1 << 29)))"]
    done = subprocess.run(limited(endless, 1 << 28), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MemoryError" in done.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_all_that_a_room_names_is_there(room: str) -> None:
    """After a rename it has to follow: nothing is drawn from what is not there."""
    named = [*ROOMS[room].sources, *ROOMS[room].tests]
    assert [name for name in named if not any(ROOT.glob(name))] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_mutants_of_each_room_are_python(room: str) -> None:
    for _, mutant in islice(drawn([room], 1), 15):
        ast.parse(mutant.planted((ROOT / mutant.file).read_bytes()))


def test_every_explained_survivor_is_a_mutant_that_there_is() -> None:
    """After a rename its name has to follow."""
    names = {key_of(mutant) for room in ROOMS for mutant in all_of(room)}
    assert sorted(reasons().keys() - names) == []


def test_what_an_interrupted_call_judged_is_kept_and_not_judged_again(
    wanted: list[Drawn],
) -> None:
    assert judged(wanted, KILLED).verdict == "not finished"
    tally = Tally(1, wanted, "one")
    left = tally.take_known()
    assert left == [(1, wanted[1]), (2, wanted[2])]
    for _, each in left:
        tally.add(Verdict(*each, SURVIVED, "lost-write after 3 runs"))
    assert tally.verdict == "all killed or explained"
    assert tally.score() == {"tests": 1, "simulation": 2, "both": 0, "neither": 0}


def test_a_survivor_of_both_stays_a_hole_in_later_calls(wanted: list[Drawn]) -> None:
    judged(wanted, SURVIVED)
    tally = Tally(1, wanted, "one")
    tally.take_known()
    assert tally.holes == [key_of(wanted[0][1])]
    assert tally.verdict == "1 survived"


def test_what_only_the_simulation_found_is_no_hole(wanted: list[Drawn]) -> None:
    assert judged(wanted, SURVIVED, "lost-write after 3 runs").holes == []


@pytest.mark.parametrize(("before", "now"), [("another", "one"), ("a+changes", "a+changes")])
def test_a_mutant_of_another_commit_is_judged_again(
    wanted: list[Drawn], before: str, now: str
) -> None:
    judged(wanted, SURVIVED, commit=before)
    tally = Tally(1, wanted, now)
    assert tally.take_known() == list(enumerate(wanted))
    assert tally.count == 0

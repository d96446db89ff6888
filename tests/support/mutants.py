"""Plants bugs drawn at random, and counts who notices: the tests, the simulation, or neither.

Run as ``python -m tests.support.mutants [--seed N] [--count N] [--room ROOM ...] [--evidence]``;
part of `make test-full`. A score that the code was tuned to measures nothing, so each call draws a
new seed unless it is given one. A room, a kind of mistake and a place of it are drawn one after
another (`tests.support.semantic_sites`). What the type checker rejects is left out. Each mutant
meets the tests of its own part of the tree, and apart from them 100 simulated runs with seeds of
its own; with ``--simulate survivors`` only where the tests did not notice it, which takes a third
of the time and says nothing of the simulation alone.

One that lives through both is either a hole, or it changes nothing that anybody could see:
tests/support/survivors.toml says why, by its name.

With ``--evidence`` the row of docs/evidence.md is written as they are judged; a call with the same
seed on the same commit goes on where the last one of this checkout ended.
"""

from __future__ import annotations

import argparse
import queue
import random
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.simulation import planted, spark_planted
from tests.support import campaigns, evidence
from tests.support.mutant_draw import ROOMS, Drawn, drawn, fresh_copy, key_of, typed
from tests.support.patches import ROOT, Edit, run_pytest
from tests.support.semantic_sites import Mutant

EXPLAINED = ROOT / "tests" / "support" / "survivors.toml"
NAME = "mutants"
PARALLEL_MAX = 2
EXIT_OK = 0
KILLED, SURVIVED, NOT_RUN = "killed", "survived", "not run"
ALL, SURVIVORS, NONE = "all", "survivors", "none"
SIMULATED_RUNS = 100
SIMULATION_SECONDS_MAX = 900.0
SEEDS_APART = 1_000
"""Between the first simulated seeds of two mutants."""

RUN_SILENT_SECONDS_MAX = 120.0
"""A simulated run takes a second. One that does not end is noticed."""


Judged = dict[str, Any]
"""A verdict as JSON: room, line, what stands there instead, tests, simulation."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    room: str
    mutant: Mutant
    tests: str
    """KILLED, SURVIVED or NOT_RUN."""

    simulated: str
    """What the simulation found and after how many runs, or SURVIVED."""

    @property
    def key(self) -> str:
        """How survivors.toml names it."""
        return key_of(self.mutant)


# --- judging -----------------------------------------------------------------------------


def reasons() -> dict[str, str]:
    """Why a survivor is no bug, by its name."""
    return {str(key): str(why) for key, why in tomllib.loads(EXPLAINED.read_text()).items()}


def tests_for(room: str, mutant: Mutant, tree: Path) -> list[str]:
    """The tests of the room; those of the very file come first, as they fail soonest."""
    own = f"test_{Path(mutant.file).stem}.py"
    first = [
        str(path.relative_to(tree))
        for folder in ROOMS[room].tests
        for path in (tree / folder).glob(own)
    ]
    return [*first, *ROOMS[room].tests]


@dataclass(frozen=True, slots=True)
class Judges:
    """Who has to judge a mutant."""

    with_tests: bool = True
    simulate: str = ALL
    """ALL mutants, SURVIVORS of the tests, or NONE."""


def judge(
    each: Drawn, tree: Path, unplanted: planted.Unplanted, first_seed: int, judges: Judges
) -> Verdict:
    """Plant a mutant in a copy, run the tests and the simulation, take it out again."""
    room, mutant = each
    source = (tree / mutant.file).read_bytes()
    tests = _tested(each, tree, source) if judges.with_tests else NOT_RUN
    if judges.simulate == NONE or (judges.simulate == SURVIVORS and tests == KILLED):
        return Verdict(room, mutant, tests, NOT_RUN)
    whole = Edit(mutant.file, source.decode(), mutant.planted(source).decode())
    where = ROOMS[room]
    bug = planted.Bug(
        key_of(mutant), (whole,), "drawn", (), "", brokers=where.brokers, secure=where.is_secure
    )
    simulated = _simulated_spark if ROOMS[room].is_spark else _simulated
    return Verdict(
        room,
        mutant,
        tests,
        simulated(bug, unplanted, first_seed) or SURVIVED,
    )


def _tested(each: Drawn, tree: Path, source: bytes) -> str:
    """What the tests of its part say of a mutant of that source."""
    room, mutant = each
    path = tree / mutant.file
    path.write_bytes(mutant.planted(source))
    try:
        options = ["-x", "-m", "not soak"]
        code, _ = run_pytest(tree, [*options, *tests_for(room, mutant, tree)])
    finally:
        path.write_bytes(source)
    return SURVIVED if code == EXIT_OK else KILLED


def _simulated(bug: planted.Bug, unplanted: planted.Unplanted, first_seed: int) -> str:
    """What the simulation finds, or nothing."""
    found = planted.search(
        bug,
        unplanted,
        [first_seed],
        SIMULATED_RUNS,
        SIMULATION_SECONDS_MAX,
        silent_seconds_max=RUN_SILENT_SECONDS_MAX,
    )
    if found.problem:
        return found.problem
    runs = found.runs[first_seed]
    return "" if runs is None else f"{', '.join(found.fired)} after {runs} runs"


def _simulated_spark(bug: planted.Bug, _unplanted: planted.Unplanted, first_seed: int) -> str:
    try:
        runs, fired = spark_planted.runs_until_found(bug, first_seed, SIMULATED_RUNS)
    except subprocess.TimeoutExpired:
        return "a run does not end"
    if runs is None:
        return "" if fired == "nothing" else fired
    # What the same runs find in the code as it is says nothing about the mutant.
    as_it_is, _ = spark_planted.runs_until_found(replace(bug, edits=()), first_seed, runs)
    return f"{fired} after {runs} runs" if as_it_is is None else ""


def judge_all(
    wanted: Sequence[tuple[int, Drawn]], seed: int, judges: Judges
) -> Generator[Verdict, None, None]:
    """Judge mutants, a few at a time, each worker in a copy of its own.

    Each comes with its number in the draw. When the caller goes away those that have been begun
    are finished and the rest left.
    """
    unplanted = planted.Unplanted()
    with tempfile.TemporaryDirectory(prefix="oncelog-mutants-") as folder:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(PARALLEL_MAX):
            trees.put(fresh_copy(Path(folder) / str(number)))

        def work(numbered: tuple[int, Drawn]) -> Verdict:
            number, each = numbered
            tree = trees.get()
            try:
                return judge(each, tree, unplanted, seed + number * SEEDS_APART, judges)
            finally:
                trees.put(tree)

        pool = ThreadPoolExecutor(PARALLEL_MAX)
        try:
            yield from pool.map(work, wanted)
        finally:
            pool.shutdown(cancel_futures=True)


# --- the score ---------------------------------------------------------------------------


def tell(verdict: Verdict, console: Console) -> None:
    """Print what became of a mutant."""
    mutant = verdict.mutant
    console.print(
        f"{mutant.file}:{mutant.line} {verdict.key}: {mutant.after}\n"
        f"    tests: {verdict.tests}; simulation: {verdict.simulated}",
        markup=False,
        highlight=False,
        style=None if verdict.tests != SURVIVED else "yellow",
    )


class Tally:
    """The verdicts of all calls with one seed on one commit."""

    def __init__(
        self,
        seed: int,
        wanted: Sequence[Drawn],
        at_commit: str,
        rooms: Sequence[str] = (),
        simulate: str = ALL,
    ) -> None:
        """`rooms` are those that were drawn from; none: from all."""
        self._name = f"{NAME} of {', '.join(rooms)}" if rooms else NAME
        self._rooms = rooms
        self._simulate = simulate
        self._seed = seed
        self._wanted = wanted
        self._commit = at_commit
        self._reasons = reasons()
        self._known: dict[str, Judged] = {}
        """Those of this call and of calls before it, by name."""

    def take_known(self) -> list[tuple[int, Drawn]]:
        """Take over what is kept; returns what is still to be judged, numbered."""
        document = evidence.kept(self._name)
        is_same = document.get("seed") == self._seed and document.get("commit") == self._commit
        # What a work tree held with changes nobody knows.
        if is_same and not self._commit.endswith("+changes"):
            self._known = dict(document["mutants"])
        return [
            (number, each)
            for number, each in enumerate(self._wanted)
            if key_of(each[1]) not in self._known
        ]

    @property
    def count(self) -> int:
        return len(self._known)

    @property
    def survivors(self) -> dict[str, str]:
        """Those that neither noticed, and why that is right."""
        return {
            key: self._reasons.get(key, "a hole")
            for key, judged in sorted(self._known.items())
            if judged["tests"] == SURVIVED and judged["simulation"] in (SURVIVED, NOT_RUN)
        }

    @property
    def holes(self) -> list[str]:
        """The names of survivors that nothing explains."""
        return [key for key in self.survivors if key not in self._reasons]

    @property
    def failed_count(self) -> int:
        return len(self.holes)

    def add(self, verdict: Verdict) -> None:
        self._known[verdict.key] = {
            "room": verdict.room,
            "line": verdict.mutant.line,
            "after": verdict.mutant.after,
            "tests": verdict.tests,
            "simulation": verdict.simulated,
        }

    def score(self) -> Mapping[str, int]:
        """How many were killed by the tests, by the simulation, by both, and by neither."""
        found: Counter[str] = Counter({"tests": 0, "simulation": 0, "both": 0, "neither": 0})
        for judged in self._known.values():
            by_tests = judged["tests"] == KILLED
            by_simulation = judged["simulation"] not in (SURVIVED, NOT_RUN)
            found["tests"] += by_tests
            found["simulation"] += by_simulation
            found["both"] += by_tests and by_simulation
            found["neither"] += not by_tests and not by_simulation
        return found

    def keep(self) -> None:
        """Keep every mutant and what became of it, and write the row of the evidence."""
        evidence.keep(
            self._name, {"seed": self._seed, "commit": self._commit, "mutants": self._known}
        )
        score = ", ".join(f"{count} by {who}" for who, count in self.score().items())
        count = f"{self.count} of {len(self._wanted)} mutants, killed: {score}"
        how = f"python -m tests.support.mutants --seed {self._seed} --count {len(self._wanted)}"
        if self._rooms:
            how += f" --room {shlex.join(self._rooms)}"
        if self._simulate != ALL:
            how += f" --simulate {self._simulate}"
        evidence.note(self._name, self.verdict, count, how, seed=self._seed, at_commit=self._commit)

    @property
    def verdict(self) -> str:
        if self.holes:
            return f"{len(self.holes)} survived"
        return "not finished" if self.count < len(self._wanted) else "all killed or explained"


def main() -> int:
    """Exit code 0 if every mutant was killed or is explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="a new one if none is given")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--room", choices=sorted(ROOMS), nargs="+", default=[])
    parser.add_argument("--only", metavar="TEXT", nargs="+", help="all whose name holds a text")
    parser.add_argument("--without-tests", action="store_true", help="ask the simulation alone")
    parser.add_argument(
        "--simulate",
        choices=(ALL, SURVIVORS, NONE),
        default=ALL,
        help="which the simulation has to judge: all, those that the tests let live, or none",
    )
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence.md")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(10**9)
    candidates = drawn(arguments.room or list(ROOMS), seed)
    if arguments.only is None:
        with tempfile.TemporaryDirectory(prefix="oncelog-mutants-") as folder:
            wanted = typed(candidates, arguments.count, fresh_copy(Path(folder) / "typed"))
    else:
        texts = arguments.only
        wanted = [each for each in candidates if any(text in key_of(each[1]) for text in texts)]
    console.print(f"seed {seed}: {len(wanted)} mutants")
    tally = Tally(seed, wanted, evidence.commit(), arguments.room, arguments.simulate)
    left = tally.take_known() if arguments.evidence else list(enumerate(wanted))
    code = campaigns.carry_out(
        judge_all(left, seed, Judges(not arguments.without_tests, arguments.simulate)),
        tally,
        campaigns.Shown(console, "mutants", len(wanted)),
        tell,
        tally.keep if arguments.evidence else None,
    )
    score = ", ".join(f"{who} {count}" for who, count in tally.score().items())
    console.print(f"killed by: {score}", highlight=False)
    for key in tally.holes:
        console.print(f"a hole: {key}", style="red", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())

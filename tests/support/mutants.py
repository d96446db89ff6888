"""Plants small bugs by the hundred in the rooms of the coordinators, and demands that each is
killed by the tests of its own part of the tree.

Run as ``python -m tests.support.mutants [--seed N] [--count N] [--room ROOM] [--evidence]``; part
of `make test-full`. The seed draws `count` mutants of each room from all that
`tests.support.mutant_sites` finds there. One that lives is either a hole in the tests, or it
changes nothing that anybody could see: tests/support/survivors.toml says why, by its name.

docs/evidence/mutants.json is written as they are judged. A mutant that it has is not judged again
as long as the sources and the room's tests are the same.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.support import campaigns, evidence, mutations
from tests.support.mutant_sites import Mutant, mutants_of
from tests.support.mutations import (
    EXIT_OK,
    EXIT_TESTS_FAILED,
    PARALLEL_MAX,
    ROOT,
    copy_tree,
    run_pytest,
)

SURVIVORS = ROOT / "tests" / "support" / "survivors.toml"
NAME = "mutants"
KILLED, SURVIVED, DOES_NOT_RUN = "killed", "survived", "does not run"


@dataclass(frozen=True, slots=True)
class Room:
    """Where bugs are planted, and the tests that have to notice, the quickest first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "transaction": Room(
        ("src/oncelog/transaction/*.py",),
        ("tests/scenarios/transaction", "tests/unit/transaction"),
    ),
    "coordinator": Room(("src/oncelog/coordinator/*.py",), ("tests/unit/coordinator",)),
    "group": Room(
        ("src/oncelog/group/*.py",), ("tests/scenarios/test_group.py", "tests/unit/group")
    ),
    "shells": Room(
        ("src/oncelog/broker/coordination/*.py",),
        ("tests/unit/broker/coordination", "tests/unit/broker/apis/test_transactions.py"),
    ),
    "guard": Room(
        ("src/oncelog/storage/verifications.py",),
        ("tests/unit/storage/test_verifications.py", "tests/unit/broker/coordination"),
    ),
}


Judged = dict[str, Any]
"""A verdict as JSON: room, line, what stands there instead, verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    room: str
    mutant: Mutant
    outcome: str
    """One of KILLED, SURVIVED and DOES_NOT_RUN."""

    @property
    def key(self) -> str:
        """How survivors.toml names it."""
        return key_of(self.mutant)


def key_of(mutant: Mutant) -> str:
    """A mutant's name among all."""
    return f"{mutant.file.removeprefix('src/oncelog/')} {mutant.name}"


def drawn(room: str, seed: int, count: int, root: Path = ROOT) -> list[Mutant]:
    """The mutants of a room that a seed draws, in the order of the files."""
    found: list[Mutant] = []
    for pattern in ROOMS[room].sources:
        for path in sorted(root.glob(pattern)):
            found += mutants_of(str(path.relative_to(root)), path.read_bytes())
    chosen = random.Random(f"{seed}:{room}").sample(range(len(found)), min(count, len(found)))
    return [found[index] for index in sorted(chosen)]


def reasons() -> dict[str, str]:
    """Why a survivor is no bug, by its name."""
    return {str(key): str(why) for key, why in tomllib.loads(SURVIVORS.read_text()).items()}


def tests_for(room: str, mutant: Mutant, tree: Path) -> list[str]:
    """The tests of the room; those of the very file come first, as they fail soonest."""
    own = f"test_{Path(mutant.file).stem}.py"
    first = [
        str(path.relative_to(tree))
        for folder in ROOMS[room].tests
        for path in (tree / folder).glob(own)
    ]
    return [*first, *ROOMS[room].tests]


def judge(room: str, mutant: Mutant, tree: Path) -> Verdict:
    """Plant a mutant in a copy, run the tests, take it out again."""
    path = tree / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.planted(source))
    try:
        options = ["-x", "-m", "not soak"]
        code, output = run_pytest(tree, [*options, *tests_for(room, mutant, tree)])
    finally:
        path.write_bytes(source)
    if code == EXIT_OK:
        return Verdict(room, mutant, SURVIVED)
    is_import = "errors during collection" in output or "ImportError" in output
    runs = code == EXIT_TESTS_FAILED and not is_import
    return Verdict(room, mutant, KILLED if runs or code == -1 else DOES_NOT_RUN)


def judge_all(wanted: Sequence[tuple[str, Mutant]]) -> Generator[Verdict, None, None]:
    """Judge mutants, a few at a time, each worker in a copy of its own.

    When the caller goes away those that have been begun are finished and the rest left.
    """
    with tempfile.TemporaryDirectory(prefix="oncelog-mutants-") as folder:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(PARALLEL_MAX):
            tree = Path(folder) / str(number)
            tree.mkdir()
            copy_tree(tree)
            for compiled in tree.glob("src/**/__pycache__/*.pyc"):
                # It could pass for up to date: same size, and written within the same second.
                compiled.unlink()
            trees.put(tree)

        def work(each: tuple[str, Mutant]) -> Verdict:
            tree = trees.get()
            try:
                return judge(*each, tree)
            finally:
                trees.put(tree)

        pool = ThreadPoolExecutor(PARALLEL_MAX)
        try:
            yield from pool.map(work, wanted)
        finally:
            pool.shutdown(cancel_futures=True)


def tell(verdict: Verdict, console: Console) -> None:
    """Print a mutant that was not killed."""
    if verdict.outcome != KILLED:
        mutant = verdict.mutant
        at = f"{mutant.file}:{mutant.line}"
        console.print(f"{verdict.outcome}: {at} {verdict.key}: {mutant.after}", markup=False)


class Tally:
    """The verdicts of all calls on the same sources."""

    def __init__(self, seed: int, wanted_count: int, room_sources: Mapping[str, str]) -> None:
        self._seed = seed
        self._wanted_count = wanted_count
        self._sources = room_sources
        self._reasons = reasons()
        self._known: dict[str, Judged] = {}
        """Those of this call and of calls before it, by name."""
        self.count = 0

    def take_known(self, wanted: Sequence[tuple[str, Mutant]]) -> list[tuple[str, Mutant]]:
        """Take over what the evidence has of these sources; returns what is still to be judged."""
        self._known = judged_before(self._sources)
        left = [(room, mutant) for room, mutant in wanted if key_of(mutant) not in self._known]
        self.count = len(wanted) - len(left)
        return left

    @property
    def holes(self) -> list[str]:
        """The names of survivors that nothing explains."""
        return [
            key
            for key, judged in self._known.items()
            if judged["verdict"] == SURVIVED and key not in self._reasons
        ]

    @property
    def failed_count(self) -> int:
        return len(self.holes)

    def add(self, verdict: Verdict) -> None:
        self.count += 1
        self._known[verdict.key] = {
            "room": verdict.room,
            "line": verdict.mutant.line,
            "after": verdict.mutant.after,
            "verdict": verdict.outcome,
        }

    def entry(self) -> evidence.Entry:
        """Every mutant and what became of it."""
        found = dict(sorted(self._known.items()))
        survivors = [key for key, judged in found.items() if judged["verdict"] == SURVIVED]
        return {
            "seed": self._seed,
            "drawn": self._wanted_count,
            "judged of these": self.count,
            "counts": dict(Counter(judged["verdict"] for judged in found.values())),
            "by hand": hand_kept(),
            "survivors": {key: self._reasons.get(key, "a hole") for key in survivors},
            "sources": dict(self._sources),
            "mutants": found,
        }

    @property
    def verdict(self) -> str:
        if self.holes:
            return "some survived"
        if self.count < self._wanted_count:
            return "not finished"
        return "all killed or explained"


def sources_of(at_commit: str, room: str) -> str:
    """Stands for all sources and the room's tests at a commit."""
    return evidence.sources(at_commit, "src", *ROOMS[room].tests).replace("\n", " ")


def judged_before(room_sources: Mapping[str, str]) -> dict[str, Judged]:
    """What the evidence has of rooms that are as they were."""
    document = evidence.read(NAME)
    same = {
        room
        for room, sources in document.get("sources", {}).items()
        # What a work tree held with changes nobody knows.
        if sources == room_sources[room] and not sources.endswith("+changes")
    }
    return {
        key: each for key, each in document.get("mutants", {}).items() if each.get("room") in same
    }


def hand_kept() -> list[str]:
    """The bugs of tests/mutations that stand in these rooms; that suite demands their catch."""
    patterns = [pattern for room in ROOMS.values() for pattern in room.sources]
    loaded = [mutations.load(name) for name in mutations.names()]
    return [m.name for m in loaded if any(Path(m.edit.file).match(p) for p in patterns)]


def main() -> int:
    """Exit code 0 if every mutant was killed or is explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="of each room")
    parser.add_argument("--room", choices=sorted(ROOMS))
    parser.add_argument("--only", metavar="TEXT", nargs="+", help="all whose name holds a text")
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence/mutants.json")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    rooms = [arguments.room] if arguments.room else list(ROOMS)
    count = arguments.count if arguments.only is None else sys.maxsize
    wanted = [
        (room, mutant)
        for room in rooms
        for mutant in drawn(room, arguments.seed, count)
        if arguments.only is None or any(text in key_of(mutant) for text in arguments.only)
    ]
    at_commit = evidence.commit()
    tally = Tally(
        arguments.seed, len(wanted), {room: sources_of(at_commit, room) for room in ROOMS}
    )
    left = tally.take_known(wanted) if arguments.evidence else wanted

    def keep(entries: list[evidence.Entry]) -> None:
        evidence.write(NAME, tally.verdict, entries[-1])

    code = campaigns.carry_out(
        judge_all(left),
        tally,
        campaigns.Shown(console, "mutants", len(wanted)),
        tell,
        keep if arguments.evidence else None,
    )
    for key in tally.holes:
        console.print(f"a hole: {key}", style="red", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())

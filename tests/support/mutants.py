"""Plants small bugs by the hundred in the rooms of the coordinators, and demands that each is
killed by the tests of its own part of the tree.

Run as ``python -m tests.support.mutants [--seed N] [--count N] [--room ROOM] [--evidence]``; part
of `make test-full`. The seed draws `count` mutants of each room from all that
`tests.support.mutant_sites` finds there. One that lives is either a hole in the tests, or it
changes nothing that anybody could see: tests/support/survivors.toml says why, by its name.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.support import evidence, mutations
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant: "killed", "survived" or "does not run"."""

    room: str
    mutant: Mutant
    outcome: str

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
        return Verdict(room, mutant, "survived")
    is_import = "errors during collection" in output or "ImportError" in output
    runs = code == EXIT_TESTS_FAILED and not is_import
    return Verdict(room, mutant, "killed" if runs or code == -1 else "does not run")


def judge_all(wanted: Sequence[tuple[str, Mutant]], console: Console) -> list[Verdict]:
    """Judge mutants, a few at a time, each worker in a copy of its own."""
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
                verdict = judge(*each, tree)
            finally:
                trees.put(tree)
            if verdict.outcome != "killed":
                at = f"{each[1].file}:{each[1].line}"
                console.print(f"{verdict.outcome}: {at} {verdict.key}: {each[1].after}")
            return verdict

        with ThreadPoolExecutor(PARALLEL_MAX) as pool:
            return list(pool.map(work, wanted))


def hand_kept() -> list[str]:
    """The bugs of tests/mutations that stand in these rooms; that suite demands their catch."""
    patterns = [pattern for room in ROOMS.values() for pattern in room.sources]
    loaded = [mutations.load(name) for name in mutations.names()]
    return [m.name for m in loaded if any(Path(m.edit.file).match(p) for p in patterns)]


def write_evidence(seed: int, verdicts: Sequence[Verdict], seconds: float, holes: int) -> None:
    """Note every mutant and what became of it."""
    known = reasons()
    facts: dict[str, object] = {
        "seed": seed,
        "seconds": round(seconds),
        "counts": dict(Counter(v.outcome for v in verdicts)),
        "by hand": hand_kept(),
        "survivors": {
            v.key: known.get(v.key, "a hole") for v in verdicts if v.outcome == "survived"
        },
        "mutants": {
            v.key: {"line": v.mutant.line, "after": v.mutant.after, "verdict": v.outcome}
            for v in verdicts
        },
    }
    evidence.write(NAME, "some survived" if holes else "all killed or explained", facts)


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
    begun = time.monotonic()
    verdicts = judge_all(wanted, console)
    known = reasons()
    holes = [v for v in verdicts if v.outcome == "survived" and v.key not in known]
    console.print(dict(Counter(f"{v.room}: {v.outcome}" for v in verdicts)))
    for verdict in holes:
        console.print(f"[red]a hole[/red]: {verdict.key}")
    if arguments.evidence:
        write_evidence(arguments.seed, verdicts, time.monotonic() - begun, len(holes))
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())

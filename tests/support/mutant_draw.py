"""Draws bugs at random: a room, a kind of mistake and a place of it, one after another.

What the type checker rejects is left out, as `make check` would find it.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.patches import ROOT, copy_tree, environment
from tests.support.semantic_sites import Mutant, semantic_mutants_of

__all__ = ["ROOMS", "Drawn", "Room", "all_of", "drawn", "fresh_copy", "key_of", "typed"]

TYPE_ERROR = re.compile(r"^(src/\S+?):\d+: error: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Room:
    """Where bugs are planted, and the tests that have to notice, the quickest first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    is_spark: bool = False
    """Whether the model of Spark's driver simulates it, and not the broker's simulation."""

    brokers: int | None = None
    """How many the simulated runs have; None: as each seed draws it."""

    is_secure: bool = False
    """Whether the simulated runs have users and rights; if not, one of eight has."""


ROOMS = {
    "transaction": Room(
        ("src/oncelog/transaction/*.py",),
        ("tests/scenarios/transaction", "tests/unit/transaction"),
    ),
    "coordinator": Room(("src/oncelog/coordinator/*.py",), ("tests/unit/coordinator",)),
    "group": Room(
        ("src/oncelog/group/**/*.py",),
        (
            "tests/scenarios/test_group.py",
            "tests/scenarios/test_consumer_group.py",
            "tests/scenarios/test_group_cells.py",
            "tests/unit/group",
        ),
    ),
    "shells": Room(
        ("src/oncelog/broker/coordination/*.py",),
        ("tests/unit/broker/coordination", "tests/unit/broker/apis"),
    ),
    "storage": Room(("src/oncelog/storage/**/*.py",), ("tests/unit/storage", "tests/properties")),
    "partitions": Room(
        ("src/oncelog/broker/partitions/*.py",),
        ("tests/unit/broker/partitions", "tests/unit/broker"),
    ),
    "apis": Room(
        ("src/oncelog/broker/apis/*.py", "src/oncelog/broker/net/*.py"),
        ("tests/unit/broker/apis", "tests/scenarios/wire", "tests/unit/broker"),
    ),
    "security": Room(
        ("src/oncelog/security/*.py",),
        ("tests/scenarios/sasl", "tests/unit/security"),
        is_secure=True,
    ),
    "replication": Room(
        ("src/oncelog/replication/*.py", "src/oncelog/broker/replication/*.py"),
        ("tests/unit/replication", "tests/unit/broker/replication", "tests/unit/broker"),
        brokers=3,
    ),
    "controller": Room(
        (
            "src/oncelog/controller/*.py",
            "src/oncelog/broker/controller/*.py",
            "src/oncelog/broker/membership/*.py",
        ),
        ("tests/unit/controller", "tests/unit/broker"),
        brokers=3,
    ),
    "metadata": Room(
        ("src/oncelog/metadata/**/*.py",),
        ("tests/unit/metadata", "tests/unit/broker/controller", "tests/unit/broker/membership"),
        brokers=3,
    ),
    "client": Room(("src/oncelog/client/machines/*.py",), ("tests/unit/client",)),
    "spark driver": Room(
        tuple(
            f"src/oncelog/spark/{name}.py"
            for name in (
                "batch_protocol",
                "marker",
                "kafka_micro_batch",
                "write_stage",
                "turns",
                "turn_server",
                "sending",
                "direct",
            )
        ),
        ("tests/unit/spark",),
        is_spark=True,
    ),
}


Drawn = tuple[str, Mutant]
"""A room and a mutant of it."""


def key_of(mutant: Mutant) -> str:
    """A mutant's name among all."""
    return f"{mutant.file.removeprefix('src/oncelog/')} {mutant.name}"


def all_of(room: str, root: Path = ROOT) -> list[Mutant]:
    """All mutants of a room, in the order of its files."""
    found: list[Mutant] = []
    for pattern in ROOMS[room].sources:
        for path in sorted(root.glob(pattern)):
            found += semantic_mutants_of(str(path.relative_to(root)), path.read_bytes())
    return found


def drawn(rooms: Iterable[str], seed: int) -> Iterator[Drawn]:
    """All mutants of the rooms in an order that the seed decides.

    Rooms come equally often, and in a room kinds do: most places are of one or two kinds.
    """
    chance = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = {}
    for room in rooms:
        kinds: dict[str, list[Mutant]] = {}
        for mutant in all_of(room):
            kinds.setdefault(_kind(mutant), []).append(mutant)
        left[room] = kinds
    while left:
        room = chance.choice(sorted(left))
        kind = chance.choice(sorted(left[room]))
        mutants = left[room][kind]
        yield room, mutants.pop(chance.randrange(len(mutants)))
        if not mutants:
            del left[room][kind]
        if not left[room]:
            del left[room]


def _kind(mutant: Mutant) -> str:
    return mutant.name.partition(": ")[2].rpartition(" #")[0]


def typed(candidates: Iterator[Drawn], count: int, tree: Path) -> list[Drawn]:
    """The first `count` that the type checker accepts; `tree` is a copy to plant them in.

    One run judges several of different files: a change inside a function gives no error elsewhere.
    """
    chosen: list[Drawn] = []
    left_over: list[Drawn] = []
    while len(chosen) < count:
        round_of: dict[str, Drawn] = {}
        waiting, left_over = left_over, []
        while len(round_of) < count - len(chosen):
            each = waiting.pop(0) if waiting else next(candidates, None)
            if each is None:
                break
            if each[1].file in round_of:
                left_over.append(each)
                if len(left_over) > count:
                    break
                continue
            round_of[each[1].file] = each
        left_over = [*waiting, *left_over]
        if not round_of:
            break
        wrong = _files_with_errors(list(round_of.values()), tree)
        chosen += [each for file, each in round_of.items() if file not in wrong]
    return chosen


def _files_with_errors(planted_now: Sequence[Drawn], tree: Path) -> frozenset[str]:
    sources = {mutant.file: (tree / mutant.file).read_bytes() for _, mutant in planted_now}
    for _, mutant in planted_now:
        (tree / mutant.file).write_bytes(mutant.planted(sources[mutant.file]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "src"],
            cwd=tree,
            env=environment(tree),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for file, source in sources.items():
            (tree / file).write_bytes(source)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the type checker did not run: {done.stdout}{done.stderr}")
    return frozenset(TYPE_ERROR.findall(done.stdout))


def fresh_copy(tree: Path) -> Path:
    """Copy the repository to a new folder, without compiled files.

    These could pass for up to date: same size, and written within the same second.
    """
    tree.mkdir()
    copy_tree(tree)
    for compiled in tree.glob("src/**/__pycache__/*.pyc"):
        compiled.unlink()
    return tree

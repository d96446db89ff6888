"""Counts what the runs of a campaign reached: faults, states, moves, crash rows.

A name is "area/what", for example "fault/torn-write", "transaction/Ongoing->PrepareCommit" or
"crash/ALL_MARKERS". `CATALOGUE` lists every name that has to be reached. A counted name that is not
listed is shown too, so that a misspelled name is noticed. `merge` adds up the counts of several
runs or processes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import TYPE_CHECKING

from oncelog.group.states import MOVES
from oncelog.simulation.archive import Archive
from oncelog.simulation.crashes import CrashContext, CrashPlace, crash_rows
from oncelog.simulation.history import Fault, History
from oncelog.transaction.states import LEGAL_PREVIOUS

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "AREAS",
    "CATALOGUE",
    "CONSUMER_GROUP_STATES",
    "DOWNGRADED",
    "FAULT_KINDS",
    "GROUP_CONVERSIONS",
    "GROUP_STATES",
    "MEMBER_STATES",
    "REACHED_COUNT_MIN",
    "TRANSACTION_STATES",
    "UNREACHABLE",
    "UPGRADED",
    "Coverage",
]

_LOST_BYTES = re.compile(r"(\d+) of (\d+) unsynced bytes lost")

REACHED_COUNT_MIN = 20
"""How often each name has to be reached in the evidence run."""

FAULT_KINDS: dict[str, tuple[str, ...]] = {
    "network": (
        "delay",
        "throttle",
        "partition",
        "one-way-partition",
        "drop",
        "drop-at-byte",
        "half-open",
        "cut-brokers",
        "cut-controller",
        "slow-broker",
    ),
    "disk": (
        "power-loss",
        "power-loss-at-operation",
        "power-loss-at-read",
        "power-loss-of-minority",
        "power-loss-of-all",
        "disk-loss",
        "folder-loss",
        "disk-put-back",
        "torn-write",
        "lost-name",
        "flip-bit",
        "failed-read",
        "failed-write",
        "failed-fsync",
        "disk-full",
        "slow-disk",
    ),
    "process": (
        "kill",
        "kill-at-await",
        "kill-at-operation",
        "kill-at-event",
        "kill-while-starting",
        "kill-client",
        "kill-client-at-event",
        "stop",
        "freeze",
        "zombie-client",
        "zombie-broker",
        "rolling-restart",
        "rolled-to-the-end",
        "add-broker",
        "retire-broker",
        "kill-controller",
        "elect-leaders",
    ),
    "store": (
        *("store-away", "store-slow", "store-answer-lost", "store-lags", "cut-from-store"),
        "expire-session",
    ),
    "rights": ("take-right", "take-password"),
    "clock": ("wall-jump-forward", "wall-jump-back", "client-wall-jump", "drift"),
}
"""The names of faults, by target. `Fault.kind` in a history is one of them.

Four are not planned: "torn-write" and "lost-name" are parts of a loss of power
(`Coverage.add_losses`), "drift" counts processes with a drifting clock, and "rolled-to-the-end"
rolling restarts that came to all brokers.
"""

AREAS = ("fault", "transaction", "group", "consumer-group", "member", "crash", "compaction")


def _transaction_names() -> Iterator[str]:
    for state, previous in LEGAL_PREVIOUS.items():
        yield f"transaction/{state.label}"
        for before in sorted(previous, key=lambda state: state.value):
            yield f"transaction/{before.label}->{state.label}"


def _group_names() -> Iterator[str]:
    for state, following in MOVES.items():
        yield f"group/{state.value}"
        for after in sorted(following, key=lambda state: state.value):
            yield f"group/{state.value}->{after.value}"


TRANSACTION_STATES = tuple(_transaction_names())
"""Each state and each legal move of a transactional id."""

GROUP_STATES = tuple(_group_names())
"""Each state and each legal move of a classic group."""

UPGRADED, DOWNGRADED = "upgraded", "downgraded"
"""A group has changed its protocol while it had members."""

CONSUMER_GROUP_STATES = (
    *("consumer-group/Empty", "consumer-group/Empty->Assigning", "consumer-group/Empty->Stable"),
    *("consumer-group/Assigning", "consumer-group/Assigning->Reconciling"),
    *("consumer-group/Assigning->Stable", "consumer-group/Assigning->Empty"),
    *("consumer-group/Reconciling", "consumer-group/Reconciling->Assigning"),
    *("consumer-group/Reconciling->Stable", "consumer-group/Reconciling->Empty"),
    *("consumer-group/Stable", "consumer-group/Stable->Assigning"),
    *("consumer-group/Stable->Reconciling", "consumer-group/Stable->Empty"),
    *("consumer-group/Dead", "consumer-group/Empty->Dead"),
    *(f"consumer-group/{change}" for change in (UPGRADED, DOWNGRADED)),
)
"""Each state of a group under KIP-848, and each move between two decisions."""

_MEMBER_STATES = ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")
MEMBER_STATES = (
    *(f"member/{state}" for state in _MEMBER_STATES),
    *(f"member/{was}->{now}" for was, now in permutations(_MEMBER_STATES, 2)),
)
"""Each state of a member under KIP-848, and each move."""

GROUP_CONVERSIONS = (
    *("group/Dead", "group/Empty->Dead", "group/PreparingRebalance->Dead"),
    *("group/CompletingRebalance->Dead", "group/Stable->Dead", "group/Empty->Stable"),
)
"""A classic group is gone when it is upgraded; one that was downgraded begins as Stable."""

COMPACTIONS = ("compaction/swap", "compaction/swap-finished-at-start")
"""Segments that replaced others, and those of them that recovery renamed into place."""

CATALOGUE: tuple[str, ...] = (
    *(f"fault/{kind}" for kinds in FAULT_KINDS.values() for kind in kinds),
    *TRANSACTION_STATES,
    *GROUP_STATES,
    *GROUP_CONVERSIONS,
    *CONSUMER_GROUP_STATES,
    *MEMBER_STATES,
    *(f"crash/{row.name}" for row in CrashPlace),
    *COMPACTIONS,
)

_CLUSTER = "needs a second broker"
_EXPIRY = "ids expire after a week; a shorter time would make every idle client fail for good"
_SPARK = "counted where Spark's driver is simulated, tests/simulation/spark_model.py"
UNREACHABLE: dict[str, str] = {
    "transaction/Empty->PrepareAbort": "no client here ends a transaction that it has not begun",
    "transaction/Dead": _EXPIRY,
    "transaction/Empty->Dead": _EXPIRY,
    "transaction/CompleteCommit->Dead": _EXPIRY,
    "transaction/CompleteAbort->Dead": _EXPIRY,
    "crash/IN_FSYNC": "an fsync takes no time here: a death falls just before or just after it",
    **{f"crash/{row.name}": _SPARK for row in CrashPlace if row.name.startswith("SPARK_")},
    "crash/COORDINATOR_MOVES": f"{_CLUSTER}: a lone one leads every coordinator partition",
    "crash/ZOMBIE_COORDINATOR": f"{_CLUSTER}: a lone one is replaced by itself, after its death",
    "crash/LEADER_DIES": f"{_CLUSTER}: here leader and coordinator die together",
    "crash/UNREPLICATED": f"{_CLUSTER}: a lone replica commits with the append",
}
"""The names that cannot be reached, each with the reason."""


class Coverage:
    """Counts how often each name was reached."""

    __slots__ = ("counts", "tell_move")

    def __init__(self, tell_move: Callable[[str], None] | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.tell_move = tell_move
        """Called with the name of each move when it happens."""

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to the count of `name`."""
        self.counts[name] = self.counts.get(name, 0) + n

    def moved(self, area: str, before: str | None, after: str) -> None:
        """Count a state that was entered, and the move to it; `before` is None for the first."""
        self.count(f"{area}/{after}")
        if before is not None:
            self.count(f"{area}/{before}->{after}")
        if self.tell_move is not None:
            self.tell_move(f"{area}/{before or ''}->{after}")

    def add_compactions(self, archive: Archive) -> None:
        """Count the segments that compaction replaced in one run."""
        for name, count in zip(
            COMPACTIONS, (archive.swaps_count, archive.finished_count), strict=True
        ):
            if count:
                self.count(name, count)

    def add_run(self, history: History, contexts: Iterable[CrashContext] = ()) -> None:
        """Count the faults of one run, and the crash rows of its deaths.

        States are counted by `oncelog.simulation.observe` while the run goes on.
        """
        for fault in history.of(Fault):
            self.count(f"fault/{fault.kind}")
        for row in crash_rows(history, contexts):
            self.count(f"crash/{row.name}")

    def add_losses(self, lines: Iterable[str]) -> None:
        """Count the effects of a loss of power, from the simulated disk's report of it."""
        for line in lines:
            lost = _LOST_BYTES.search(line)
            if lost is not None and int(lost[1]) < int(lost[2]):
                self.count("fault/torn-write")
            if " undone" in line:
                self.count("fault/lost-name")

    def merge(self, other: Coverage) -> None:
        """Add the counts of `other`."""
        for name, n in other.counts.items():
            self.count(name, n)

    def unreached(self, minimum: int = REACHED_COUNT_MIN) -> dict[str, int]:
        """Return the names of the catalogue with a lower count, except the unreachable ones."""
        return {
            name: self.counts.get(name, 0)
            for name in CATALOGUE
            if name not in UNREACHABLE and self.counts.get(name, 0) < minimum
        }

    def reached(self, area: str, minimum: int = REACHED_COUNT_MIN) -> tuple[int, int]:
        """Return how many names of an area have that count, and how many can be reached."""
        names = [n for n in CATALOGUE if n.startswith(f"{area}/") and n not in UNREACHABLE]
        return sum(self.counts.get(name, 0) >= minimum for name in names), len(names)

    def unlisted(self) -> dict[str, int]:
        """Return the counted names that are not in the catalogue."""
        known = frozenset(CATALOGUE)
        return {name: n for name, n in sorted(self.counts.items()) if name not in known}

    def to_json(self) -> str:
        """Return the counts as a JSON object, sorted by name."""
        return json.dumps(dict(sorted(self.counts.items())), indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Coverage:
        """Read what `to_json` returned. Raises `ValueError` for anything else."""
        counts = json.loads(text)
        if not isinstance(counts, dict):
            raise ValueError("coverage is a JSON object of counts")
        made = Coverage()
        for name, n in counts.items():
            if not isinstance(n, int):
                raise ValueError(f"the count of {name} is no number")
            made.count(str(name), n)
        return made

    def table(self, minimum: int = REACHED_COUNT_MIN) -> Table:
        """Return a table of all counts for a terminal, by area, with unreached names in colour."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        table.add_column("area")
        table.add_column("reached", overflow="fold")
        table.add_column("count", justify="right")
        table.add_column("", overflow="fold")
        for name in CATALOGUE:
            _add_row(table, name, self.counts.get(name, 0), minimum)
        for name, n in self.unlisted().items():
            area, _, what = name.partition("/")
            table.add_row(area, what, f"{n:,}", "not in the catalogue", style="magenta")
        return table


def _add_row(table: Table, name: str, n: int, minimum: int) -> None:
    area, _, what = name.partition("/")
    if area == "crash":
        what = CrashPlace[what].value
    reason = UNREACHABLE.get(name)
    if reason is not None:
        table.add_row(area, what, f"{n:,}" if n else "-", f"unreachable: {reason}", style="dim")
    elif n < minimum:
        verdict = "never reached" if not n else f"below {minimum}"
        table.add_row(area, what, f"{n:,}", verdict, style="red" if not n else "yellow")
    else:
        table.add_row(area, what, f"{n:,}", "")

"""Holds how much of each room is typed: below 1 % of its expressions may be `Any`.

Run as ``python -m tests.support.any_share``; part of `make check`. mypy counts them
(`--any-exprs-report`). `spark` is exempt, because PySpark's and Arrow's own types are `Any`.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ["Share", "main", "shares", "too_high"]

PERCENT_MAX = 1.0
EXEMPT = frozenset({"spark"})

ROOT = Path(__file__).resolve().parents[2]


class Share(NamedTuple):
    """How many of a room's expressions are `Any`."""

    room: str
    any_count: int
    expressions_count: int

    @property
    def percent(self) -> float:
        """Of all expressions."""
        return 100 * self.any_count / max(self.expressions_count, 1)


def shares(report: str) -> list[Share]:
    """The rooms of mypy's table of modules: a line is a name, two counts and a percentage.

    The modules beside the rooms (`oncelog` itself) are left out.
    """
    anys: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in report.splitlines():
        module, *numbers = line.split() or [""]
        package, _, rest = module.partition(".")
        room = rest.partition(".")[0]
        if package == "oncelog" and room and not room.startswith("__"):
            anys[room] += int(numbers[0])
            counts[room] += int(numbers[1])
    return [Share(room, anys[room], counts[room]) for room in sorted(counts)]


def too_high(found: list[Share]) -> list[Share]:
    """The rooms above the bound."""
    return [share for share in found if share.room not in EXEMPT and share.percent >= PERCENT_MAX]


def main() -> int:
    """Exit code 0 only if every room keeps the bound."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="oncelog-any-") as folder:
        command = [sys.executable, "-m", "mypy", "src", "--any-exprs-report", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            console.print(done.stdout + done.stderr, markup=False, highlight=False)
            return 1
        found = shares((Path(folder) / "any-exprs.txt").read_text())
    table = Table(title=f"expressions that are Any, by room; below {PERCENT_MAX:g} %", min_width=50)
    table.add_column("room")
    for column in ("Any", "expressions", "%"):
        table.add_column(column, justify="right")
    for share in found:
        table.add_row(
            share.room, str(share.any_count), str(share.expressions_count), f"{share.percent:.2f}"
        )
    console.print(table)
    for share in too_high(found):
        console.print(f"{share.room}: {share.percent:.2f} % of its expressions are Any")
    return 1 if too_high(found) else 0


if __name__ == "__main__":
    sys.exit(main())

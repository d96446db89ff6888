"""`make bench-quick`: these sources beside those of another commit, in less than two minutes.

Counts come first: Python calls and system calls per request, which no machine changes. Then both
brokers live side by side, and their CPU time per request, transaction and GB is measured in turns.
Both run from their sources in the environment that this runs in. `make bench` with
``--base`` compares base installs, on more rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import report
from bench.results import Results
from bench.rows import ROWS
from bench.run import Kind, Run
from bench.systems import FromSources, environment_of
from tests.support.peer.kafka import ROOT

BASE = "base"
ROUNDS = 7
WARM_S = 6.0
KEYS = ("latency", "tiny-txn", "consume")
COUNTERS = {"Python calls": "bench.calls", "system calls": "bench.system_calls"}


def export(commit: str, folder: Path) -> Path:
    """Write the sources of a commit into a folder; returns where the package lies."""
    command = ["git", "-C", str(ROOT), "archive", commit, "src"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.decode().strip().splitlines()[-1])
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def counts(module: str, sources: Path) -> dict[str, float]:
    """What `module` counts per request on these sources; empty where it cannot."""
    environment = environment_of(sources)
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    command = [sys.executable, "-m", module, "--json"]
    done = subprocess.run(
        command, env=environment, cwd=sources, capture_output=True, text=True, check=False
    )
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def count_table(what: str, ours: Mapping[str, float], theirs: Mapping[str, float]) -> Table:
    """One row per request that both builds answered."""
    table = Table(title=f"{what} per request")
    for heading in ("request", report.OURS, BASE):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for name in ours.keys() & theirs.keys():
        colour = "red" if ours[name] > theirs[name] * 1.01 else "default"
        cells = (report.number(ours[name]), report.number(theirs[name]))
        table.add_row(name, f"[{colour}]{cells[0]}[/{colour}]", cells[1])
    return table


def main() -> int:
    """Exit code 0 when everything was measured, whatever it shows."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.quick")
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (HEAD)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        try:
            base = export(arguments.base, Path(name))
        except ValueError as refusal:
            console.print(f"[red]no such commit[/red]: {refusal}")
            return 2
        for what, module in COUNTERS.items():
            found = [counts(module, sources) for sources in (ROOT / "src", base)]
            console.print(count_table(what, *found))
        measured = Results()
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        kinds: list[Kind] = [FromSources, partial(FromSources, name=BASE, sources=base)]
        with Progress(*columns, console=console) as progress:
            run = Run(kinds, arguments.rounds, measured, progress, lambda: None, WARM_S)
            run.all((), [row for row in ROWS if row.key in KEYS], {}, alone=False)
    results = [*report.results(measured, BASE), *report.cpu_results(measured, BASE)]
    console.print(report.terminal(results, BASE))
    console.print(report.verdict(results))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())

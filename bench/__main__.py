"""`make bench`: Oncelog beside Apache Kafka on this machine, interleaved, as ratios of medians.

In each round both systems are started afresh, one after the other, in an order that alternates;
first the start and the idle memory are taken, then the loads run. Never both at once: two cores are
few.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import batch_format, report
from bench.peer.kafka import PeerUnavailable, jars
from bench.rows import IDLE_TARGET, ROWS, START_TARGET, Row
from bench.systems import Kafka, Oncelog, System, install_base, resident_mb

IDLE_SETTLE_S = 3.0
ROUNDS = 7

TITLES = {row.key: row.title for row in ROWS} | {
    "start": "start, until Metadata is answered",
    "idle": "idle memory",
}

Samples = dict[tuple[str, str], dict[str, list[float]]]
"""(row, figure) -> system -> one figure per round."""


def measure(system: System, rows: list[Row], samples: Samples, console: Console) -> None:
    """One start of one system: start-up, idle memory, then every load."""
    seconds = system.start()
    try:
        time.sleep(IDLE_SETTLE_S)
        samples["start", "seconds"][system.name].append(seconds)
        samples["idle", "memory MB"][system.name].append(resident_mb(system.pid))
        for row in rows:
            figures = row.load(system)
            for figure, value in figures.items():
                samples[row.key, figure][system.name].append(value)
            told = ", ".join(f"{value:,.2f} {figure}" for figure, value in figures.items())
            console.print(f"  {system.name:8} {row.title}: {told}")
    finally:
        system.stop()


def main() -> int:
    """Exit code 0 when everything was measured, whatever the ratios are; 2 without a peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--only", default="", help="keys of rows, comma separated; 'start' for none"
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks.md and its plot"
    )
    arguments = parser.parse_args()
    console = Console()
    only = {key for key in arguments.only.split(",") if key}
    rows = [row for row in ROWS if not only or row.key in only]
    try:
        jars()
    except PeerUnavailable as reason:
        console.print(f"[red]no peer to measure beside[/red]: {reason}")
        return 2
    console.print("installing the base package of this checkout")
    install_base()
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for number in range(arguments.rounds):
        console.print(f"[bold]round {number + 1} of {arguments.rounds}[/bold]")
        run_round(number, rows, samples, console)
        if arguments.write:
            # After every round, so that a run which is cut short leaves what it has measured.
            write(samples, number + 1, console)
    console.print(report.table(summarise(samples)))
    console.print(batch_format.sentence())
    return 0


def run_round(number: int, rows: list[Row], samples: Samples, console: Console) -> None:
    """Both systems once, each started afresh; the order alternates from round to round."""
    order: list[Callable[[Path], System]]
    order = [Oncelog, Kafka] if number % 2 == 0 else [Kafka, Oncelog]
    for kind in order:
        folder = Path(tempfile.mkdtemp(prefix="oncelog-bench-"))
        try:
            measure(kind(folder), rows, samples, console)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def summarise(samples: Samples) -> list[report.Result]:
    """Medians and ratios of all rounds so far, with the target of each figure that has one."""
    targets = {(row.key, target.figure): target for row in ROWS for target in row.targets}
    targets |= {("start", "seconds"): START_TARGET, ("idle", "memory MB"): IDLE_TARGET}
    return report.results(samples, TITLES, targets)


def write(samples: Samples, rounds: int, console: Console) -> None:
    """docs/benchmarks.md and its plot."""
    for path in report.write(summarise(samples), rounds, report.costs(samples, TITLES)):
        console.print(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())

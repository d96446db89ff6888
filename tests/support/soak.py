"""`make soak`: minutes of load with the broker killed every 5 to 15 s, and the verdict."""

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support import evidence
from tests.support.broker import BrokerProcess
from tests.support.crash import CrashReport, run

KILL_EVERY_S = (5.0, 15.0)
ANOMALIES_SHOWN_MAX = 20


def show(console: Console, report: CrashReport) -> None:
    """The counts as a table, then each finding."""
    table = Table(title="soak")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, count in report.counts.items():
        table.add_row(name, f"{count:,}")
    console.print(table)
    for problem in report.problems[:ANOMALIES_SHOWN_MAX]:
        console.print(f"[red]problem[/red] {problem}")
    for anomaly in report.anomalies[:ANOMALIES_SHOWN_MAX]:
        console.print(f"[red]{anomaly.kind}[/red] {anomaly.detail}")
    if report.exact:
        verdict = "[bold green]exact[/bold green]"
    else:
        findings = len(report.anomalies) + len(report.problems)
        verdict = f"[bold red]not exact[/bold red]: {findings} findings"
    console.print(verdict)


def main() -> int:
    """Exit code 0 only when nothing was lost, repeated, reordered or shown too early."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="oncelog-soak-"))
    console.print(f"seed {arguments.seed}, {arguments.minutes:g} minutes, data in {folder}")
    with BrokerProcess(folder / "data") as broker, console.status("loading") as status:
        report = run(
            broker, arguments.seed, arguments.minutes * 60, KILL_EVERY_S, on_progress=status.update
        )
    show(console, report)
    verdict = "exact" if report.exact else "not exact"
    transactions = report.counts["transactions committed"]
    count = f"{arguments.minutes:g} minutes, {report.counts['kills']} kills of the broker, "
    count += f"{transactions:,} transactions"
    how = f"python -m tests.support.soak --minutes {arguments.minutes:g} --seed {arguments.seed}"
    evidence.note("soak", verdict, count, how, seed=arguments.seed)
    return 0 if report.exact else 1


if __name__ == "__main__":
    sys.exit(main())

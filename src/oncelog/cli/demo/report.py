"""Prints the demo's output: a line per act, one bar, and a table at the end."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncelog.cli.demo.expected import Comparison
from oncelog.cli.demo.watch import Kill


def bar(console: Console) -> Progress:
    """A bar with a count and the time."""
    return Progress(
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def kill_line(number: int, kill: Kill, victim_width: int) -> str:
    """One kill as a line of text."""
    victim = kill.victim.ljust(victim_width)
    return (
        f"  [bold red]SIGKILL {number}[/bold red]  {victim}  batch {kill.batch:>3}"
        f"  {kill.row.value}"
    )


def kill_table(kills: list[Kill]) -> Table:
    """All kills: where each was aimed and which row of the crash table it hit."""
    table = Table(title="kills", title_justify="left")
    for heading in ("killed", "batch", "aimed at", "row of the crash table that was hit"):
        table.add_column(heading)
    for kill in kills:
        aim = f"{kill.moment.step} + {kill.moment.delay_ms} ms"
        table.add_row(kill.victim, str(kill.batch), aim, kill.row.value)
    return table


def verdict_table(verdict: Comparison, uncommitted: dict[str, int]) -> Table:
    """Compare a read_committed consumer's records with the plain batch computation."""
    table = Table(title="a read_committed consumer beside the batch computation")
    table.title_justify = "left"
    for heading in ("result", "expected", "seen", "aborted records beside them"):
        table.add_column(heading, justify="right" if heading != "result" else "left")
    table.add_row(
        "flights more than 60 minutes late",
        f"{verdict.delayed_expected_count:,}",
        f"{verdict.delayed_seen_count:,}",
        f"{uncommitted['delayed'] - verdict.delayed_seen_count:,}",
    )
    table.add_row(
        "carrier days with the right final aggregate",
        f"{verdict.daily_expected_count:,}",
        f"{verdict.daily_right_count:,}",
        "",
    )
    table.add_row(
        "updates of those aggregates",
        "",
        f"{verdict.daily_updates_count:,}",
        f"{uncommitted['daily'] - verdict.daily_updates_count:,}",
    )
    return table


def end(console: Console, verdict: Comparison, seconds: float) -> None:
    """The verdict, in one word first."""
    for finding in verdict.findings:
        console.print(f"[red]{finding}[/red]")
    if verdict.exact:
        console.print(f"[bold green]exact[/bold green] after {seconds:.0f} s")
    else:
        count = len(verdict.findings)
        console.print(f"[bold red]not exact[/bold red] after {seconds:.0f} s: {count} findings")

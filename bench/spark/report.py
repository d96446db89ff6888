"""The rows about Spark as tables, for the terminal and for docs/benchmarks.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from bench.results import EARLIER_PEER, Results
from bench.spark.rows import DRIVER_MEMORY, NOOP, OURS, SPARK, SPARK_ROWS, STREAMS, TUNED
from bench.stats import Ratio, ratio

BROKERS = {"oncelog": "Oncelog", "kafka": "Kafka"}
NOT_MEASURED = 'Not measured yet: `make bench ARGS="--only spark --keep --write"`.'


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure of one row at one broker: our median beside that of a peer."""

    key: str
    figure: str
    broker: str
    ours: float
    theirs: float
    ratio: Ratio
    noop: float | None


def beside(measured: Results, ours: str, theirs: str) -> list[Beside]:
    """What both have a round of, in the order of the rows."""
    made = []
    order = list(SPARK_ROWS)
    keys = [pair for pair in measured.samples if pair[0] in SPARK_ROWS]
    for key, figure in sorted(keys, key=lambda pair: order.index(pair[0])):
        by_peer = measured.samples[key, figure]
        first, second = by_peer.get(ours, []), by_peer.get(theirs, [])
        rounds = min(len(first), len(second))
        if rounds:
            name, _, broker = figure.partition(" on ")
            first, second = first[:rounds], second[:rounds]
            noop = by_peer.get(NOOP)
            made.append(
                Beside(
                    key,
                    name,
                    broker,
                    median(first),
                    median(second),
                    ratio(first, second),
                    median(noop) if noop else None,
                )
            )
    return made


def count(value: float) -> str:
    """Rows and milliseconds need no more digits than these."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def cells(one: Beside) -> list[str]:
    """Of a line of either table."""
    return [
        one.figure,
        BROKERS[one.broker],
        count(one.ours),
        count(one.theirs),
        f"{one.ratio.value:.2f}",
        f"{one.ratio.low:.2f} to {one.ratio.high:.2f}",
        "" if one.noop is None else count(one.noop),
    ]


HEADINGS = ("work", "figure", "broker", "exactly once", "peer", "ratio", "95 %", "no sink")


def terminal(measured: Results) -> list[Table]:
    """All pairs, a table for each."""
    made = []
    for title, (ours, theirs) in PAIRS.items():
        found = beside(measured, ours, theirs)
        if not found:
            continue
        table = Table(title=title)
        for heading in HEADINGS:
            table.add_column(heading, no_wrap=heading == "work")
        for one in found:
            table.add_row(one.key, *cells(one))
        made.append(table)
    return made


EOS, ALOS = STREAMS
PAIRS: Mapping[str, tuple[str, str]] = {
    "Ours / Spark's connector": (OURS, SPARK),
    "Kafka Streams: EOS v2 / at least once": (EOS, ALOS),
    "Ours / Kafka Streams with EOS v2": (OURS, EOS),
}
"""Exactly once first, and what it is compared with."""


def markdown(measured: Results) -> list[str]:
    """The section of docs/benchmarks.md."""
    lines = ["## Spark", ""]
    if not any(key in SPARK_ROWS for key, _ in measured.samples):
        return [*lines, NOT_MEASURED, ""]
    for title, (ours, theirs) in PAIRS.items():
        found = beside(measured, ours, theirs)
        if found:
            lines += [f"### {title}", "", "| " + " | ".join(HEADINGS) + " |"]
            lines += ["|---|---|---|---:|---:|---:|---|---:|"]
            for one in found:
                row = [SPARK_ROWS[one.key].title, *cells(one)]
                lines.append("| " + " | ".join(row) + " |")
            lines.append("")
    tuned = ", ".join(f"`{key}={value}`" for key, value in TUNED.items())
    facts = measured.facts
    return [
        *lines,
        f"{facts.get('spark', 'PySpark')}, local[2], {DRIVER_MEMORY} of heap, commit"
        f" `{facts.get('spark commit', 'unknown')[:20]}`. The peer is the connector of Spark 4.2.0"
        " with kafka-clients 3.9.2 (the one of 4.3 is not on Maven Central), at least once, with"
        f" {tuned}; ours has its defaults. Kafka Streams"
        f" {facts.get('streams', EARLIER_PEER)} has two threads and the same producer settings.",
        "",
    ]

"""The results as a table for the terminal, docs/benchmarks.md, and a plot (SVG) beside it."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from math import log10
from pathlib import Path
from statistics import median

from rich.table import Table

from bench import batch_format
from bench.peer.kafka import ROOT
from bench.rows import COSTS, Target
from bench.stats import Ratio, ratio
from tests.support.evidence import commit

DOCUMENT = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks.svg"

Samples = Mapping[tuple[str, str], Mapping[str, list[float]]]
"""(row, figure) -> system -> one figure per round."""


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of one row, over all rounds."""

    title: str
    figure: str
    ours: float
    theirs: float
    ratio: Ratio
    target: Target | None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.target.met(self.ratio.value) else "missed"


def results(
    samples: Samples,
    titles: Mapping[str, str],
    targets: Mapping[tuple[str, str], Target],
) -> list[Result]:
    """One result per figure, in the order in which they were first measured."""
    made = []
    for (key, figure), by_system in samples.items():
        ours, theirs = by_system["oncelog"], by_system["kafka"]
        target = targets.get((key, figure))
        made.append(
            Result(titles[key], figure, median(ours), median(theirs), ratio(ours, theirs), target)
        )
    return made


def table(found: list[Result]) -> Table:
    """For the terminal."""
    made = Table(title="Oncelog / Apache Kafka, medians")
    for heading in ("work", "figure", "oncelog", "kafka", "ratio", "95 %", "target", ""):
        made.add_column(heading, justify="left" if heading in ("work", "figure") else "right")
    for result in found:
        colour = {"met": "green", "missed": "red"}.get(result.verdict, "default")
        made.add_row(
            result.title,
            result.figure,
            f"{result.ours:,.2f}",
            f"{result.theirs:,.2f}",
            f"{result.ratio.value:.2f}",
            f"{result.ratio.low:.2f} to {result.ratio.high:.2f}",
            str(result.target or ""),
            f"[{colour}]{result.verdict}[/{colour}]",
        )
    return made


def costs(samples: Samples, titles: Mapping[str, str]) -> list[str]:
    """What each guarantee costs within either system, as lines of the document.

    The ratio of a round's two rows, then the median over the rounds.
    """
    lines = []
    for key, baseline in COSTS:
        ours, theirs = (
            _ratio_within(samples, key, baseline, system) for system in ("oncelog", "kafka")
        )
        if ours is not None and theirs is not None:
            pair = f"{titles[key]} | {titles[baseline]}"
            lines.append(f"| {pair} | {ours - 1:+.0%} | {theirs - 1:+.0%} |")
    if not lines:
        return []
    heading = [
        "## What a guarantee costs",
        "",
        "MB/s of a row against a baseline in the same round of the same system, medians.",
        "",
        "| row | baseline | Oncelog | Kafka |",
        "|---|---|---:|---:|",
    ]
    return [*heading, *lines, ""]


def _ratio_within(samples: Samples, key: str, baseline: str, system: str) -> float | None:
    figures = samples.get((key, "MB/s"), {}).get(system)
    against = samples.get((baseline, "MB/s"), {}).get(system)
    if not figures or not against:
        return None
    return median(one / other for one, other in zip(figures, against, strict=True))


def write(found: list[Result], rounds: int, cost_lines: list[str]) -> list[Path]:
    """docs/benchmarks.md and docs/benchmarks.svg."""
    lines = [
        "# Oncelog beside Apache Kafka",
        "",
        "Written by `make bench ARGS=--write`; `make bench` repeats it. Both systems run with",
        "their default configuration, one broker, one after the other in every round, in",
        "alternating order; the client is librdkafka (confluent-kafka) in both. Machines are",
        "noisy: only the ratio of the medians means something, and its interval (95 %, bootstrap",
        "over rounds) says how much.",
        "",
        f"{rounds} rounds, {os.cpu_count()} cores, {platform.system()}, Python"
        f" {platform.python_version()}, commit `{commit()[:12]}`.",
        "",
        "| work | figure | Oncelog | Kafka | ratio | 95 % | target | |",
        "|---|---|---:|---:|---:|---|---|---|",
    ]
    for result in found:
        lines.append(
            f"| {result.title} | {result.figure} | {result.ours:,.2f} | {result.theirs:,.2f}"
            f" | {result.ratio.value:.2f} | {result.ratio.low:.2f} to {result.ratio.high:.2f}"
            f" | {result.target or ''} | {result.verdict} |"
        )
    lines += ["", "![ratios](benchmarks.svg)", "", *cost_lines, batch_format.sentence(), ""]
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text("\n".join(lines))
    PLOT.write_text(plot(found))
    return [DOCUMENT, PLOT]


def plot(found: list[Result]) -> str:
    """Each ratio as a dot with its interval, on a logarithmic axis; no library draws it smaller."""
    row_height, left, width = 22, 400, 420
    height = row_height * len(found) + 60
    decades = (-2.0, 1.5)

    def x(value: float) -> float:
        clipped = min(max(log10(value), decades[0]), decades[1])
        return left + (clipped - decades[0]) / (decades[1] - decades[0]) * width

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-weight="bold">Oncelog / Apache Kafka (1 = equal)</text>',
    ]
    for tick in (0.01, 0.1, 0.25, 0.5, 1, 2, 4, 10):
        dash = "" if tick == 1 else ' stroke-dasharray="2 3"'
        parts.append(
            f'<line x1="{x(tick):.0f}" y1="30" x2="{x(tick):.0f}" y2="{height - 25}"'
            f' stroke="#999"{dash}/><text x="{x(tick):.0f}" y="{height - 10}"'
            f' text-anchor="middle">{tick:g}</text>'
        )
    for number, result in enumerate(found):
        y = 45 + number * row_height
        colour = {"met": "#2a7f3f", "missed": "#c0392b"}.get(result.verdict, "#34618d")
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">'
            f"{result.title}: {result.figure}</text>"
            f'<line x1="{x(result.ratio.low):.1f}" y1="{y}" x2="{x(result.ratio.high):.1f}"'
            f' y2="{y}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{x(result.ratio.value):.1f}" cy="{y}" r="4" fill="{colour}"/>'
        )
    return "\n".join([*parts, "</svg>", ""])

"""The results as tables for the terminal and as docs/benchmarks.md."""

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from bench import batch_format, method, plot
from bench.clients import report as clients_report
from bench.cluster import report as cluster_report
from bench.cluster.rows import CLUSTER_ROWS
from bench.counting import Calls
from bench.results import EARLIER_PEER, Results, WarmUp
from bench.rows import COSTS, FRESH, ROWS, TITLES, TLS_ROWS, Row
from bench.spark import report as spark_report
from bench.stats import Ratio, ratio
from bench.storage.rows import STORAGE
from bench.work import HIGHER_IS_BETTER
from tests.support.peer.kafka import ROOT

DOCUMENT = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "benchmarks.svg"
OURS = "oncelog"
ALONE = "client alone"
WARM = frozenset(row.key for row in ROWS)
CHANCE = 0.025
"""A figure that is the same in truth lies on the bad side of its interval this often."""


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of one row, over all rounds."""

    key: str
    figure: str
    ours: float
    theirs: float
    ratio: Ratio
    alone: float | None

    @property
    def title(self) -> str:
        return TITLES[self.key]

    @property
    def higher_is_better(self) -> bool:
        return self.figure in HIGHER_IS_BETTER

    @property
    def verdict(self) -> str:
        """Compare two systems with 95 % confidence."""
        if self.ratio.low <= 1 <= self.ratio.high:
            return "same"
        return "better" if (self.ratio.value > 1) == self.higher_is_better else "worse"


def results(measured: Results, other: str) -> list[Result]:
    """One result per figure that both systems have, in the order of the rows."""
    made = []
    order = {key: number for number, key in enumerate(TITLES)}
    known = [pair for pair in measured.samples if pair[0] in order]
    for key, figure in sorted(known, key=lambda pair: order[pair[0]]):
        found = result(measured.samples[key, figure], key, figure, other)
        if found is not None:
            made.append(found)
    return made


def result(
    by_system: Mapping[str, list[float]], key: str, figure: str, other: str
) -> Result | None:
    """None without a round that both systems have done."""
    ours, theirs = by_system.get(OURS, []), by_system.get(other, [])
    # A run that was cut short may have half a round.
    rounds = min(len(ours), len(theirs))
    if rounds == 0:
        return None
    ours, theirs = ours[:rounds], theirs[:rounds]
    alone = by_system.get(ALONE)
    return Result(
        key,
        figure,
        median(ours),
        median(theirs),
        ratio(ours, theirs),
        median(alone) if alone else None,
    )


def cpu_results(measured: Results, other: str, rows: Sequence[Row] = ROWS) -> list[Result]:
    """The same for the brokers' CPU time per unit of work."""
    made = []
    for row in rows:
        figure = f"CPU {row.unit.cpu}/{row.unit.name}"
        scaled = {
            system: [value * row.unit.cpu_scale for value in values]
            for system, values in measured.cpu.get(row.key, {}).items()
        }
        found = result(scaled, row.key, figure, other)
        if found is not None:
            made.append(found)
    return made


def number(value: float) -> str:
    """With as many digits as mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def terminal(found: Sequence[Result], other: str) -> Table:
    """All results, with a verdict for each."""
    made = Table(title=f"Oncelog / {other}, medians")
    headings = ["work", "figure", OURS, other, "ratio", "95 %", ALONE, ""]
    for heading in headings:
        named = heading in ("work", "figure")
        made.add_column(heading, justify="left" if named else "right", no_wrap=named)
    for one in found:
        colour = {"better": "green", "worse": "red"}.get(one.verdict, "default")
        made.add_row(
            one.key,
            one.figure,
            number(one.ours),
            number(one.theirs),
            f"{one.ratio.value:.2f}",
            interval_text(one.ratio),
            "" if one.alone is None else number(one.alone),
            f"[{colour}]{one.verdict}[/{colour}]",
        )
    return made


def interval_text(found: Ratio) -> str:
    """From where to where."""
    return f"{found.low:.2f} to {found.high:.2f}"


def system_calls(measured: Results, other: str) -> Table:
    """System calls per unit of work, for the terminal."""
    made = Table(title="System calls of the broker")
    for heading in ("work", "per", OURS, other):
        made.add_column(heading, justify="left" if heading in ("work", "per") else "right")
    for row in ROWS:
        calls = measured.system_calls.get(row.key, {})
        if OURS in calls and other in calls:
            made.add_row(row.key, row.unit.name, number(calls[OURS]), number(calls[other]))
    return made


def verdict(found: Sequence[Result]) -> str:
    """What is worse than in the other build, and how much of that chance explains."""
    worse = [
        f"{one.key} {one.figure} ({one.ratio.value:.2f}, {interval_text(one.ratio)})"
        for one in found
        if one.verdict == "worse"
    ]
    chance = len(found) * CHANCE
    told = "; ".join(worse) or "nothing"
    return f"worse: {told}. Of {len(found)} figures about {chance:.0f} would look so by chance."


def figure_table(found: Sequence[Result], alone: bool) -> list[str]:
    """Markdown; `alone` adds the column of the client by itself."""
    lines = [
        "| work | figure | Oncelog | Kafka | ratio | 95 % |" + (" client alone |" if alone else ""),
        "|---|---|---:|---:|---:|---|" + ("---:|" if alone else ""),
    ]
    for one in found:
        line = (
            f"| {one.title} | {one.figure} | {number(one.ours)} | {number(one.theirs)}"
            f" | {one.ratio.value:.2f} | {interval_text(one.ratio)} |"
        )
        if alone:
            line += " |" if one.alone is None else f" {number(one.alone)} |"
        lines.append(line)
    return [*lines, ""]


def cpu_table(measured: Results, found: Sequence[Result], other: str) -> list[str]:
    """Markdown: what the brokers spend on a unit of work."""
    lines = [
        "| work | CPU per | Oncelog | user + system | Kafka | user + system | ratio | 95 %"
        " | system calls: Oncelog | Kafka |",
        "|---|---|---:|---|---:|---|---:|---|---:|---:|",
    ]
    rows = {row.key: row for row in (*ROWS, *TLS_ROWS)}
    for one in found:
        unit = rows[one.key].unit
        splits = [
            split_text(measured.split.get(one.key, {}).get(system), unit.cpu_scale)
            for system in (OURS, other)
        ]
        calls = [measured.system_calls.get(one.key, {}).get(system) for system in (OURS, other)]
        told = [number(each) if each is not None else "" for each in calls]
        lines.append(
            f"| {one.title} | {unit.name} | {number(one.ours)} {unit.cpu} | {splits[0]}"
            f" | {number(one.theirs)} {unit.cpu} | {splits[1]} | {one.ratio.value:.2f}"
            f" | {interval_text(one.ratio)} | {told[0]} | {told[1]} |"
        )
    return [*lines, ""]


def split_text(split: Sequence[float] | None, scale: float) -> str:
    """User and system time per unit of work, over all rounds together."""
    if not split or not split[2]:
        return ""
    user, system, amount = split
    return f"{number(user / amount * scale)} + {number(system / amount * scale)}"


def call_table(calls: Mapping[str, Calls]) -> list[str]:
    """Markdown: Python function calls of a request."""
    lines = [
        "| request | calls until its reply | calls in all | with libraries and generated code |",
        "|---|---:|---:|---:|",
    ]
    for name, one in calls.items():
        lines.append(f"| {name} | {one.until_reply} | {one.total} | {one.everywhere} |")
    return [*lines, ""]


def warm_up_table(measured: Results, other: str) -> list[str]:
    """Markdown: how long each broker took to be warm, and what it gained."""
    lines = [
        "| work | Oncelog: seconds | last window / first | Kafka: seconds | last window / first |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        by = measured.warm_ups.get(row.key, {})
        if OURS in by and other in by:
            told = " | ".join(warm_up_text(one) for one in (by[OURS], by[other]))
            lines.append(f"| {row.title} | {told} |")
    return [*lines, ""]


def warm_up_text(one: WarmUp) -> str:
    """Two cells of that table."""
    steady = "" if one.steady else " (not steady)"
    return f"{one.seconds:.0f}{steady} | {one.last / one.first:.2f}"


def cost_table(measured: Results, other: str) -> list[str]:
    """Markdown: what each guarantee costs within either system.

    The ratio of a round's two rows, then the median over the rounds and its interval.
    """
    lines = []
    for key, baseline in COSTS:
        ours, theirs = (_ratio_within(measured, key, baseline, system) for system in (OURS, other))
        if ours is not None and theirs is not None:
            pair = f"{TITLES[key]} | {TITLES[baseline]}"
            lines.append(f"| {pair} | {cost_text(ours)} | {cost_text(theirs)} |")
    if not lines:
        return []
    return ["| row | baseline | Oncelog | Kafka |", "|---|---|---:|---:|", *lines, ""]


def cost_text(found: Ratio) -> str:
    """What is gained or lost, with its interval."""
    return f"{found.value - 1:+.0%} ({found.low - 1:+.0%} to {found.high - 1:+.0%})"


def _ratio_within(measured: Results, key: str, baseline: str, system: str) -> Ratio | None:
    figures = measured.samples.get((key, "MB/s"), {}).get(system)
    against = measured.samples.get((baseline, "MB/s"), {}).get(system)
    if not figures or not against:
        return None
    pairs = [one / other for one, other in zip(figures, against, strict=False)]
    return ratio(pairs, [1.0] * len(pairs))


def storage_section(found: Sequence[Result]) -> list[str]:
    """Markdown: the rows about the log, if they were measured."""
    if not found:
        return []
    return [
        "## The log",
        "",
        "Each in a fresh process on a folder that was filled for it, the same files for both.",
        "",
        *figure_table(found, alone=False),
    ]


def cluster_section(measured: Results, found: Sequence[Result]) -> list[str]:
    """Markdown: three brokers, if they were measured."""
    rows = [one for one in found if one.key in CLUSTER_ROWS]
    return cluster_report.markdown(measured, figure_table(rows, alone=False) if rows else [])


def tls_section(measured: Results, found: Sequence[Result]) -> list[str]:
    """Markdown: the loads over TLS, if they were measured."""
    keys = {row.key for row in TLS_ROWS}
    rows = [one for one in found if one.key in keys]
    if not rows:
        return []
    facts = measured.facts
    return [
        "## Over TLS",
        "",
        "The same loads over TLS 1.3, which librdkafka does on the same two cores, with one"
        " certificate (EC, P-256) on both brokers: Apache Kafka by the JVM's JSSE, Oncelog by"
        f" OpenSSL. Apache Kafka {facts.get('tls kafka', EARLIER_PEER)}, commit"
        f" `{facts.get('tls commit', 'unknown')[:20]}`.",
        "",
        *figure_table(rows, alone=False),
        *cpu_table(measured, cpu_results(measured, "kafka", TLS_ROWS), "kafka"),
    ]


def conclusion(warm: Sequence[Result], spent: Sequence[Result]) -> str:
    """What the first two tables come to, in two sentences."""
    count = Counter(one.verdict for one in warm)
    worse = "; ".join(_beside_others(one, warm) for one in warm if one.verdict == "worse")
    less = sum(one.verdict == "better" for one in spent)
    return (
        f"**Result.** On one machine, both warm, Oncelog is better than Apache Kafka in"
        f" {count['better']} of {len(warm)} figures, no different in {count['same']} (their"
        f" interval has 1 in it) and worse in {count['worse']}{f' ({worse})' if worse else ''}. It"
        f" spends less CPU in {less} of {len(spent)} rows."
    )


def _beside_others(worse: Result, warm: Sequence[Result]) -> str:
    """A figure that is worse, and how the other figures of its row are."""
    others = [one for one in warm if one.key == worse.key and one is not worse]
    told = ", ".join(f"{one.figure} {one.ratio.value:.2f}" for one in others)
    beside = f", beside {told}" if told else ""
    return f"{worse.title}: {worse.figure} {worse.ratio.value:.2f} of Kafka's{beside}"


def _ground(measured: Results) -> str:
    """What the figures stand on besides the sources."""
    python = f"Python {platform.python_version()}"
    facts = measured.facts
    return f"{platform.system()}, {facts.get('ground', python)}, {facts.get('java', 'Java')}"


def document(measured: Results, calls: Mapping[str, Calls]) -> str:
    """docs/benchmarks.md."""
    found = results(measured, "kafka")
    cold = [one for one in found if one.key in FRESH]
    warm = [one for one in found if one.key in WARM]
    storage = [one for one in found if one.key in STORAGE]
    spent = cpu_results(measured, "kafka")
    lines = [
        f"# Oncelog beside Apache Kafka\n\n{conclusion(warm, spent)}\n",
        "Written by `make bench ARGS=--write`; the same command repeats it. One broker each, on one"
        " machine, both warm. Machines are noisy: only the ratio of the medians means something,"
        " and its interval (95 %, bootstrap over rounds) says how much.",
        "",
        f"{measured.rounds()} rounds, {os.cpu_count()} cores, {_ground(measured)}, Apache Kafka"
        f" {measured.facts.get('kafka', EARLIER_PEER)}, commit"
        f" `{measured.facts.get('commit', 'unknown')[:20]}`.",
        "",
        "## Warm",
        "",
        *figure_table(warm, alone=True),
        "![ratios](benchmarks.svg)",
        "",
        "Client alone: the same client against librdkafka's own in-memory cluster"
        " (`test.mock.num.brokers`), which runs in the client's process, checks nothing and keeps"
        " next to nothing. So it is about the most that this client can do.",
        "",
        "## What the brokers spend",
        "",
        "Of the broker's process alone, so the client on the same cores counts for nothing.",
        "",
        *cpu_table(measured, spent, "kafka"),
        "Python functions that Oncelog calls for one request (`python -m bench.calls`, exact):",
        "",
        *call_table(calls),
        "## A fresh process",
        "",
        "The first seconds after the start, as a test or a restart meets them.",
        "",
        *figure_table(cold, alone=False),
        *storage_section(storage),
        *tls_section(measured, found),
        *cluster_section(measured, found),
        *clients_report.markdown(measured),
        *spark_report.markdown(measured),
        "## What a guarantee costs",
        "",
        "MB/s of a row against a baseline in the same round of the same system: the median over the"
        " rounds, and its 95 % interval.",
        "",
        *cost_table(measured, "kafka"),
        batch_format.sentence(),
        "",
        method.text(measured),
        "How long each broker was driven before its rounds, and how much faster the last of those"
        " windows was than the first:",
        "",
        *warm_up_table(measured, "kafka"),
    ]
    return "\n".join(lines).rstrip() + "\n"


def write(measured: Results, calls: Mapping[str, Calls]) -> None:
    """docs/benchmarks.md and docs/benchmarks.svg."""
    DOCUMENT.write_text(document(measured, calls))
    found = results(measured, "kafka")
    warm = [one for one in found if one.key in WARM]
    PLOT.write_text(plot.svg([*warm, *cpu_results(measured, "kafka")]))

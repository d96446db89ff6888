"""`make bench`: Oncelog beside Apache Kafka on this machine, both warm, as ratios of medians.

With ``--base CHECKOUT`` instead: this checkout beside another one of Oncelog, in the same way.
The rows about Spark (``--only spark``), clients (``--only clients``), three brokers
(``--only cluster``) and TLS (``--only tls``) are measured when they are named, and kept until then.
"""

import argparse
import functools
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import batch_format, calls, report
from bench.clients import report as clients_report
from bench.clients import rows as clients
from bench.clients.rows import CLIENT_ROWS
from bench.clients.run import ClientRun
from bench.cluster.rows import CLUSTER_ROWS
from bench.cluster.rows import PREFIX as CLUSTER
from bench.cluster.run import ClusterRun
from bench.ground import ground
from bench.javaloads import SOURCES
from bench.results import Results
from bench.rows import FRESH, ROWS, TITLES, TLS, TLS_ROWS, Row
from bench.run import Kind, Run
from bench.spark import report as spark_report
from bench.spark.rows import SPARK_ROWS
from bench.stats import WARM_S_MAX
from bench.storage.rows import STORAGE, StorageRow
from bench.systems import ENVIRONMENTS, Kafka, Oncelog, install
from tests.support.evidence import commit
from tests.support.java_program import compiled
from tests.support.peer.kafka import ROOT, PeerUnavailable, jars, java, release

ROUNDS = 7
WIDTH = 120
KEPT = ENVIRONMENTS / "results.json"
KEPT_BASE = ENVIRONMENTS / "results-base.json"
BASE = "base"
SPARK = "spark"
GROUPED = (
    {key: row.title for rows in (SPARK_ROWS, CLIENT_ROWS) for key, row in rows.items()}
    | {key: row.title for key, row in CLUSTER_ROWS.items()}
    | {row.key: row.title for row in TLS_ROWS}
)
"""Rows that are measured when they, or the beginning of their keys, are named."""
ALL_TITLES = TITLES | GROUPED
BASE_FRESH = ("start", "idle", "partitions", "connections")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--warm", type=float, default=WARM_S_MAX, help="warm up for so many seconds at most"
    )
    parser.add_argument(
        "--only",
        default="",
        help="keys of rows, comma separated; spark, clients, cluster and tls are all about these",
    )
    parser.add_argument("--list", action="store_true", help="list the rows and end")
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks.md and its plot"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the last run's figures of rows not named here"
    )
    parser.add_argument(
        "--report", action="store_true", help="measure nothing: tell of the last run again"
    )
    parser.add_argument("--base", type=Path, help="a checkout of Oncelog to compare this one with")
    arguments = parser.parse_args()
    unknown = chosen(arguments) - ALL_TITLES.keys()
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if arguments.base is not None and not (arguments.base / "src" / "oncelog").is_dir():
        parser.error(f"no checkout of Oncelog: {arguments.base}")
    if arguments.base is not None and arguments.write:
        parser.error("--write is for the comparison with Apache Kafka")
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def chosen(arguments: argparse.Namespace) -> set[str]:
    """The keys that were asked for; none means all."""
    named = {key for key in arguments.only.split(",") if key}
    group = {key for key in GROUPED if any(key.startswith(f"{name}-") for name in named)}
    return group | {name for name in named if not _is_group(name)}


def _is_group(name: str) -> bool:
    """Whether it is the common beginning of such rows, as ``spark`` and ``spark-sink``."""
    return name not in ALL_TITLES and any(key.startswith(f"{name}-") for key in GROUPED)


def rows_of(
    arguments: argparse.Namespace,
) -> tuple[list[str], list[Row], dict[str, StorageRow]]:
    """What to measure in fresh processes, in warm ones, and of the log."""
    only = chosen(arguments)
    compared = arguments.base is not None
    fresh = [key for key in (BASE_FRESH if compared else FRESH) if not only or key in only]
    rows = [row for row in ROWS if (row.key in only if only else row.main or not compared)]
    storage = {key: row for key, row in STORAGE.items() if (key in only if only else not compared)}
    return fresh, rows, storage


def kinds_of(arguments: argparse.Namespace, console: Console) -> Sequence[Kind]:
    """The two systems, ready to be started. Raises `PeerUnavailable`."""
    if arguments.base is None:
        jars()
        compiled("Load", SOURCES)
    console.print("installing the base package of this checkout")
    install(ROOT, report.OURS)
    if arguments.base is None:
        return [Oncelog, Kafka]
    console.print(f"installing the base package of {arguments.base}")
    install(arguments.base, BASE)
    return [Oncelog, functools.partial(Oncelog, name=BASE)]


def java_version() -> str:
    """The first line of what the launcher says of itself."""
    done = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0].strip() or "Java"


def tell(measured: Results, other: str, console: Console) -> None:
    """The tables, on the terminal."""
    found = [*report.results(measured, other), *report.cpu_results(measured, other)]
    console.print(report.terminal(found, other))
    console.print(report.system_calls(measured, other))
    for table in [*clients_report.terminal(measured), *spark_report.terminal(measured)]:
        console.print(table)
    if other == BASE:
        console.print(report.verdict(found))


def measure_tls(
    arguments: argparse.Namespace,
    measured: Results,
    progress: Progress,
    keep: Callable[[], None],
) -> list[str]:
    """The rows over TLS that were named; returns those that failed."""
    rows = [row for row in TLS_ROWS if row.key in chosen(arguments)]
    if not rows:
        return []
    # Needs the certificates of the tests, which the package cryptography makes.
    from bench.tls import TlsKafka, TlsOncelog

    measured.facts["tls commit"], measured.facts["tls kafka"] = commit(), release()
    run = Run([TlsOncelog, TlsKafka], arguments.rounds, measured, progress, keep, arguments.warm)
    run.all([], rows, {}, alone=False)
    return run.failed


def measure_named(
    kinds: Sequence[Kind],
    arguments: argparse.Namespace,
    measured: Results,
    tell_line: Callable[[str], None],
    keep: Callable[[], None],
) -> list[str]:
    """The rows about clusters, clients and Spark that were named; returns those that failed."""
    only, failed = chosen(arguments), list[str]()
    cluster_rows = {key: row for key, row in CLUSTER_ROWS.items() if key in only}
    if cluster_rows:
        measured.facts["cluster commit"] = commit()
        measured.facts["cluster kafka"] = release()
        clusters = ClusterRun(kinds, arguments.rounds, measured, tell_line, keep, arguments.warm)
        clusters.all(cluster_rows)
        failed += clusters.failed
    client_rows = {key: row for key, row in CLIENT_ROWS.items() if key in only}
    if client_rows:
        measured.facts["clients commit"] = commit()
        clients = ClientRun(kinds, arguments.rounds, measured, tell_line, keep, arguments.warm)
        clients.all(client_rows)
        failed += clients.failed
    spark_rows = {key: row for key, row in SPARK_ROWS.items() if key in only}
    if spark_rows:
        # Needs PySpark, which a machine that measures brokers may not have.
        from bench.spark.run import SparkRun

        measured.facts["spark commit"] = commit()
        spark = SparkRun(kinds, arguments.rounds, measured, tell_line, keep, arguments.warm)
        spark.all(spark_rows)
        failed += spark.failed
    return failed


def measure(arguments: argparse.Namespace, measured: Results, console: Console) -> int:
    """Run it; however it ends, store and print the results."""
    other = "kafka" if arguments.base is None else BASE
    kept = KEPT if arguments.base is None else KEPT_BASE
    kinds = kinds_of(arguments, console)
    counted = calls.count() if arguments.write else {}

    def keep() -> None:
        measured.save(kept)
        if arguments.write:
            report.write(measured, counted)

    columns = (TextColumn("{task.description}"), BarColumn())
    failed: list[str] = []
    try:
        with Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console
        ) as progress:
            run = Run(kinds, arguments.rounds, measured, progress, keep, arguments.warm)
            failed = run.failed
            fresh, rows, storage = rows_of(arguments)
            if fresh or rows or storage:
                measured.facts["commit"] = commit()
                measured.facts["ground"] = ground(Path(tempfile.gettempdir()))
                run.all(fresh, rows, storage, alone=other == "kafka")
            failed += measure_tls(arguments, measured, progress, keep)
            failed += measure_named(kinds, arguments, measured, progress.console.print, keep)
    except KeyboardInterrupt:
        console.print("[yellow]cut short[/yellow]: what follows is what was measured until then")
        failed.append("the rest")
    tell(measured, other, console)
    if failed:
        console.print(f"[red]not measured[/red]: {', '.join(failed)}")
    return 1 if failed else 0


def main() -> int:
    """Exit code 0 when everything was measured, whatever the ratios; 1 if not; 2 without a peer."""
    arguments = parsed()
    # Ended by SIGTERM as by Ctrl-C: the brokers are stopped and what was measured is told.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Tables need room where no terminal says how much there is.
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if arguments.list:
        for key, title in ALL_TITLES.items():
            console.print(f"{key:22} {title}")
        return 0
    other, kept = ("kafka", KEPT) if arguments.base is None else (BASE, KEPT_BASE)
    measured = Results.load(kept) if kept.exists() else Results()
    if not (arguments.keep or arguments.report):
        measured = measured.only(SPARK, CLUSTER, clients.PREFIX, TLS)
    if arguments.report:
        if arguments.write:
            report.write(measured, calls.count())
        tell(measured, other, console)
        return 0
    try:
        if other == "kafka":
            measured.facts["java"] = java_version()
            measured.facts["kafka"] = release()
        code = measure(arguments, measured, console)
    except PeerUnavailable as reason:
        console.print(f"[red]no peer to measure beside[/red]: {reason}")
        return 2
    except RuntimeError as reason:
        console.print(f"[red]the brokers do not start[/red]: {reason}")
        return 1
    if other == "kafka":
        console.print(batch_format.sentence())
    return code


if __name__ == "__main__":
    sys.exit(main())

"""`make test-full`: every test, drawn bugs, simulated runs, every crash point of a transaction,
groups whose consumers are killed once a second, 20,000 mutated files, 5,000 lives of a log, a
million bad frames, 500 starts of an embedded broker on each Python, the crash table of Spark's
queries, five demos, the suites of others and Apache's copier on three brokers, every page of the
site in a browser.

What they found is written to docs/evidence.md.

It fails if an interop test was skipped although Apache Kafka's jars can be had here.
"""

import argparse
import random
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from rich.console import Console

from tests.fuzz.__main__ import fuzz
from tests.support import evidence
from tests.support.looks import __main__ as looks
from tests.support.outside.suites import SUITES, UNAVAILABLE
from tests.support.peer.kafka import ROOT, PeerUnavailable, jars

FUZZ_FRAMES = 1_000_000
MUTATED_FILES = 20_000
COPIED_RECORDS = 20_000
STEPS = (
    "tests",
    "mutants",
    "simulation",
    "transactions",
    "groups",
    "corruption",
    "properties",
    "fuzz",
    "embedded",
    "spark",
    "demo",
    "outside",
    "site",
)
DEMO_SEEDS = (1, 2, 3, 4, 5)
CLUSTER_SEEDS = (1, 2, 3)
"""Of the demo with three brokers."""
DEMO_SECONDS_MAX = 240
REPORT = ROOT / ".cache" / "test-full.xml"


def run_tests(seed: int, console: Console) -> bool:
    """All of pytest, the markers that `make test` leaves out included."""
    REPORT.parent.mkdir(exist_ok=True)
    begun = time.monotonic()
    options = [f"--junit-xml={REPORT}", f"--randomly-seed={seed}"]
    options.append("--hypothesis-profile=thorough")
    command = [sys.executable, "-m", "pytest", "-q", *options]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    suite = ElementTree.parse(REPORT).getroot().find("testsuite")
    if suite is None:
        raise RuntimeError(f"{REPORT} holds no test suite")
    skipped = skipped_interop(suite)
    peer = peer_reason()
    wrongly_skipped = skipped if peer is None else []
    for name in wrongly_skipped:
        console.print(f"[red]skipped although Apache Kafka's jars can be had[/red]: {name}")
    passed = code == 0 and not wrongly_skipped
    counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    console.print(f"{counts} in {time.monotonic() - begun:.0f} s; {peer or 'with Apache Kafka'}")
    count = f"{counts['tests']:,} tests, {counts['skipped']} skipped"
    verdict = "passed" if passed else "failed"
    evidence.note("tests", verdict, count, "make test-full ARGS='--only tests'", seed=seed)
    return passed


def skipped_interop(suite: ElementTree.Element) -> list[str]:
    """Names of interop tests that were skipped."""
    return [
        f"{case.get('classname')}.{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("skipped") is not None and "interop" in str(case.get("classname"))
    ]


def peer_reason() -> str | None:
    """None if Apache Kafka's jars can be had, otherwise why not."""
    try:
        jars()
    except PeerUnavailable as reason:
        return str(reason)
    return None


def run_outside(seed: int) -> bool:
    """The suites of others, and every client's copies while three brokers are killed in turn.

    A suite that cannot be had here says so, and is no failure.
    """
    tool = [sys.executable, "-m", "tests.support.outside"]
    kinds = ("none", "needed")
    suites = [[*tool, name, "--security", kind] for name in SUITES for kind in kinds]
    codes = [subprocess.run(suite, cwd=ROOT, check=False).returncode for suite in suites]
    copies = [sys.executable, "-m", "tests.support.copy_soak", "--brokers", "3"]
    copies += ["--records", str(COPIED_RECORDS), "--seed", str(seed)]
    copied = subprocess.run(copies, cwd=ROOT, check=False).returncode
    return copied == 0 and not any(code not in (0, UNAVAILABLE) for code in codes)


def run_site(console: Console) -> bool:
    """Every page in a browser; where none is, that is said, and is no failure."""
    done = subprocess.run([sys.executable, "-m", "tests.support.looks"], cwd=ROOT, check=False)
    if done.returncode == looks.SKIPPED:
        console.print("[yellow]the site was not looked at[/yellow]: there is no Chromium")
        return True
    verdict = "readable" if done.returncode == 0 else "not readable"
    count = "every page at 1400 and 390 px, in both colour schemes"
    evidence.note("site", verdict, count, "python -m tests.support.looks")
    return done.returncode == 0


def run_demos(console: Console) -> bool:
    """The demos with one broker, and those with three."""
    return all([run_demos_of(1, DEMO_SEEDS, console), run_demos_of(3, CLUSTER_SEEDS, console)])


def run_demos_of(brokers: int, given: Sequence[int], console: Console) -> bool:
    """The demo for each seed; exact, in time, and at least three rows of the crash table hit."""
    from oncelog.cli.demo.run import DemoOptions, DemoResult, run

    results: dict[int, DemoResult] = {}
    for seed in given:
        options = DemoOptions(seed, 2, brokers, keep=False, offline=False, bootstrap_server=None)
        results[seed] = run(options, console)
    rows = sorted({kill.row.value for result in results.values() for kill in result.kills})
    exact = all(result.verdict.exact for result in results.values())
    in_time = all(result.seconds < DEMO_SECONDS_MAX for result in results.values())
    passed = exact and in_time and len(rows) >= 3
    for seed, result in results.items():
        for finding in result.verdict.findings:
            console.print(f"[red]seed {seed}[/red]: {finding}")
    kills = sum(len(result.kills) for result in results.values())
    count = f"{len(results)} demos, {kills} kills at {len(rows)} rows of the crash table"
    seeds = ", ".join(map(str, given))
    verdict = "exact" if passed else "not exact"
    name, how = "demo", "make demo SEED=1"
    if brokers > 1:
        name, how = f"demo, {brokers} brokers", f'make demo SEED=1 ARGS="--brokers {brokers}"'
    evidence.note(name, verdict, count, how, seed=seeds)
    return passed


def main() -> int:
    """Exit code 0 when everything passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", choices=STEPS)
    arguments = parser.parse_args()
    console = Console()
    passed = True
    if arguments.only in (None, "tests"):
        passed = run_tests(arguments.seed, console)
    if arguments.only in (None, "mutants"):
        command = [sys.executable, "-m", "tests.support.mutants", "--evidence"]
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "simulation"):
        for module in ("tests.simulation.evidence", "tests.simulation.planted"):
            command = [sys.executable, "-m", module]
            command += ["--evidence"] if module.endswith("planted") else []
            passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "transactions"):
        for run in (
            ["tests.simulation.transaction_points"],
            ["tests.support.transaction_kills"],
            ["tests.support.cluster_points", "2000"],
        ):
            command = [sys.executable, "-m", *run]
            passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "groups"):
        command = [sys.executable, "-m", "tests.support.group_kills"]
        command += ["--seed", str(arguments.seed)]
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "corruption"):
        command = [sys.executable, "-m", "tests.corruption.campaign", "--evidence"]
        command += ["--count", str(MUTATED_FILES), "--seed", str(arguments.seed)]
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "properties"):
        command = [sys.executable, "-m", "tests.properties", "--evidence"]
        command += ["--seed", str(arguments.seed)]
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "fuzz"):
        passed = fuzz(FUZZ_FRAMES, arguments.seed, console) and passed
    if arguments.only in (None, "embedded"):
        command = [sys.executable, "-m", "nox", "-s", "cycles", "docs"]
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "spark"):
        for module in ("tests.simulation.marker_points", "tests.spark.matrix"):
            command = [sys.executable, "-m", module]
            passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and passed
    if arguments.only in (None, "demo"):
        passed = run_demos(console) and passed
    if arguments.only in (None, "outside"):
        passed = run_outside(arguments.seed) and passed
    if arguments.only in (None, "site"):
        passed = run_site(console) and passed
    console.print(f"evidence: {evidence.TABLE.relative_to(ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

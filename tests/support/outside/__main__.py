"""Runs a suite of others on three brokers of ours and on Apache Kafka's three, and compares.

    python -m tests.support.outside franz-go
    LIBRDKAFKA_TESTS=.../librdkafka/tests python -m tests.support.outside librdkafka --security all

The verdicts are kept for each peer (`.cache/evidence`), so that one peer or some tests can be run
anew. It fails where a test's verdicts differ, unless `judge.py` says why.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from rich.console import Console

from tests.support import evidence
from tests.support.outside.franz import Franz
from tests.support.outside.judge import NOT_RUN, counted, differences
from tests.support.outside.librdkafka import Librdkafka
from tests.support.outside.suites import (
    SUITES,
    UNAVAILABLE,
    Peer,
    Security,
    Suite,
    SuiteUnavailable,
    Verdicts,
    three_brokers,
)
from tests.support.peer.kafka import PeerUnavailable, release

PEERS: Final[tuple[Peer, ...]] = get_args(Peer)
RECORDS: Final = 20_000
"""Of each of franz-go's chains. Its default, 500,000, is for a machine that does nothing else."""


def made(name: str, records: int, security: Security) -> Suite:
    """The suite of that name. Raises `SuiteUnavailable`."""
    return Franz(records, security) if name == "franz-go" else Librdkafka(security)


def run_on(peer: Peer, suite: Suite, only: Sequence[str], console: Console) -> None:
    """Run the suite on a peer and keep its verdicts; its logs stay in a folder that is told."""
    folder = Path(tempfile.mkdtemp(prefix=f"oncelog-{suite.name}-{peer}-"))
    console.print(f"{suite.name} {suite.version} on three brokers of {peer}; logs in {folder}")
    found: Verdicts = {}
    for scenario in suite.scenarios(only):
        with three_brokers(peer, folder / f"brokers-{scenario.name}", scenario) as running:
            begun_s = time.monotonic()
            for verdicts in suite.run(scenario, running, folder):
                took_s, begun_s = time.monotonic() - begun_s, time.monotonic()
                verdicts = {scenario.prefix + test: each for test, each in verdicts.items()}
                for test, verdict in verdicts.items():
                    # A test of another scenario is skipped in this one.
                    if verdict != "skipped" or test not in found:
                        found[test] = verdict
                keep(suite, peer, found)
                said = ", ".join(f"{test} {verdict}" for test, verdict in verdicts.items())
                console.print(f"{took_s:6.1f} s  {said}", soft_wrap=True)


def keep(suite: Suite, peer: Peer, verdicts: Verdicts) -> None:
    """Keep these beside what was kept of other tests of the same release."""
    entry = kept(suite, peer)
    tests = {**entry.get("tests", {}), **verdicts}
    evidence.keep(_name(suite, peer), {"version": suite.version, "tests": dict(tests)})


def kept(suite: Suite, peer: Peer) -> dict[str, Verdicts]:
    """What was kept of this release of the suite."""
    entry = evidence.kept(_name(suite, peer))
    return entry if entry.get("version") == suite.version else {}


def _name(suite: Suite, peer: Peer) -> str:
    secured = "" if suite.security == "none" else "-secured"
    return f"outside-{suite.name}-{peer}{secured}"


def compare(suite: Suite, console: Console) -> bool:
    """Print what the peers do not judge alike, and write the row; whether all of it is expected."""
    ours, kafkas = (kept(suite, peer).get("tests", {}) for peer in PEERS)
    console.print(f"oncelog: {counted(ours)}\nApache Kafka {release()}: {counted(kafkas)}")
    if not ours or not kafkas:
        console.print("the other peer has not run it yet")
        return True
    found = differences(suite.name, ours, kafkas)
    for each in found:
        why = each.reason or "[red]nobody knows why[/red]"
        console.print(f"{each.test}: {each.ours}, Apache Kafka's {each.kafkas}: {why}")
    unexplained = [each for each in found if not each.reason]
    alone_count = sum(NOT_RUN in (each.ours, each.kafkas) for each in unexplained)
    differ_count = len(unexplained) - alone_count
    verdict = f"{differ_count} tests differ" if differ_count else "the same but for what is named"
    count = f"{suite.name} {suite.version}: {counted(ours)}; Apache Kafka {release()}: "
    count += f"{counted(kafkas)}; {len(found) - len(unexplained)} named in compatibility.md"
    if alone_count:
        count += f"; {alone_count} run on one of them alone"
    how = f"python -m tests.support.outside {suite.name}"
    kind = "three brokers"
    if suite.security != "none":
        how += f" --security {suite.security}"
        kind = "secured brokers"
    evidence.note(f"outside, {kind}, {suite.name}", verdict, count, how)
    return not unexplained


def main() -> int:
    """Exit code 0 if the peers judge alike; see also `UNAVAILABLE`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--peer", choices=PEERS)
    parser.add_argument("--only", nargs="+", default=[], help="tests by name, or number/part")
    parser.add_argument("--records", type=int, default=RECORDS, help="of each chain of franz-go")
    parser.add_argument(
        "--security",
        choices=get_args(Security),
        default="none",
        help="on brokers with an authorizer, TLS and SASL: no tests, those that need it, or all",
    )
    arguments = parser.parse_args()
    console = Console()
    try:
        suite = made(arguments.suite, arguments.records, arguments.security)
        for peer in (arguments.peer,) if arguments.peer else PEERS:
            run_on(peer, suite, arguments.only, console)
    except (SuiteUnavailable, PeerUnavailable) as reason:
        console.print(f"{arguments.suite} cannot be run: {reason}")
        return UNAVAILABLE
    return 0 if compare(suite, console) else 1


if __name__ == "__main__":
    sys.exit(main())

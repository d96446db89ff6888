"""`python -m tests.spark.matrix`: the whole crash table, for each kind of query, on each broker.

Every case of the table meets a stateless and a stateful query on Oncelog and on Apache Kafka; every
example with state meets the rows that differ most. Part of ``make test-full``. Evidence:
docs/evidence/spark-crash.json, with an entry for each broker.
"""

import argparse
import sys
import time

from rich.console import Console

from bench.peer import PeerUnavailable
from tests.spark.campaign import PEERS, run_campaign
from tests.spark.crash_table import LARGE, SMALL, Case
from tests.spark.faults import ANSWER_LOST, CASES, OF_A_TASK, ROW_OF, Victim
from tests.spark.queries import QUERIES
from tests.support import evidence
from tests.support.evidence import Entry

WHOLE_TABLE = ("copy", "union")
DIFFERING = (
    ("mid_task", Victim.BOTH),
    ("mid_task", Victim.WORKER),
    (ANSWER_LOST, Victim.BROKER),
    ("txn_ended", Victim.DRIVER),
)


def matrix(rows: list[str], victims: list[str], queries: list[str]) -> list[Case]:
    """The cases, or those of them that are named."""
    whole = [
        Case(*case, query, per_batch=size)
        for size in (SMALL, LARGE)
        for query in WHOLE_TABLE
        for case in CASES
        if size == LARGE or case[1] not in OF_A_TASK
    ]
    others = [name for name in QUERIES if name not in WHOLE_TABLE]
    cases = whole + [Case(*case, query) for query in others for case in DIFFERING]
    return [
        case
        for case in cases
        if case.row in (rows or ROW_OF)
        and case.victim in (victims or list(Victim))
        and case.query in (queries or QUERIES)
    ]


def write(peer: str, entry: Entry) -> None:
    """Put what one broker's cases found into the evidence; the other broker's entry stays."""
    brokers = evidence.read("spark-crash").get("brokers", {}) | {peer: entry}
    verdict = "exact" if brokers.keys() == set(PEERS) else "not all run"
    if any(found["not exact"] for found in brokers.values()):
        verdict = "not exact"
    evidence.write("spark-crash", verdict, {"brokers": brokers})


def main() -> int:
    """Exit code 0 only when every case was exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=PEERS, action="append", default=[])
    parser.add_argument("--row", choices=list(ROW_OF), action="append", default=[])
    parser.add_argument("--victim", choices=list(Victim), action="append", default=[])
    parser.add_argument("--query", choices=list(QUERIES), action="append", default=[])
    arguments = parser.parse_args()
    console = Console()
    cases = matrix(arguments.row, arguments.victim, arguments.query)
    exact = True
    for peer in arguments.peer or PEERS:
        begun = time.monotonic()
        try:
            verdicts = run_campaign(cases, peer, console)
        except PeerUnavailable as reason:
            console.print(f"[yellow]skipped[/yellow] {peer}: {reason}")
            continue
        exact = exact and verdicts.is_exact
        if len(cases) == len(matrix([], [], [])):
            seconds = round(time.monotonic() - begun)
            write(peer, verdicts.as_json() | {"seconds": seconds, "commit": evidence.commit()})
    console.print("exact" if exact else "not exact")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.spark.matrix`: the whole crash table, for each kind of query, on each broker.

Every case of the table meets a stateless and a stateful query on Oncelog and on Apache Kafka; every
example with state meets the rows that differ most. Part of ``make test-full``. Evidence:
docs/evidence/spark-crash.json, with an entry for each broker, written after each case; a call that
was interrupted goes on where it was, if it is repeated with the same sources.
"""

import argparse
import sys
from functools import partial

from rich.console import Console

from bench.peer import PeerUnavailable
from tests.spark.campaign import PEERS, Verdicts, is_of_these_sources, run_campaign
from tests.spark.crash_table import LARGE, SMALL, Case
from tests.spark.faults import ANSWER_LOST, CASES, OF_A_TASK, ROW_OF, Victim
from tests.spark.queries import QUERIES
from tests.support import evidence

NAME = "spark-crash"
NOT_ALL = "not all run"
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


def begun(peer: str) -> Verdicts:
    """What an interrupted call found with these sources; one that came to its end is done again."""
    entry = evidence.read(NAME).get("brokers", {}).get(peer, {})
    goes_on = entry and entry["verdict"] == NOT_ALL and is_of_these_sources(entry)
    return Verdicts.of_json(peer, entry if goes_on else {})


def keep(verdicts: Verdicts, cases_count: int) -> None:
    """Put what one broker's cases found into the evidence; the other broker's entry stays."""
    found = {"verdict": verdicts.verdict(cases_count), "commit": evidence.commit()}
    brokers = evidence.read(NAME).get("brokers", {}) | {verdicts.peer: found | verdicts.as_json()}
    each = [brokers[peer]["verdict"] if peer in brokers else NOT_ALL for peer in PEERS]
    verdict = next((one for one in ("not exact", NOT_ALL) if one in each), "exact")
    evidence.write(NAME, verdict, {"brokers": brokers})


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
    whole = len(cases) == len(matrix([], [], []))
    exact = True
    for peer in arguments.peer or PEERS:
        verdicts = begun(peer) if whole else Verdicts(peer)
        kept = partial(keep, cases_count=len(cases)) if whole else Verdicts.as_json
        try:
            run_campaign(cases, verdicts, console, kept)
        except PeerUnavailable as reason:
            console.print(f"[yellow]skipped[/yellow] {peer}: {reason}")
            continue
        exact = exact and verdicts.is_exact
    console.print("exact" if exact else "not exact")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.spark.matrix`: the whole crash table, for each kind of query, on each broker.

Every case of the table meets a stateless and a stateful query on Oncelog and on Apache Kafka; every
example with state meets the rows that differ most. On a standalone cluster a query that is both
loses executors at every row, alone and with its driver. Part of ``make test-full``. Each broker and
place of Spark has a row in docs/evidence.md, written after each case; a call that was interrupted
goes on where it was, if it is repeated with the same sources in the same checkout.
"""

import argparse
import sys
from functools import partial
from itertools import product

from rich.console import Console

from tests.spark.campaign import PEERS, Verdicts, is_of_these_sources, run_campaign
from tests.spark.crash_table import LARGE, SMALL, Case
from tests.spark.faults import (
    ANSWER_LOST,
    CASES,
    CLUSTER_CASES,
    OF_A_TASK,
    ROW_OF,
    Victim,
)
from tests.spark.queries import QUERIES
from tests.spark.striking import MID_TASK
from tests.support import evidence
from tests.support.peer import PeerUnavailable

NAME = "spark-crash"
NOT_ALL = "not all run"
PLACES = {False: "local", True: "cluster"}
"""Whether Spark runs on a cluster, and the name of that on the command line."""
WHOLE_TABLE = ("copy", "union")
DIFFERING = (
    (MID_TASK, Victim.BOTH),
    (MID_TASK, Victim.WORKER),
    (ANSWER_LOST, Victim.BROKER),
    ("txn_ended", Victim.DRIVER),
)


def matrix(on_cluster: bool, rows: list[str], victims: list[str], queries: list[str]) -> list[Case]:
    """The cases of a place, or those of them that are named."""
    return [
        case
        for case in (on_a_cluster() if on_cluster else in_one_jvm())
        if case.row in (rows or ROW_OF)
        and case.victim in (victims or list(Victim))
        and case.query in (queries or QUERIES)
    ]


def on_a_cluster() -> list[Case]:
    """A query with a stateless branch and one with state, in batches that have a write stage."""
    return [Case(*case, "union") for case in CLUSTER_CASES]


def in_one_jvm() -> list[Case]:
    """The table for both kinds of query and both sizes of a batch, and the rest of the queries."""
    whole = [
        Case(*case, query, per_batch=size)
        for size in (SMALL, LARGE)
        for query in WHOLE_TABLE
        for case in CASES
        if size == LARGE or case[1] not in OF_A_TASK
    ]
    others = [name for name in QUERIES if name not in WHOLE_TABLE]
    return whole + [Case(*case, query) for query in others for case in DIFFERING]


def entry_of(verdicts: Verdicts) -> evidence.Entry:
    """What is kept of a place."""
    entry: evidence.Entry = evidence.kept(NAME).get(verdicts.place, {})
    return entry


def begun(peer: str, on_cluster: bool, again: bool = False) -> Verdicts:
    """What an interrupted call found with these sources; one that came to its end is done again.

    Or, `again`, what the last call found, whatever its sources were.
    """
    verdicts = Verdicts(peer, on_cluster)
    entry = entry_of(verdicts)
    goes_on = again or (entry and entry["verdict"] == NOT_ALL and is_of_these_sources(entry))
    return Verdicts.of_json(peer, entry, on_cluster=on_cluster) if goes_on else verdicts


def keep(verdicts: Verdicts, cases_count: int) -> None:
    """Keep what the cases of one place found, and write its row; the other places stay."""
    # Of cases that were run again the verdicts tell the commit.
    commit = entry_of(verdicts)["commit"] if verdicts.again else evidence.commit()
    verdict = verdicts.verdict(cases_count)
    found = {"verdict": verdict, "commit": commit}
    evidence.keep(NAME, evidence.kept(NAME) | {verdicts.place: found | verdicts.as_json()})
    place = PLACES[verdicts.on_cluster]
    how = f"python -m tests.spark.matrix --peer {verdicts.peer} --place {place}"
    name = f"{NAME}, {verdicts.peer}, {place}"
    evidence.note(name, verdict, verdicts.counts, how, at_commit=commit)


def main() -> int:
    """Exit code 0 only when every case was exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=PEERS, action="append", default=[])
    parser.add_argument("--place", choices=list(PLACES.values()), action="append", default=[])
    parser.add_argument("--row", choices=list(ROW_OF), action="append", default=[])
    parser.add_argument("--victim", choices=list(Victim), action="append", default=[])
    parser.add_argument("--query", choices=list(QUERIES), action="append", default=[])
    parser.add_argument("--again", action="store_true", help="run what was not exact once more")
    arguments = parser.parse_args()
    console = Console()
    named = (arguments.row, arguments.victim, arguments.query)
    exact = True
    for peer, on_cluster in product(arguments.peer or PEERS, PLACES):
        cases = matrix(on_cluster, *named)
        if not cases or PLACES[on_cluster] not in (arguments.place or PLACES.values()):
            continue
        whole = not any(named)
        verdicts = Verdicts(peer, on_cluster)
        if whole:
            verdicts = begun(peer, on_cluster, arguments.again)
        if arguments.again and verdicts.is_exact:
            continue
        kept = partial(keep, cases_count=len(cases)) if whole else Verdicts.as_json
        try:
            run_campaign(cases, verdicts, console, kept, again=arguments.again)
        except PeerUnavailable as reason:
            console.print(f"[yellow]skipped[/yellow] {verdicts.place}: {reason}")
            continue
        exact = exact and verdicts.is_exact
    console.print("exact" if exact else "not exact")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())

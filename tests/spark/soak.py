"""`python -m tests.spark.soak --runs 200 --seed 1`: kills aimed evenly at all rows, by a seed.

Every case of the crash table is drawn equally often; the seed decides the order, the query and the
batch. Part of ``make soak``. Its row of docs/evidence.md is written after each run; a call that was
interrupted goes on where it was, if it is repeated with the same sources in the same checkout.
"""

import argparse
import random
import sys

from rich.console import Console

from tests.spark.campaign import PEERS, Verdicts, is_of_these_sources, run_campaign
from tests.spark.crash_table import LARGE, LAST_BATCH, SMALL, Case
from tests.spark.faults import CASES, OF_A_TASK, Victim
from tests.spark.queries import QUERIES
from tests.spark.striking import MID_TASK
from tests.support import evidence
from tests.support.peer import PeerUnavailable

NAME = "spark-soak"
RUNS_COUNT = 200
"""No task begins where a batch has no rows."""
TASK_FAILURES = (Victim.WORKER, Victim.DAEMON, Victim.TASK)


def draw(runs: int, seed: int) -> list[Case]:
    """The cases of a soak: `CASES` again and again, each with a query, a batch and its size.

    A task is hit in a batch that has one. Every second task failure meets the nondeterministic
    query, which writes something else at each attempt.
    """
    rng = random.Random(seed)
    drawn = []
    for number in range(runs):
        row, victim = CASES[number % len(CASES)]
        is_scattered = victim in TASK_FAILURES and number // len(CASES) % 2 == 0
        query = "scatter" if is_scattered else rng.choice(sorted(QUERIES))
        size = LARGE if victim in OF_A_TASK else rng.choice((SMALL, LARGE))
        batch = rng.randint(0, LAST_BATCH)
        first = QUERIES[query].first_batch if row == MID_TASK else 0
        if first > 0:
            # Few orders give the first one no rows.
            batch, size = max(batch, first), LARGE
        drawn.append(Case(row, victim, query, batch, size))
    rng.shuffle(drawn)
    return drawn


def main() -> int:
    """Exit code 0 only when every run was exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS_COUNT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", choices=PEERS, default="oncelog")
    arguments = parser.parse_args()
    console = Console()
    cases = draw(arguments.runs, arguments.seed)
    verdicts = begun(arguments.peer, arguments.seed, arguments.runs)

    def keep(verdicts: Verdicts) -> None:
        keep_all(verdicts, arguments.seed, arguments.runs)

    try:
        run_campaign(cases, verdicts, console, keep)
    except PeerUnavailable as reason:
        console.print(f"skipped: {reason}")
        return 0
    return 0 if verdicts.is_exact else 1


def keep_all(verdicts: Verdicts, seed: int, runs: int) -> None:
    """Keep what was found, and write the row of the evidence."""
    verdict, commit = verdicts.verdict(runs), evidence.commit()
    entry = {"verdict": verdict, "commit": commit, "seed": seed, "runs": runs}
    evidence.keep(NAME, entry | verdicts.as_json())
    how = f"python -m tests.spark.soak --runs {runs} --seed {seed}"
    evidence.note(NAME, verdict, verdicts.counts, how, seed=seed)


def begun(peer: str, seed: int, runs: int) -> Verdicts:
    """What an interrupted call found that had the same to do, with the same sources."""
    entry = evidence.kept(NAME)
    is_the_same = entry and is_of_these_sources(entry)
    same = is_the_same and (entry["peer"], entry["seed"], entry["runs"]) == (peer, seed, runs)
    goes_on = same and entry["verdict"] == "not all run"
    return Verdicts.of_json(peer, entry if goes_on else {})


if __name__ == "__main__":
    sys.exit(main())

"""Runs campaigns of the simulation, each with a row in docs/evidence.md.

Run as ``python -m tests.simulation.evidence``; part of `make test-full`. What was reached less than
20 times is printed.
"""

import argparse
import sys
import time

from rich.console import Console

from oncelog.simulation.campaign import Campaign, RunFinding, Summary, run_campaign
from oncelog.simulation.coverage import Coverage
from tests.support import evidence

RUNS = 3_000
FLUSHED_RUNS = 1_000
AIMED_RUNS = 1_000


def campaign(name: str, seeds: range, profile: str | None, jobs: int) -> Campaign:
    """Carry out one campaign, and write its row."""
    at_commit = evidence.commit()
    done = run_campaign(seeds, profile, None, jobs, print_finding)
    known = sum(done.known.values())
    verdict = f"failed: {', '.join(done.unknown)}" if done.unknown else "passed"
    count = f"{done.run_count:,} runs, {done.simulated_s / 3600:.0f} simulated hours"
    count += f", {known} with known defects" if known else ""
    how = f"oncelog simulate --runs {len(seeds)} --first-seed {seeds.start}"
    how += f" --profile {profile}" if profile else ""
    evidence.note(
        f"simulation, {name}",
        verdict,
        count,
        how,
        seed=f"{seeds.start} to {seeds.stop - 1}",
        at_commit=at_commit,
    )
    return done


def print_finding(summary: Summary, finding: RunFinding) -> None:
    """Say what is new and not known."""
    print(f"seed {summary.seed} {summary.profile}: {finding.detail}", file=sys.stderr)


def main() -> int:
    """Run and keep; 0 if nothing unknown was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="with every profile")
    parser.add_argument("--flushed", type=int, default=FLUSHED_RUNS, help="with power-flushed")
    parser.add_argument("--aimed", type=int, default=AIMED_RUNS, help="with crash-points")
    parser.add_argument("--first-seed", type=int, default=int(time.time()) * 10)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    reached, unknown = Coverage(), list[str]()
    for name, runs, profile in (
        ("all faults", given.runs, None),
        ("power loss, every message flushed", given.flushed, "power-flushed"),
        ("deaths at crash points", given.aimed, "crash-points"),
    ):
        if runs:
            seeds = range(given.first_seed, given.first_seed + runs)
            done = campaign(name, seeds, profile, given.jobs)
            reached.merge(done.coverage)
            unknown += [
                f"{name}: {what}: seed {seed}: {finding.detail}"
                for what, (seed, finding) in done.unknown.items()
            ]
    print("reached less than 20 times:", reached.unreached())
    for line in unknown:
        Console().print(line, style="red")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())

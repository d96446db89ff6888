"""Runs campaigns of the simulation and adds what they found to docs/evidence/simulation.json.

Run as ``python -m tests.simulation.evidence``; part of `make test-full`. Each campaign is one
entry: commit, seeds, counts, what was known, verdict. The entries of earlier commits stay, so that
their runs add up; the verdict is that of all runs on these sources, and so is what was reached.
"""

import argparse
import json
import sys
import time

from rich.console import Console

from oncelog.simulation.campaign import RunFinding, Summary, run_campaign
from oncelog.simulation.coverage import UNREACHABLE, Coverage
from tests.support import evidence
from tests.support.evidence import Entry

NAME = "simulation"
RUNS = 3_000
FLUSHED_RUNS = 1_000
AIMED_RUNS = 1_000


def campaign(name: str, seeds: range, profile: str | None, jobs: int) -> tuple[Entry, Coverage]:
    """Carry out one campaign; what is to be kept of it, and what it reached."""
    began_s = time.monotonic()
    commit = evidence.commit()
    done = run_campaign(seeds, profile, None, jobs, print_finding)
    entry = {
        "campaign": name,
        "commit": commit,
        "seeds": [seeds.start, seeds.stop - 1],
        "runs": done.run_count,
        "seconds": round(time.monotonic() - began_s),
        "simulated seconds": round(done.simulated_s),
        "events": done.event_count,
        "runs by profile": dict(sorted(done.profiles.items())),
        "losses that the settings allow": done.allowed_count,
        "runs with known defects": {f"issue {n}: {name}": c for (name, n), c in done.known.items()},
        "unknown": {name: f"seed {seed}: {f.detail}" for name, (seed, f) in done.unknown.items()},
        "verdict": "failed" if done.unknown else "passed",
    }
    return entry, done.coverage


def print_finding(summary: Summary, finding: RunFinding) -> None:
    """Say what is new and not known."""
    print(f"seed {summary.seed} {summary.profile}: {finding.detail}", file=sys.stderr)


def keep(entries: list[Entry], reached: Coverage) -> None:
    """Add the entries to those of earlier runs, and what was reached to that on these sources."""
    kept = evidence.Sum(NAME, "runs", "src")
    before = kept.facts(entries[-1]["commit"]).get("reached", {})
    reached.merge(Coverage.from_json(json.dumps(before)))
    kept.write(
        entries,
        {
            "reached less than 20 times": reached.unreached(),
            "unreachable": UNREACHABLE,
            "reached": json.loads(reached.to_json()),
        },
    )


def main() -> int:
    """Run and keep; 0 if nothing unknown was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="with every profile")
    parser.add_argument("--flushed", type=int, default=FLUSHED_RUNS, help="with power-flushed")
    parser.add_argument("--aimed", type=int, default=AIMED_RUNS, help="with crash-points")
    parser.add_argument("--first-seed", type=int, default=int(time.time()) * 10)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    entries: list[Entry] = []
    reached = Coverage()
    for name, runs, profile in (
        ("all faults", given.runs, None),
        ("power loss, every message flushed", given.flushed, "power-flushed"),
        ("deaths at crash points", given.aimed, "crash-points"),
    ):
        if runs:
            seeds = range(given.first_seed, given.first_seed + runs)
            entry, coverage = campaign(name, seeds, profile, given.jobs)
            entries.append(entry)
            reached.merge(coverage)
    keep(entries, reached)
    failed = [entry for entry in entries if entry["verdict"] != "passed"]
    for entry in failed:
        Console().print(f"{entry['campaign']}: {entry['unknown']}", style="red")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

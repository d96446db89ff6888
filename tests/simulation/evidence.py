"""Runs campaigns of the simulation and adds what they found to docs/evidence/simulation.json.

Run as ``python -m tests.simulation.evidence [--runs 3000] [--flushed 1000] [--first-seed N]``; part
of `make test-full`. Each campaign is one entry: commit, seeds, counts, what was known, verdict. The
entries of earlier commits stay, so that their runs add up; those of the present commit are what its
state is judged by.
"""

import argparse
import json
import sys
import time
from typing import Any

from rich.console import Console

from oncelog.simulation.campaign import Campaign, run_seeds
from oncelog.simulation.progress import Display
from tests.support import evidence

NAME = "simulation"
RUNS = 3_000
FLUSHED_RUNS = 1_000


def campaign(name: str, seeds: range, profile: str | None, jobs: int) -> dict[str, Any]:
    """Carry out one campaign; what is to be kept of it."""
    began_s = time.monotonic()
    commit = evidence.commit()
    done = Campaign()
    with Display(len(seeds)) as display:
        for summary in run_seeds(seeds, profile, None, jobs):
            for finding in done.add(summary):
                print(f"seed {summary.seed} {summary.profile}: {finding.detail}", file=sys.stderr)
            display.update(summary)
    return {
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
        "coverage": {} if profile else json.loads(done.coverage.to_json()),
        "reached less than 20 times": {} if profile else done.coverage.unreached(),
    }


def keep(entries: list[dict[str, Any]]) -> None:
    """Add the entries to those of earlier runs."""
    path = evidence.FOLDER / f"{NAME}.json"
    before = json.loads(path.read_text())["campaigns"] if path.exists() else []
    for entry in before:
        # Only the newest is worth its room.
        entry.pop("coverage", None)
    campaigns = [*before, *entries]
    present = [entry for entry in campaigns if entry["commit"] == evidence.commit()]
    verdict = "passed" if all(entry["verdict"] == "passed" for entry in present) else "failed"
    facts = {"runs on all commits": sum(entry["runs"] for entry in campaigns)}
    evidence.write(NAME, verdict, {**facts, "campaigns": campaigns})


def main() -> int:
    """Run and keep; 0 if nothing unknown was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="with every profile")
    parser.add_argument("--flushed", type=int, default=FLUSHED_RUNS, help="with power-flushed")
    parser.add_argument("--first-seed", type=int, default=int(time.time()) * 10)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    entries = []
    first = given.first_seed
    for name, runs, profile in (
        ("all faults", given.runs, None),
        ("power loss, every message flushed", given.flushed, "power-flushed"),
    ):
        if runs:
            entries.append(campaign(name, range(first, first + runs), profile, given.jobs))
            keep(entries[-1:])
    failed = [entry for entry in entries if entry["verdict"] != "passed"]
    for entry in failed:
        Console().print(f"{entry['campaign']}: {entry['unknown']}", style="red")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

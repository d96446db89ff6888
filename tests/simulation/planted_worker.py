"""Runs seeds of the simulation one after another, and prints what each found, a line of JSON each.

A script, not a module of the tests: it is run with PYTHONPATH on the sources that it is to use, and
imports nothing else of the repository.

One argument, JSON: `profile` ("" for the one that a seed draws), `brokers` (their number, or null
likewise), `secure`, `starts`, `runs_max`, `seconds_max` (for all starts together). A line on
standard input is awaited after each run with findings: "yes" when they are what is looked for,
which ends the start.
"""

import json
import sys
import time


def main() -> None:
    """Read the task, and run it."""
    task = json.loads(sys.argv[1])
    began = time.monotonic()
    for start in task["starts"]:
        for number in range(task["runs_max"]):
            if time.monotonic() - began >= task["seconds_max"]:
                return
            findings = run(start + number, task["profile"] or None, task["brokers"], task["secure"])
            line = {"start": start, "seed": start + number, "findings": findings}
            print(json.dumps(line), flush=True)
            if findings and sys.stdin.readline().strip() == "yes":
                break


def run(seed: int, profile: str | None, brokers: int | None, secure: bool) -> list[tuple[str, str]]:
    """What one run found that is not known: kind, and what happened without its particulars."""
    from oncelog.simulation.campaign import RunRequest, run_seed

    try:
        summary = run_seed(RunRequest(seed, profile, None, brokers, secure))
    except Exception as error:  # noqa: BLE001 - whatever the planted bug does, the search goes on
        return [("crash", f"{type(error).__name__}: {error}"[:200])]
    unknown = (finding for finding in summary.findings if not finding.known_as)
    return [(f.signature.split(":")[0], f.detail.split(":")[0][:200]) for f in unknown]


if __name__ == "__main__":
    main()

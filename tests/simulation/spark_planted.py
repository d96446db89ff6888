"""Plants the bugs of tests/simulation/planted/spark/, and has the Spark model find each.

``python -m tests.simulation.spark_planted [NAME ...] [--starts N] [--runs-max N]``

The files are those of `tests.simulation.planted`. From each of a few start seeds on, seeds are run
until one has a finding by a checker that the bug names. The code as it is has none of them in the
profiles used here, which `test_spark_model` and the model's own campaign show.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.simulation.planted import FOLDER, ROOT, Bug, environment, load, plant
from tests.support.patches import limited

__all__ = ["names", "runs_until_found"]

STARTS_APART = 100_000
SECONDS_MAX = 600
FOUND = re.compile(r"^FOUND after (\d+) runs: (.*)$", re.MULTILINE)


def names() -> list[str]:
    """All planted bugs of the Spark protocol, by name."""
    return sorted(f"spark/{path.stem}" for path in (FOLDER / "spark").glob("*.toml"))


def runs_until_found(bug: Bug, start: int, runs_max: int) -> tuple[int | None, str]:
    """Runs until a checker that the bug names has found it (None: it has not), and what fired.

    Any checker, if the bug names none.
    """
    with tempfile.TemporaryDirectory(prefix="oncelog-planted-") as folder:
        tree = Path(folder)
        plant(bug, tree)
        command = [sys.executable, "-m", "tests.simulation.spark_model"]
        command += ["--runs", str(runs_max), "--seed", str(start)]
        command += ["--profile", bug.profile] if bug.profile else []
        command += ["--until", *(bug.caught_by or ("any",))]
        done = subprocess.run(
            limited(command),
            cwd=ROOT,
            env=environment(tree),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    found = FOUND.search(done.stdout)
    if found is None:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return None, lines[-1] if done.stderr else "nothing"
    return int(found[1]), found[2]


def main() -> int:
    """Exit code 0 only if every bug was found from every start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is given")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--runs-max", type=int, default=200)
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.names or names():
        bug = load(name)
        began = time.monotonic()
        found = [
            runs_until_found(bug, STARTS_APART * (index + 1), arguments.runs_max)
            for index in range(arguments.starts)
        ]
        counts = [count for count, _ in found]
        missed += None in counts
        median = statistics.median(count or float("inf") for count in counts)
        fired = sorted({kind for _, what in found for kind in what.split(", ")})
        print(
            f"{name}: {' '.join(map(str, counts))}, median {median:g}; {', '.join(fired)}; "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

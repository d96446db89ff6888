"""Tries many examples: ``python -m tests.properties --examples 5000 --seed 1 [--evidence]``.

They are tried in shares, each from a seed of its own, which follow `--seed`. What fails is made
smaller and printed with the command that repeats it. Part of `make test-full`; the row of
docs/evidence.md is written as they go and when they are interrupted.
"""

import argparse
import logging
import random
import sys
import traceback
from collections import Counter
from typing import NamedTuple

from hypothesis import Phase, seed
from rich.console import Console

from tests.properties.test_partition_log import PartitionLogs, happened, run
from tests.support import campaigns, evidence

EXAMPLES_COUNT = 5_000
SHARE = 100
"""Examples from one seed."""
JOBS = 2
COUNTED = "examples"


class Share(NamedTuple):
    """Examples from one seed."""

    seed: int
    examples_count: int
    as_found: bool = False


class Tried(NamedTuple):
    """A share, what its examples went through, and the failure if there was one."""

    share: Share
    happened: Counter[str]
    failure: str | None


def shares(first_seed: int, examples_count: int, *, as_found: bool = False) -> list[Share]:
    """All shares of a call."""
    starts = range(0, examples_count, SHARE)
    return [
        Share(first_seed + number, min(SHARE, examples_count - start), as_found)
        for number, start in enumerate(starts)
    ]


def try_share(share: Share) -> Tried:
    """Try its examples in a process that does nothing else; what fails is made smaller."""
    logging.disable()
    happened.clear()
    seed(share.seed)(PartitionLogs)
    phases = (Phase.generate,) if share.as_found else (Phase.generate, Phase.shrink)
    try:
        run(share.examples_count, phases=phases)
    except Exception:  # noqa: BLE001 - it is the finding, and the campaign goes on
        return Tried(share, happened.copy(), traceback.format_exc())
    return Tried(share, happened.copy(), None)


class Tally:
    """What the shares of one call came to."""

    def __init__(self, first_seed: int) -> None:
        self._seed = first_seed
        self._happened: Counter[str] = Counter()
        self.failed_seeds: list[int] = []
        self.count = 0

    @property
    def failed_count(self) -> int:
        return len(self.failed_seeds)

    def add(self, tried: Tried) -> None:
        self._happened += tried.happened
        self.count += tried.share.examples_count
        if tried.failure is not None:
            self.failed_seeds.append(tried.share.seed)

    def keep(self) -> None:
        """Write the row of the evidence."""
        deaths = f"{self.count:,} {COUNTED} with {self._happened['deaths']:,} deaths"
        how = f"python -m tests.properties --examples {self.count} --seed {self._seed}"
        verdict = f"failed: seeds {self.failed_seeds}" if self.failed_seeds else "passed"
        evidence.note("properties", verdict, deaths, how, seed=self._seed)


def tell(tried: Tried, console: Console) -> None:
    """Print a failure and how to repeat it."""
    if tried.failure is None:
        return
    again = f"python -m tests.properties --examples {tried.share.examples_count}"
    console.print(tried.failure, markup=False, highlight=False, soft_wrap=True)
    console.print(f"  {again} --seed {tried.share.seed}", style="dim", soft_wrap=True)


def main() -> int:
    """Exit code 0 when every example passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES_COUNT)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--as-found", action="store_true", help="do not make it smaller")
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence.md")
    given = parser.parse_args()
    console, tally = Console(), Tally(given.seed)
    wanted = shares(given.seed, given.examples, as_found=given.as_found)
    seeds = range(given.seed, given.seed + len(wanted))
    console.print(f"{given.examples} examples, seeds {seeds[0]} to {seeds[-1]}")
    return campaigns.carry_out(
        campaigns.in_processes(try_share, wanted, min(given.jobs, len(wanted))),
        tally,
        campaigns.Shown(console, "examples", given.examples),
        tell,
        tally.keep if given.evidence else None,
    )


if __name__ == "__main__":
    sys.exit(main())

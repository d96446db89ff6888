"""Thousands of mutated files: any file of a log directory, changed in any way, then judged.

``python -m tests.corruption.campaign --count 20000 --seed N --evidence`` writes its row of
docs/evidence.md as it goes and when it is interrupted. Each mutation follows from the seed and its
number, and a failure prints the command that repeats it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from tests.corruption.judge import Baseline, judge
from tests.corruption.matrix import baselines
from tests.support import campaigns, evidence
from tests.support.scratch import scratch_folder

__all__ = ["Result", "campaign", "run"]

JOBS = 2
SHARE = 25
"""Mutations that one worker takes at a time."""
FOLDER_USES_COUNT = 20
"""Shares for which a worker uses the same sound folders."""
WRITE_EVERY_COUNT = 500
COUNTED = "mutated files"


class Result(NamedTuple):
    """One mutation and what came of it; no `failures` is good."""

    number: int
    file: str
    mutation: str
    verdict: str
    failures: list[str]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _stretch(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + 1 + rng.randrange(1 + len(data) // 4))


def _zeros(data: bytes, rng: random.Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def _noise(data: bytes, rng: random.Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:start] + rng.randbytes(end - start) + data[end:]


def _leave_out(data: bytes, rng: random.Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:end] + data[start:]


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flip": _flip,
    "zeros": _zeros,
    "noise": _noise,
    "leave out": _leave_out,
    "repeat": _repeat,
    "cut": lambda data, rng: data[: rng.randrange(len(data))],
    "zeros behind": lambda data, rng: data + bytes(1 + rng.randrange(200)),
    "noise behind": lambda data, rng: data + rng.randbytes(1 + rng.randrange(200)),
    "missing": lambda data, rng: None,
}


def run(sound: dict[str, Baseline], seed: int, number: int, scratch: Path) -> Result:
    """Carry out one mutation."""
    rng = random.Random(f"{seed}/{number}")
    baseline = sound[rng.choice(sorted(sound))]
    names = sorted(name for name, data in baseline.files.items() if data)
    name, mutation = rng.choice(names), rng.choice(sorted(MUTATIONS))
    changed = MUTATIONS[mutation](baseline.files[name], rng)
    copy = scratch / "mutated"
    shutil.copytree(baseline.folder, copy, copy_function=shutil.copyfile)
    try:
        if changed is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(changed)
        outcome = judge(baseline, copy, {name: changed}, restarts_count=2)
        return Result(number, name, mutation, outcome.verdict, outcome.failures)
    except Exception:  # noqa: BLE001 - it is the finding, and the campaign goes on
        # Whatever a broker raises that is no refusal is a finding.
        text = traceback.format_exc().strip().splitlines()
        return Result(number, name, mutation, "raised", [" | ".join(text[-3:])])
    finally:
        shutil.rmtree(copy)


class Share(NamedTuple):
    """The mutations `first` to `last` - 1 of a seed, for one worker."""

    folder: Path
    seed: int
    first: int
    last: int


class _Sound:
    """The sound folders of this process, made again after some use, for they are never equal."""

    def __init__(self) -> None:
        self._uses_count = 0
        self._scratch: Path | None = None
        self._found: dict[str, Baseline] = {}

    def take(self, folder: Path) -> tuple[dict[str, Baseline], Path]:
        """The sound folders, and where to put mutated ones."""
        if self._scratch is None or self._uses_count == FOLDER_USES_COUNT:
            if self._scratch is not None:
                shutil.rmtree(self._scratch)
            self._scratch = Path(tempfile.mkdtemp(dir=folder))
            self._found, self._uses_count = baselines(self._scratch), 0
        self._uses_count += 1
        return self._found, self._scratch


_sound = _Sound()


def _run_share(share: Share) -> list[Result]:
    sound, scratch = _sound.take(share.folder)
    return [run(sound, share.seed, number, scratch) for number in range(share.first, share.last)]


def campaign(numbers: range, seed: int, jobs: int = JOBS) -> Iterator[list[Result]]:
    """The results of those mutations, a share at a time."""
    with tempfile.TemporaryDirectory(prefix="oncelog-mutated-", dir=scratch_folder()) as name:
        shares = [
            Share(Path(name), seed, first, min(first + SHARE, numbers.stop))
            for first in range(numbers.start, numbers.stop, SHARE)
        ]
        yield from campaigns.in_processes(_run_share, shares, min(jobs, len(shares)))


class Tally:
    """What the mutations of one call came to."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.count = 0
        self.failed_count = 0

    def add(self, results: list[Result]) -> None:
        self.count += len(results)
        self.failed_count += sum(bool(result.failures) for result in results)

    def keep(self) -> None:
        """Write the row of the evidence."""
        broken = f"{self.failed_count} broke a rule"
        how = f"python -m tests.corruption.campaign --count {self.count} --seed {self._seed}"
        verdict = broken if self.failed_count else "passed"
        evidence.note("corruption", verdict, f"{self.count:,} {COUNTED}", how, seed=self._seed)


def tell(results: list[Result], console: Console, seed: int) -> None:
    """Print which rules were broken and how to repeat it."""
    for result in results:
        if result.failures:
            again = f"python -m tests.corruption.campaign --seed {seed} --only {result.number}"
            console.print(f"{result.file}, {result.mutation}: {result.failures}", soft_wrap=True)
            console.print(f"  {again}", style="dim", soft_wrap=True)


def main() -> int:
    """Exit code 0 when no rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this mutation alone")
    parser.add_argument("--evidence", action="store_true")
    given = parser.parse_args()
    tally = Tally(given.seed)
    is_one = given.only is not None
    numbers = range(given.only, given.only + 1) if is_one else range(given.count)
    return campaigns.carry_out(
        campaign(numbers, given.seed, given.jobs),
        tally,
        campaigns.Shown(Console(), COUNTED, len(numbers)),
        partial(tell, seed=given.seed),
        tally.keep if given.evidence else None,
        keep_every=WRITE_EVERY_COUNT,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Thousands of mutated files: any file of a data folder, changed in any way, then judged.

``python -m tests.corruption.campaign --count 20000 --seed N`` writes docs/evidence/corruption.json.
Each mutation follows from the seed and its number, and a failure prints the command that repeats
it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from tests.corruption.judge import Baseline, judge
from tests.corruption.matrix import baselines
from tests.support import evidence
from tests.support.scratch import scratch_folder

__all__ = ["Result", "campaign", "run"]

JOBS = 2
SHARE = 50
"""Mutations that one worker takes at a time."""


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
    shutil.copytree(baseline.folder, copy)
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


def _share(seed: int, first: int, last: int) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="oncelog-mutated-", dir=scratch_folder()) as folder:
        scratch = Path(folder)
        sound = baselines(scratch)
        return [run(sound, seed, number, scratch) for number in range(first, last)]


def campaign(count: int, seed: int, jobs: int = JOBS) -> Iterator[Result]:
    """All results, as they come."""
    starts = range(0, count, SHARE)
    with ProcessPoolExecutor(jobs) as pool:
        ends = [min(start + SHARE, count) for start in starts]
        for part in pool.map(_share, [seed] * len(starts), starts, ends):
            yield from part


def main() -> int:
    """Exit code 0 when no rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this mutation alone")
    parser.add_argument("--evidence", action="store_true")
    arguments = parser.parse_args()
    console, begun = Console(), time.monotonic()
    if arguments.only is not None:
        results = _share(arguments.seed, arguments.only, arguments.only + 1)
    else:
        results = list(campaign(arguments.count, arguments.seed))
    bad = [result for result in results if result.failures]
    for result in bad:
        again = f"python -m tests.corruption.campaign --seed {arguments.seed} --only"
        console.print(f"{result.file}, {result.mutation}: {result.failures}", soft_wrap=True)
        console.print(f"  {again} {result.number}", style="dim", soft_wrap=True)
    console.print(f"{len(results)} mutated files, {len(bad)} broke a rule")
    if arguments.evidence:
        _write_evidence(results, arguments.seed, time.monotonic() - begun)
    return 1 if bad else 0


def _write_evidence(results: list[Result], seed: int, seconds: float) -> None:
    bad = [result for result in results if result.failures]
    facts: dict[str, object] = {
        "seed": seed,
        "seconds": round(seconds),
        "mutated files": len(results),
        "starts of a broker": "three for each that is not refused",
        "outcomes": dict(Counter(result.verdict for result in results).most_common()),
        "mutations": dict(sorted(Counter(result.mutation for result in results).items())),
        "files": len({result.file for result in results}),
        "broken rules": [f"{r.number} {r.file} {r.mutation}: {r.failures}" for r in bad],
    }
    evidence.write("corruption", "failed" if bad else "passed", facts)


if __name__ == "__main__":
    sys.exit(main())

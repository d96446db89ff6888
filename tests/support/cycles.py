"""Embedded brokers started and stopped many times, in a process of their own: what do they leave?

``python -m tests.support.cycles 500`` prints the figures; ``nox -s cycles`` judges them on each
Python that is here.

What a cycle leaves in Python's own memory is counted in allocated blocks, which is exact. Resident
memory is looked at as well, for what libraries keep; it moves in steps, since allocators take and
give back whole arenas (steps of up to 3.4 MiB were seen in 2,500 cycles that left nothing).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

from oncelog import EmbeddedBroker
from tests.support.evidence import ROOT

CYCLES_COUNT = 500
CYCLE_TIMEOUT_S = 5
WARM_UP_COUNT = 5
SAMPLES_COUNT = 10
MEMORY_GROWTH_MAX_KIB = 4096
"""Between the medians of the second quarter and the last one: a step of the allocator."""
BLOCKS_GROWTH_MAX = 100
"""Between the same: less than one block in two cycles, of 500."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """What was left after so many starts and stops, beside what the first ones left."""

    count: int
    threads_growth: int
    descriptors_growth: int
    temporary_folders_count: int
    memory_kib: tuple[int, ...]
    """Resident memory, sampled at equal distances."""
    allocated_blocks: tuple[int, ...]
    """What Python has allocated and not freed, sampled with it."""

    @property
    def is_flat(self) -> bool:
        """Whether nothing was left."""
        left = (self.threads_growth, self.descriptors_growth, self.temporary_folders_count)
        return self.is_memory_flat and not any(left)

    @property
    def is_memory_flat(self) -> bool:
        """Whether the last quarter of the samples holds no more than the second one."""
        return (
            _growth(self.memory_kib) <= MEMORY_GROWTH_MAX_KIB
            and _growth(self.allocated_blocks) <= BLOCKS_GROWTH_MAX
        )


def _growth(samples: tuple[int, ...]) -> int:
    """How far the median of the last quarter is above that of the second one."""
    quarter = len(samples) // 4
    second, last = sorted(samples[quarter : 2 * quarter]), sorted(samples[-quarter:])
    return last[quarter // 2] - second[quarter // 2]


def measure_cycles(count: int, python: str = sys.executable) -> Cycles:
    """Run the cycles in a process of their own."""
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [python, "-m", "tests.support.cycles", str(count)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": temporary},
            capture_output=True,
            text=True,
            timeout=CYCLE_TIMEOUT_S * (count + WARM_UP_COUNT),
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the cycles ended with {done.returncode}: {done.stderr[-2000:]}")
    figures = json.loads(done.stdout)
    samples = {name: tuple(figures[name]) for name in ("memory_kib", "allocated_blocks")}
    return Cycles(**figures | samples)


def run_cycles(count: int) -> Cycles:
    """The cycles themselves, in this process."""
    _cycle(WARM_UP_COUNT)
    threads, descriptors = threading.active_count(), _descriptors_count()
    # Arrays: a list would keep an object for each sample, which is counted too.
    memory, blocks = array("q"), array("q")
    samples = min(count, SAMPLES_COUNT * 4)
    for sample in range(samples):
        _cycle((sample + 1) * count // samples - sample * count // samples)
        gc.collect()
        memory.append(_memory_kib())
        blocks.append(sys.getallocatedblocks())
    return Cycles(
        count,
        threading.active_count() - threads,
        _descriptors_count() - descriptors,
        len(list(Path(tempfile.gettempdir()).iterdir())),
        tuple(memory),
        tuple(blocks),
    )


def _cycle(count: int) -> None:
    for _ in range(count):
        with EmbeddedBroker():
            pass


def _descriptors_count() -> int:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return len(os.listdir(folder))


def _memory_kib() -> int:
    if not os.path.exists("/proc/self/statm"):
        return 0
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def main() -> int:
    """Exit code 0 when `--check` finds that nothing was left, and without it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=CYCLES_COUNT)
    parser.add_argument("--check", action="store_true", help="say in words whether it is flat")
    options = parser.parse_args()
    if not options.check:
        print(json.dumps(asdict(run_cycles(options.count))))
        return 0
    found = measure_cycles(options.count)
    print(f"{found.count} starts" if found.is_flat else found)
    return 0 if found.is_flat else 1


if __name__ == "__main__":
    sys.exit(main())

"""A worker's modules are no work for the garbage collector."""

import subprocess
import sys

LOOK = """
import gc
from oncelog.spark.worker import spare_collections
counts, held = [], []
for task in range(3):
    spare_collections()
    held += [[] for _ in range(1000)]
    counts.append(gc.get_freeze_count())
    gc.collect()
print(*counts)
"""


def test_what_the_first_two_tasks_hold_is_kept_from_collections() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    first, second, third = map(int, done.stdout.split())
    assert first > 1000
    assert second >= first + 1000
    assert third == second

"""Compares every log directory that a broker's process leaves with what its logs imply.

Brokers of the end-to-end tests and the soak call it at each stop and each kill, see
`oncelog.simulation.oracle`. It reads files only. Partitions of many bytes are left out: it is
slow, and small ones have everything that large ones have.
"""

from itertools import pairwise
from pathlib import Path

from oncelog.simulation.agreement.folders import folder as compare
from oncelog.simulation.oracle.history import RawLog, log_files_among

BYTES_MAX = 1 << 18
"""Of one partition's `.log` files: some 30 ms of work."""


def disagreements_in(data: Path, *, was_closed: bool) -> list[str]:
    """What the files of a log directory say that its logs do not imply; `was_closed`: in order."""
    found: list[str] = []
    for path in sorted(data.glob("*-*/")):
        if not path.name.rpartition("-")[2].isdecimal():
            continue  # Deleted, stray, or about to be moved.
        names = [each.name for each in path.iterdir()]
        logs = log_files_among(names)
        if not logs or sum((path / name).stat().st_size for name in logs) > BYTES_MAX:
            continue
        wrong = compare(
            names,
            lambda name, path=path: (path / name).read_bytes(),  # type: ignore[misc]
            was_closed=was_closed,
            is_thinned=_is_thinned(path, names),
            log_start=None,
        )
        found += [f"{path.name}: {text}" for text in wrong]
    return found


def check_left(data: Path, *, was_closed: bool) -> None:
    """Raise AssertionError if a folder says what its logs do not imply."""
    found = disagreements_in(data, was_closed=was_closed)
    assert not found, f"{data}: " + "; ".join(found[:10])


def _is_thinned(path: Path, names: list[str]) -> bool:
    """Whether compaction may have taken batches or records: where it may run, or left gaps."""
    if path.name.startswith("__"):
        return True
    log = RawLog()
    log.read(names, lambda name: (path / name).read_bytes())
    batches = log.batches()
    return any(a.last_offset + 1 != b.base_offset for a, b in pairwise(batches)) or any(
        batch.record_count != batch.last_offset - batch.base_offset + 1 for batch in batches
    )

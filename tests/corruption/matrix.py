"""One row for each kind of file, one column for each damage: what a broker makes of it.

``python -m tests.corruption.matrix`` carries all of it out and writes the table into
docs/durability.md.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.corruption.judge import Baseline, Outcome, judge, sound_baseline
from tests.support import data_folder
from tests.support.scratch import scratch_folder

__all__ = ["DAMAGES", "KINDS", "Cell", "all_cells", "baselines", "run_cell"]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "durability.md"
BEGIN = "<!-- Made by `python -m tests.corruption.matrix`. -->"
END = "<!-- End of what it makes. -->"

KINDS = {
    "`.log`, active": "mixed-0/{last}.log",
    "`.log`, sealed": "mixed-0/{first}.log",
    "`.log` of `__transaction_state`, active": "__transaction_state-0/{last}.log",
    "`.log` of `__transaction_state`, sealed": "__transaction_state-0/{first}.log",
    "`.log` of `__consumer_offsets`, active": "__consumer_offsets-0/{last}.log",
    "`.log` of `__consumer_offsets`, sealed": "__consumer_offsets-0/{first}.log",
    "`.index`": "mixed-0/{first}.index",
    "`.timeindex`": "mixed-0/{first}.timeindex",
    "`.txnindex`": "mixed-0/{first}.txnindex",
    "`.snapshot`": "mixed-0/{newest}.snapshot",
    "`.batches`": "mixed-0/{newest}.batches",
    "`oncelog.segments`": "mixed-0/oncelog.segments",
    "`leader-epoch-checkpoint`": "mixed-0/leader-epoch-checkpoint",
    "`partition.metadata`": "mixed-0/partition.metadata",
    "`recovery-point-offset-checkpoint`": "recovery-point-offset-checkpoint",
    "`log-start-offset-checkpoint`": "log-start-offset-checkpoint",
    "`cleaner-offset-checkpoint`": "cleaner-offset-checkpoint",
    "`replication-offset-checkpoint`": "replication-offset-checkpoint",
    "`meta.properties`": "meta.properties",
    "`oncelog.format`": "oncelog.format",
    "`.kafka_cleanshutdown`": ".kafka_cleanshutdown",
    "`metadata.sqlite`": "metadata.sqlite",
    "`metadata.sqlite-wal`": "metadata.sqlite-wal",
}


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _garbage(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(data))


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "bit flip": _flip,
    "cut": lambda data, rng: data[: len(data) * 2 // 3],
    "empty": lambda data, rng: b"",
    "missing": lambda data, rng: None,
    "garbage": _garbage,
    "odd size": lambda data, rng: data + rng.randbytes(5),
}

STOPS = ("clean stop", "kill")


class Cell(NamedTuple):
    """One kind of file, one damage, after one way to stop."""

    kind: str
    damage: str
    stop: str


def all_cells() -> list[Cell]:
    """Every cell, rows first."""
    return [Cell(kind, damage, stop) for kind in KINDS for damage in DAMAGES for stop in STOPS]


def path_of(folder: Path, kind: str) -> Path | None:
    """The file of that kind in a folder, if it has one."""
    pattern = KINDS[kind]
    partition = folder / pattern.partition("/")[0]
    logs = sorted(path.stem for path in partition.glob("*.log"))
    snapshots = sorted(path.stem for path in partition.glob("*.snapshot"))
    names = {
        "first": logs[0] if logs else "",
        "last": logs[-1] if logs else "",
        "newest": snapshots[-1] if snapshots else "",
    }
    path = folder / pattern.format(**names)
    return path if path.exists() and path.stat().st_size else None


def run_cell(baseline: Baseline, cell: Cell, scratch: Path) -> Outcome | None:
    """Damage a copy and judge it; None where a folder has no such file."""
    source = path_of(baseline.folder, cell.kind)
    if source is None:
        return None
    name = str(source.relative_to(baseline.folder))
    changed = DAMAGES[cell.damage](source.read_bytes(), random.Random(str(cell)))
    copy = scratch / "cell"
    shutil.copytree(baseline.folder, copy)
    try:
        if changed is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(changed)
        return judge(baseline, copy, {name: changed})
    finally:
        shutil.rmtree(copy)


def baselines(scratch: Path) -> dict[str, Baseline]:
    """The folder after a clean stop, and after a kill."""
    data_folder.make(scratch / "clean", scratch / "killed")
    return {
        "clean stop": sound_baseline(scratch / "clean", scratch, was_clean=True),
        "kill": sound_baseline(scratch / "killed", scratch, was_clean=False),
    }


def _run(cells: list[Cell]) -> list[tuple[Cell, Outcome | None]]:
    with tempfile.TemporaryDirectory(prefix="oncelog-matrix-", dir=scratch_folder()) as name:
        scratch = Path(name)
        sound = baselines(scratch)
        return [(cell, run_cell(sound[cell.stop], cell, scratch)) for cell in cells]


def run_all(jobs: int = 2) -> Iterator[tuple[Cell, Outcome | None]]:
    """All cells, in their order."""
    cells = all_cells()
    share = -(-len(cells) // jobs)
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(_run, [cells[i : i + share] for i in range(0, len(cells), share)]):
            yield from part


VERDICTS = {
    "right": "everything is served",
    "marked": "only the damaged offsets are not served, each with an error, and a WARNING says so; "
    "where no start scans, as after a clean stop, flipped bits of records are served as by Apache "
    "Kafka, and the error is that of the client, which checks the CRC",
    "valid prefix": "the log ends before the damage, and a WARNING says so",
    "set aside": "the folder is renamed to `-stray`, whole, and an ERROR says so",
    "coordinator unavailable": "records are served; the damaged partition's coordinator answers "
    "with an error, and an ERROR says so",
    "coordinator cut": "the internal topic ends before the damage, and a WARNING says so",
    "deleted records show again": "nothing is lost, but DeleteRecords is forgotten",
    "refused": "the broker does not start, says why in one sentence, and changes nothing",
}


def text_of(outcomes: dict[Cell, Outcome | None], kind: str, damage: str) -> str:
    """One cell of the table: after a clean stop, and after a kill where that differs."""
    found = []
    for stop in STOPS:
        outcome = outcomes[Cell(kind, damage, stop)]
        if outcome is None:
            found.append("no such file")
        else:
            found.append("**breaks a rule**" if outcome.failures else outcome.verdict)
    return found[0] if len(set(found)) == 1 else " / ".join(found)


def table(outcomes: dict[Cell, Outcome | None]) -> str:
    """The section of docs/durability.md."""
    lines = [
        BEGIN,
        "",
        "| file | " + " | ".join(DAMAGES) + " |",
        "|---" * (len(DAMAGES) + 1) + "|",
    ]
    for kind in KINDS:
        cells = " | ".join(text_of(outcomes, kind, damage) for damage in DAMAGES)
        lines.append(f"| {kind} | {cells} |")
    lines.append("")
    lines += [f"- *{verdict}*: {meaning}" for verdict, meaning in VERDICTS.items()]
    return "\n".join([*lines, "", END])


def section_in(document: str) -> str:
    """The section as it stands in a document; "" when it has none."""
    _, begin, rest = document.partition(BEGIN)
    section, end, _ = rest.partition(END)
    return begin + section + end if end else ""


def main() -> int:
    """Exit code 0 when no rule was broken."""
    outcomes = dict(run_all())
    broken = 0
    for cell, outcome in outcomes.items():
        for failure in outcome.failures if outcome is not None else ():
            broken += 1
            print(f"{cell.kind}, {cell.damage}, {cell.stop}: {failure}")
    print(f"{broken} rules broken")
    text = DOCUMENT.read_text()
    old = section_in(text)
    if not old:
        print(f"{DOCUMENT} has no section to replace")
        return 1
    DOCUMENT.write_text(text.replace(old, table(outcomes)))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Plants the bugs of tests/simulation/planted/units/, which a unit test finds sooner than any run.

Run as ``python -m tests.simulation.planted_units [NAME ...]``. A bug is a TOML file with `file`,
`before` and `after` as in `planted`, `why`, any number of `[[edit]]` tables, and `tests`: each of
them has to fail with the bug in the code. They pass without it, for `make test` runs them.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import patches
from tests.support.patches import EDIT_KEYS, BadPatch, Edit, check_keys, edit_of, read, why_of

__all__ = ["FOLDER", "UnitBug", "load", "names"]

FOLDER = Path(__file__).parent / "planted" / "units"
KEYS = EDIT_KEYS | {"why", "tests"}


@dataclass(frozen=True, slots=True)
class UnitBug:
    """One bug, and the tests that find it."""

    name: str
    edits: tuple[Edit, ...]
    why: str
    tests: tuple[str, ...]


def names() -> list[str]:
    """All of them, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> UnitBug:
    """Read one bug. Raises `BadPatch` if it is not well formed or does not fit the code."""
    content = read(name, "tests/simulation/planted/units", patches.ROOT)
    tables = content.pop("edit", [])
    check_keys(name, content, KEYS)
    edits = tuple(edit_of(name, table) for table in (content, *tables))
    patches.patched(name, edits, patches.ROOT)
    tests = tuple(content["tests"])
    for test in tests:
        file, _, function = test.partition("::")
        text = (patches.ROOT / file).read_text() if (patches.ROOT / file).is_file() else ""
        if function.partition("[")[0] not in text or not text:
            raise BadPatch(f"{name}: there is no test {test}")
    return UnitBug(name, edits, why_of(name, content), tests)


def find(bug: UnitBug) -> bool:
    """Return whether its tests fail with the bug in a copy of the code."""
    with tempfile.TemporaryDirectory(prefix="oncelog-planted-") as folder:
        tree = Path(folder)
        patches.copy_tree(tree)
        patches.plant(bug.name, bug.edits, tree)
        return all(patches.run_pytest(tree, [test])[0] == 1 for test in bug.tests)


def main(chosen: Sequence[str]) -> int:
    """Look for these, or for all; returns how many were not found."""
    missed = 0
    for name in chosen or names():
        is_found = find(load(name))
        missed += not is_found
        print(f"{name}: {'found' if is_found else 'MISSED'}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))

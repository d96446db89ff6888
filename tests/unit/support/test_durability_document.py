"""docs/durability.md says only what a test shows: each row names one, and each name is a test."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "durability.md").read_text()
NAMED = re.compile(r"`(test_\w+)`")


def names_of_tests() -> set[str]:
    """The names of all test functions."""
    defined = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in defined.findall(path.read_text())
    }


def test_every_test_that_is_named_exists() -> None:
    named = set(NAMED.findall(DOCUMENT))
    assert len(named) > 15
    assert named <= names_of_tests()


def test_every_row_names_its_test() -> None:
    section = DOCUMENT.split("## What survives what")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert [row for row in rows if not NAMED.search(row)] == []

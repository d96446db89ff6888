"""docs/transactions.md shows what the code does: its tables, and a transaction of a real broker."""

import re
from pathlib import Path

from tests.support.transactions import DOCUMENT, make, without_times

ROOT = Path(__file__).parents[3]
_TEST = re.compile(r"`(tests/[\w/]+\.(?:py|txt))`(?: `(\w+)`)?")


def test_the_made_parts_are_up_to_date() -> None:
    """Otherwise: python -m tests.support.transactions."""
    text = DOCUMENT.read_text()
    assert without_times(make(text)) == without_times(text)


def test_every_test_that_is_cited_exists() -> None:
    cited = _TEST.findall(DOCUMENT.read_text())
    assert len(cited) >= 8
    for path, name in cited:
        source = (ROOT / path).read_text()
        assert not name or f"def {name}(" in source, f"{path}: {name}"

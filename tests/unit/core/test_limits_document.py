"""docs/limits.md says what core/limits.py and core/security_limits.py hold."""

import re
from pathlib import Path

import pytest

from oncelog.core import limits, security_limits

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "limits.md"
ROWS = re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", DOCUMENT.read_text(), re.MULTILINE)


def shown(name: str, value: int) -> str:
    if "_BYTES_" in name and value % 1024 == 0:
        return f"{value // 2**20} MiB" if value % 2**20 == 0 else f"{value // 1024} KiB"
    if "_MS_" in name:
        return f"{value // 1000} s"
    return f"{value:,}"


def test_the_document_has_a_table() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize(("name", "value"), ROWS)
def test_a_limit_is_what_the_document_says(name: str, value: str) -> None:
    module = limits if hasattr(limits, name) else security_limits
    assert shown(name, getattr(module, name)) == value

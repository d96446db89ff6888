"""Writes the table of alerts in docs/running.md from deploy/prometheus/oncelog.rules.yml.

Run as ``python -m tests.support.alerts``; a unit test holds the page to what this makes.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from tests.support.readers import SOURCES

__all__ = ["DOCUMENT", "RULES", "alerts", "document"]

ROOT: Final = SOURCES.parents[1]
RULES: Final = ROOT / "deploy" / "prometheus" / "oncelog.rules.yml"
DOCUMENT: Final = ROOT / "docs" / "running.md"
_MADE: Final = re.compile(r"(<!-- alerts: .*? -->\n\n)(.*?)(\n<!-- end of alerts -->)", re.DOTALL)
HEAD: Final = "| Alert | When | For | Means | What to do |\n|---|---|---|---|---|\n"


def alerts() -> list[dict[str, Any]]:
    """The rules, in the order of the file."""
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def document() -> str:
    """The whole page, its table made anew."""
    table = HEAD + "".join(map(_row, alerts()))
    text, count = _MADE.subn(lambda found: found[1] + table + found[3], DOCUMENT.read_text())
    assert count == 1, "docs/running.md has no place for the table of alerts"
    return text


def _row(rule: dict[str, Any]) -> str:
    said = rule["annotations"]
    cells = [
        f"**{rule['alert']}** ({rule['labels']['severity']})",
        f"`{' '.join(rule['expr'].split())}`",
        rule.get("for", "at once"),
        said["summary"],
        said["action"],
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document())

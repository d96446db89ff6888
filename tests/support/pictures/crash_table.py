"""The crash table of a Spark micro-batch, as points along its way.

The rows are `CrashRow`; what a restarted query finds and does is read from docs/spark.md, which has
them as a table for those who read.
"""

from __future__ import annotations

import re
from typing import Final

from tests.support.pictures.drawing import PALE, Drawing
from tests.support.readers import SOURCES

__all__ = ["draw", "rows"]

WIDTH, ROW, TOP = 1020, 56, 50
LINE: Final = 290
DONE: Final = ("#ddf4ff", "#fff8c5", "#dafbe1")
"""Colours: nothing of the batch is there, either, all of it is."""


def rows() -> list[tuple[str, str, str]]:
    """(the process dies, in the log then, the restarted query) of each row."""
    text = (SOURCES.parents[1] / "docs" / "spark.md").read_text()
    section = text.split("\n## The crash table\n")[1].split("\n| something else fails")[0]
    cells = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return [cell for cell in cells if not cell[0].startswith(("the process", "---"))]


def draw() -> str:
    """The picture."""
    found = [tuple(_plain(cell) for cell in row) for row in rows()]
    drawing = Drawing(WIDTH, TOP + ROW * len(found) + 10, "What a restarted query does")
    drawing.text(20, 26, "the process dies ...", bold=True)
    drawing.text(LINE + 200, 26, "in the log then, and what the restarted query does", bold=True)
    drawing.line(LINE + 170, TOP, LINE + 170, TOP + ROW * len(found) - 10)
    above = ""
    for number, (dies, log, query) in enumerate(found):
        y = TOP + ROW * number
        above = above if query == "the same" else query
        drawing.box(LINE + 163, y + 8, 14, 14, _colour(log))
        drawing.text(LINE + 150, y + 20, dies, anchor="end")
        drawing.text(LINE + 200, y + 20, log)
        drawing.text(LINE + 200, y + 38, above, ink=PALE)
    return str(drawing)


def _colour(log: str) -> str:
    if log.endswith(", committed"):
        return DONE[2]
    return DONE[1] if log == "either" else DONE[0]


def _plain(text: str) -> str:
    return re.sub(r" ?\(\[.*?\]\(.*?\)\)", "", text).replace("`", "")

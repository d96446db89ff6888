"""The rooms, one layer above the other, as the contracts of import-linter in pyproject.toml say."""

from __future__ import annotations

import tomllib
from typing import Final

from tests.support.pictures.drawing import PALE, Drawing
from tests.support.readers import SOURCES

__all__ = ["draw", "layers"]

PURE: Final = "#ddf4ff"
DOING: Final = "#fff8c5"
WIDTH, ROW, GAP, LEFT = 900, 44, 10, 20


def layers(container: str) -> list[list[str]]:
    """The layers inside a package, from the top down: each the rooms that do not see each other."""
    found = tomllib.loads((SOURCES.parents[1] / "pyproject.toml").read_text())
    contracts = found["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if c["type"] == "layers" and c["containers"] == [container]]
    names = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    return [[name for name in layer if not name.startswith("(")] for layer in names]


def pure_rooms() -> set[str]:
    """The rooms that do no I/O and know no time, by the contract that forbids it."""
    found = tomllib.loads((SOURCES.parents[1] / "pyproject.toml").read_text())
    (contract,) = [
        c for c in found["tool"]["importlinter"]["contracts"] if c["name"].startswith("Pure rooms")
    ]
    return {name.removeprefix("oncelog.") for name in contract["source_modules"]}


def draw() -> str:
    """The picture."""
    rooms, inside = layers("oncelog"), layers("oncelog.broker")
    floor = ROW + GAP
    height = 3 * LEFT + floor * len(rooms) + (ROW // 2 + GAP // 2) * len(inside) + 30
    drawing = Drawing(WIDTH, height, "The rooms of Oncelog; imports go downwards only")
    pure = pure_rooms()
    y = LEFT
    for layer in rooms:
        tall = ROW + (ROW // 2 + GAP // 2) * len(inside) if "broker" in layer else ROW
        width = (WIDTH - 2 * LEFT - GAP * (len(layer) - 1)) // len(layer)
        for place, room in enumerate(layer):
            x = LEFT + place * (width + GAP)
            drawing.box(x, y, width, tall, PURE if room in pure else DOING)
            drawing.text(x + width // 2, y + 27, room, anchor="middle", bold=True)
            if room == "broker":
                _inside(drawing, inside, x + GAP, y + ROW - 6, width - 2 * GAP)
        y += tall + GAP
    drawing.box(LEFT, y + 6, 20, 14, PURE)
    drawing.text(LEFT + 28, y + 18, "decides: no I/O, no time", ink=PALE)
    drawing.box(LEFT + 260, y + 6, 20, 14, DOING)
    drawing.text(LEFT + 288, y + 18, "does", ink=PALE)
    drawing.text(WIDTH - LEFT, y + 18, "imports go downwards only", anchor="end", ink=PALE)
    return str(drawing)


def _inside(drawing: Drawing, inside: list[list[str]], left: int, y: int, width: int) -> None:
    """The rooms of a room."""
    for layer in inside:
        part = (width - GAP * (len(layer) - 1)) // len(layer)
        for place, room in enumerate(layer):
            x = left + place * (part + GAP)
            drawing.box(x, y, part, ROW // 2, "white")
            drawing.text(x + part // 2, y + 16, room, anchor="middle")
        y += ROW // 2 + GAP // 2

"""A few shapes of SVG, one a line, so that a change of a picture can be read."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

__all__ = ["Drawing"]

FONT: Final = "ui-monospace, Menlo, Consolas, monospace"
INK: Final = "#24292f"
PALE: Final = "#6e7781"


class Drawing:
    """Shapes on a white ground; sizes and places are in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FONT}" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
            "</marker></defs>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, fill: str = "#f6f8fa") -> None:
        """A rectangle with round corners."""
        self._lines.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" '
            f'stroke="{PALE}"/>'
        )

    def text(
        self,
        x: int,
        y: int,
        text: str,
        *,
        anchor: str = "start",
        bold: bool = False,
        ink: str = INK,
    ) -> None:
        """A line of text; `anchor` is start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        self._lines.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{ink}"{weight}>'
            f"{escape(text)}</text>"
        )

    def line(
        self, x1: int, y1: int, x2: int, y2: int, *, tip: bool = False, dashed: bool = False
    ) -> None:
        """A line, perhaps an arrow."""
        more = ' marker-end="url(#tip)"' if tip else ""
        more += ' stroke-dasharray="4 4"' if dashed else ""
        ink = INK if tip else PALE
        self._lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{ink}"{more}/>')

    def __str__(self) -> str:
        """The file."""
        return "\n".join([*self._lines, "</svg>", ""])

"""The ratios as a plot (SVG), drawn by hand: no library draws it smaller. Pure."""

from collections.abc import Sequence
from math import log10
from typing import Protocol
from xml.sax.saxutils import escape

ROW_HEIGHT = 22
WIDTH = 420
CHARACTER_WIDTH = 6.4
"""Of a sans-serif font of 12, on average and a little more."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
COLOURS = {"better": "#2a7f3f", "worse": "#c0392b", "same": "#34618d"}


class Interval(Protocol):
    """A ratio with its interval."""

    @property
    def value(self) -> float: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


class Drawn(Protocol):
    """One line of the plot."""

    @property
    def title(self) -> str: ...

    @property
    def figure(self) -> str: ...

    @property
    def verdict(self) -> str: ...

    @property
    def ratio(self) -> Interval: ...


def svg(found: Sequence[Drawn]) -> str:
    """Each ratio as a dot with its interval, on a logarithmic axis."""
    height = ROW_HEIGHT * len(found) + 80
    labels = [f"{one.title}: {one.figure}" for one in found]
    left = 20 + round(CHARACTER_WIDTH * max(map(len, labels), default=0))
    low, high = log10(TICKS[0]), log10(TICKS[-1])

    def x(value: float) -> float:
        place = min(max(log10(value), low), high) if value > 0 else low
        return left + (place - low) / (high - low) * WIDTH

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + WIDTH + 40}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-weight="bold">Oncelog / Apache Kafka (1 = equal)</text>',
        '<text x="10" y="38">'
        + " ".join(
            f'<tspan fill="{COLOURS[verdict]}">{text}</tspan>'
            for verdict, text in (
                ("better", "green: Oncelog better,"),
                ("worse", "red: worse,"),
                ("same", "blue: the interval holds 1"),
            )
        )
        + "</text>",
    ]
    for tick in TICKS:
        dash = "" if tick == 1 else ' stroke-dasharray="2 3"'
        parts.append(
            f'<line x1="{x(tick):.0f}" y1="48" x2="{x(tick):.0f}" y2="{height - 25}"'
            f' stroke="#999"{dash}/><text x="{x(tick):.0f}" y="{height - 10}"'
            f' text-anchor="middle">{tick:g}</text>'
        )
    for number, (label, one) in enumerate(zip(labels, found, strict=True)):
        y = 62 + number * ROW_HEIGHT
        colour = COLOURS[one.verdict]
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">'
            f"{escape(label)}</text>"
            f'<line x1="{x(one.ratio.low):.1f}" y1="{y}" x2="{x(one.ratio.high):.1f}"'
            f' y2="{y}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{x(one.ratio.value):.1f}" cy="{y}" r="4" fill="{colour}"/>'
        )
    return "\n".join([*parts, "</svg>", ""])

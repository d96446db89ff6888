"""Record what a command shows in a terminal, as an SVG that plays it.

``python -m tests.support.recording docs/pictures/demo.svg -- oncelog demo --seed 1 --offline``

The command runs in a pseudo-terminal, and pyte follows its screen. Waits are shortened to
`WAIT_MAX_S`, a longer recording is played faster, and the picture says so. Each line is written
once and used by all frames that show it; CSS moves a strip of frames past the window, so it plays
in a browser and needs no script.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import pyte

from tests.support.pictures.drawing import FONT

__all__ = ["Frame", "drawn", "record"]

COLUMNS: Final = 100
ROWS: Final = 24
FRAME_S: Final = 0.5
WAIT_MAX_S: Final = 1.0
PLAY_S_MAX: Final = 30.0
PLAYED_FRAME_S_MIN: Final = 0.15
LAST_FRAME_S: Final = 6.0
CHARACTER_WIDTH: Final = 7.8
LINE_HEIGHT: Final = 18
MARGIN: Final = 12
INKS: Final = {
    "default": "#d0d7de",
    "black": "#6e7781",
    "red": "#ff7b72",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#f0f6fc",
}
GROUND: Final = "#0d1117"

Run = tuple[str, str, bool]
"""Text, the name of its colour, and whether it is bold."""
Line = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What the screen showed from a moment on, in seconds since the command began."""

    at_s: float
    lines: tuple[Line, ...]


def record(command: Sequence[str]) -> tuple[list[Frame], int]:
    """Run the command in a terminal of its own. Returns its frames and its exit code."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began_s = looked_s = time.monotonic()
    frames = [Frame(0.0, _lines(screen))]
    while (data := _output(terminal)) is not None:
        stream.feed(data)
        now_s = time.monotonic()
        if now_s - looked_s >= FRAME_S:
            looked_s = now_s
            _add(frames, Frame(now_s - began_s, _lines(screen)))
    _add(frames, Frame(time.monotonic() - began_s, _lines(screen)))
    os.close(terminal)
    return frames, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _output(terminal: int) -> bytes | None:
    """What was written within `FRAME_S`; None when the command has closed its terminal."""
    if not select.select([terminal], [], [], FRAME_S)[0]:
        return b""
    try:
        return os.read(terminal, 65536) or None
    except OSError:
        return None


def _add(frames: list[Frame], frame: Frame) -> None:
    if frame.lines != frames[-1].lines:
        frames.append(frame)


def _lines(screen: pyte.Screen) -> tuple[Line, ...]:
    return tuple(_line(screen, row) for row in range(ROWS))


def _line(screen: pyte.Screen, row: int) -> Line:
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    runs: list[Run] = [
        ("".join(cell.data for cell in same), ink, bold)
        for (ink, bold), same in groupby(cells, key=lambda cell: (cell.fg, cell.bold))
    ]
    while runs and not runs[-1][0].strip():
        runs.pop()
    if runs:
        text, ink, bold = runs.pop()
        runs.append((text.rstrip(), ink, bold))
    return tuple(runs)


def drawn(frames: Sequence[Frame], title: str) -> str:
    """The frames as an SVG that plays them for ever."""
    starts_s, frames, speed = _schedule(frames)
    length_s = starts_s[-1] + LAST_FRAME_S
    faster = f", and all is played {speed:.0f} times as fast" if speed > 1 else ""
    width, height = round(COLUMNS * CHARACTER_WIDTH) + 2 * MARGIN, ROWS * LINE_HEIGHT + 2 * MARGIN
    ids: dict[Line, str] = {}
    for frame in frames:
        for line in frame.lines:
            if line:
                ids.setdefault(line, f"l{len(ids)}")
    steps = "".join(
        f"{100 * start_s / length_s:.3f}%{{transform:translateY({-number * height}px)}}"
        for number, start_s in enumerate(starts_s)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FONT}" font-size="13">',
            f"<title>{escape(title)}. Waits are shortened to {WAIT_MAX_S:g} s{faster}.</title>",
            f"<style>@keyframes play{{{steps}}}.strip{{animation:play {length_s:.1f}s steps(1,end) "
            "infinite}text{white-space:pre}</style>",
            "<defs>",
            *(_text(line, name) for line, name in ids.items()),
            "</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>',
            '<g class="strip">',
            *_uses(frames, ids, height),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _schedule(frames: Sequence[Frame]) -> tuple[list[float], list[Frame], float]:
    """When each frame begins to play, in seconds, the frames that do, and the speed."""
    waits_s = [min(after.at_s - before.at_s, WAIT_MAX_S) for before, after in pairwise(frames)]
    speed = max(1.0, sum(waits_s) / PLAY_S_MAX)
    now_s, starts_s, played = 0.0, [0.0], [frames[0]]
    for wait_s, frame in zip(waits_s, frames[1:], strict=True):
        now_s += wait_s / speed
        if now_s - starts_s[-1] < PLAYED_FRAME_S_MIN:
            played[-1] = frame
        else:
            starts_s.append(now_s)
            played.append(frame)
    return starts_s, played, speed


def _text(line: Line, name: str) -> str:
    spans, column = [], 0
    for text, ink, bold in line:
        weight = ' font-weight="bold"' if bold else ""
        x = f"{MARGIN + column * CHARACTER_WIDTH:.1f}"
        colour = INKS.get(ink, f"#{ink}" if len(ink) == 6 else INKS["default"])
        spans.append(f"<tspan x={quoteattr(x)} fill={quoteattr(colour)}{weight}>")
        spans.append(f"{escape(text)}</tspan>")
        column += len(text)
    return f'<text id="{name}">{"".join(spans)}</text>'


def _uses(frames: Sequence[Frame], ids: dict[Line, str], height: int) -> Iterator[str]:
    for number, frame in enumerate(frames):
        for row, line in enumerate(frame.lines):
            if line:
                y = number * height + MARGIN + (row + 1) * LINE_HEIGHT - 5
                yield f'<use href="#{ids[line]}" y="{y}"/>'


def main() -> int:
    """Exit code of the command; the picture is written only if it is 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    frames, exit_code = record(options.command)
    if exit_code == 0:
        options.file.write_text(drawn(frames, " ".join(options.command)))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())

"""Computes the position of a moment on the page.

Time goes downwards, busy times are spread, idle times are compressed. Two marks of one lane never
touch, and a long pause takes little more space than a short one. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import log10

__all__ = ["Pause", "TimeScale"]

MARK_GAP_PX = 13.0
"""The least distance between two marks of one lane, with space for a label."""
STEP_PX_MAX = 44.0
TICK_GAP_PX = 64.0
PAUSE_S_MIN = 0.5
TOP_PX = 24.0

Pause = tuple[float, float, float]
"""(top, bottom, seconds) of a stretch in which nothing happens."""


def _step_px(seconds: float) -> float:
    """Return the width of a pause: a millisecond 6 pixels, a second 36."""
    if seconds <= 0:
        return 0.0
    return min(3.0 + 11.0 * log10(1.0 + seconds * 1000.0), STEP_PX_MAX)


class TimeScale:
    """The heights of moments, given in order of time, each with the lanes that it marks."""

    __slots__ = ("_times", "height", "pauses", "ys")

    def __init__(self, moments: Iterable[tuple[float, Sequence[int]]], end_s: float = 0.0) -> None:
        self.ys: list[float] = []
        """One height per moment, never falling."""
        self.pauses: list[Pause] = []
        self._times: list[float] = []
        last_in: dict[int, float] = {}
        y, before_s = TOP_PX, 0.0
        for at_s, lanes in moments:
            at_s = max(at_s, before_s)
            top = y
            y += _step_px(at_s - before_s)
            for lane in lanes:
                y = max(y, last_in.get(lane, -MARK_GAP_PX) + MARK_GAP_PX)
            for lane in lanes:
                last_in[lane] = y
            self._note_pause(top, y, at_s - before_s)
            self.ys.append(y)
            self._times.append(at_s)
            before_s = at_s
        if end_s > before_s:
            self._times.append(end_s)
            self._note_pause(y, y + STEP_PX_MAX, end_s - before_s)
            y += STEP_PX_MAX
            self.ys.append(y)
        self.height = y + 2 * TOP_PX

    def _note_pause(self, top: float, bottom: float, seconds: float) -> None:
        if seconds >= PAUSE_S_MIN:
            self.pauses.append((top, bottom, seconds))

    def y(self, at_s: float) -> float:
        """Return the height of a time; of several marks at one time the lowest."""
        times, ys = self._times, self.ys
        index = bisect_right(times, at_s)
        if index == 0:
            first_s = times[0] if times else 0.0
            if first_s <= 0:
                return TOP_PX
            return TOP_PX + (ys[0] - TOP_PX) * max(at_s, 0.0) / first_s
        if index == len(times):
            return ys[-1]
        before_s, after_s = times[index - 1], times[index]
        share = (at_s - before_s) / (after_s - before_s)
        return ys[index - 1] + (ys[index] - ys[index - 1]) * share

    def top(self, at_s: float) -> float:
        """Return the height of a time; of several marks at one time the highest."""
        index = bisect_left(self._times, at_s)
        if index < len(self._times) and self._times[index] == at_s:
            return self.ys[index]
        return self.y(at_s)

    def ticks(self) -> list[tuple[float, str]]:
        """Return (height, label) of the times at the side, never too close, each time once.

        A label has microseconds if two labels would be equal in milliseconds.
        """
        found: list[tuple[float, str]] = [(TOP_PX, "0 s")]
        before_s = 0.0
        for at_s, y in zip(self._times, self.ys, strict=True):
            if y - found[-1][0] < TICK_GAP_PX or at_s == before_s:
                continue
            label = f"{at_s:.3f} s" if at_s - before_s >= 0.001 else f"{at_s:.6f}"
            found.append((y, label))
            before_s = at_s
        return found

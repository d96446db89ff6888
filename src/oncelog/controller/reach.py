"""Judges whether the controller is cut off from the other brokers, and gives its office up.

Its session tells the store that it lives, and no more: a controller that reaches the store and no
other broker would keep the office for ever, and no other would decide in its place. Only where
at least two others are registered can it tell that it is the one which is cut off: of two brokers
that do not reach each other, either may be.

| the office is | in a round | next |
|---|---|---|
| held | another answers, or fewer than two are registered | held |
| held | none answers, for the `ROUNDS_COUNT`th time in a row | left to others, at most once per `RESIGNATION_INTERVAL_MS` |
| left | another answers, or fewer than two are registered | free to be claimed |
| left | none answers, `LEFT_MS_MAX` after it was left | free to be claimed |

Pure: rounds and times are arguments.
"""  # noqa: E501 - the table

from __future__ import annotations

from typing import Final

__all__ = [
    "LEFT_MS_MAX",
    "OTHERS_COUNT_MIN",
    "RESIGNATION_INTERVAL_MS",
    "ROUNDS_COUNT",
    "ROUNDS_PER_SESSION_COUNT",
    "ReachJudge",
]

ROUNDS_PER_SESSION_COUNT: Final = 4
"""Rounds in the timeout of a session."""
ROUNDS_COUNT: Final = 6
"""So many in a row to which no broker answers. They take longer than a session lasts: a broker that
died is registered no more by then.
"""
LEFT_MS_MAX: Final = 60_000
"""For so long a broker that gave the office up leaves it to those who reach others. Then any
controller is better than none.
"""
RESIGNATION_INTERVAL_MS: Final = 600_000
"""A broker gives the office up once in this time: two that are cut off would pass it to and fro."""
OTHERS_COUNT_MIN: Final = 2


class ReachJudge:
    """The judgement of one broker. `is_left`: it does not claim the office."""

    __slots__ = ("_failed_count", "_left_ms", "is_left")

    def __init__(self) -> None:
        self.is_left = False
        self._failed_count = 0
        self._left_ms: float | None = None

    def is_asked(self, *, is_held: bool, others_count: int) -> bool:
        """Whether the others are to be asked: only then is there anything to judge."""
        return self.is_left or (is_held and others_count >= OTHERS_COUNT_MIN)

    def judge(
        self, now_ms: float, *, is_held: bool, others_count: int, answered_count: int
    ) -> bool:
        """Take the outcome of a round; whether the office is to be given up now."""
        if answered_count or others_count < OTHERS_COUNT_MIN:
            self._failed_count = 0
            self.is_left = False
            return False
        if self._left_ms is not None and now_ms - self._left_ms >= LEFT_MS_MAX:
            self.is_left = False
        self._failed_count = self._failed_count + 1 if is_held else 0
        if self._failed_count < ROUNDS_COUNT or not self._may_resign(now_ms):
            return False
        self._left_ms = now_ms
        self.is_left = True
        return True

    def _may_resign(self, now_ms: float) -> bool:
        return self._left_ms is None or now_ms - self._left_ms >= RESIGNATION_INTERVAL_MS

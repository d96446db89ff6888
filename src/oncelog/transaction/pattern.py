r"""Matches transactional ids against patterns (KIP-1152), in time linear in the id.

The pattern comes from a client, so Python's `re`, which backtracks and recurses, must not run it: a
dozen characters could block the broker for hours. Kafka uses RE2 for the same reason. As in RE2,
the pattern becomes a small program whose threads advance together over the id (Thompson's
construction).

Supported are literals, ``.``, classes ``[a-z]``, ``\d \w \s`` and their opposites, groups, ``|``,
``* + ?`` and ``{m,n}`` (lazy forms too, as the whole id has to match), and ``^ $`` at the ends. All
else is refused.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.core.limits import PATTERN_LENGTH_MAX, PATTERN_NESTING_MAX, PATTERN_STEPS_COUNT_MAX

__all__ = ["BadPattern", "Pattern"]

Test = Callable[[str], bool]


class BadPattern(ValueError):  # noqa: N818 - names what the pattern is
    """The pattern is not supported, or exceeds a limit."""


class _Step(NamedTuple):
    """Either one character that passes `test`, then `to`; or continue at all of `to` at once."""

    test: Test | None
    to: tuple[int, ...]


_CLASSES: Final[dict[str, Test]] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in " \t\n\r\f\v",
}
_SPECIAL: Final = frozenset("*+?{}()|^$[]\\.")


class Pattern:
    """A compiled pattern. Raises `BadPattern`."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise BadPattern(f"a pattern of {len(text)} characters")
        self._text = text.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        self._position = 0
        self._depth = 0
        # Step 0 is the end.
        self._steps = [_Step(None, ())]
        self._start = self._alternatives()(0)
        if self._position < len(self._text):
            raise BadPattern(f"{self._text[self._position]!r} is not expected")

    def matches(self, value: str) -> bool:
        """Whether all of `value` matches."""
        alive = self._reach({self._start})
        for character in value:
            alive = self._reach(
                {
                    step.to[0]
                    for step in map(self._steps.__getitem__, alive)
                    if step.test is not None and step.test(character)
                }
            )
            if not alive:
                return False
        return 0 in alive

    def _reach(self, places: set[int]) -> set[int]:
        """Return these steps and all that are reachable without a character."""
        reached = set(places)
        todo = list(places)
        while todo:
            step = self._steps[todo.pop()]
            if step.test is None:
                fresh = [place for place in step.to if place not in reached]
                reached.update(fresh)
                todo += fresh
        return reached

    # --- parsing: each part becomes a function from its end to its start

    def _add(self, test: Test | None, *to: int) -> int:
        if len(self._steps) >= PATTERN_STEPS_COUNT_MAX:
            raise BadPattern("the pattern stands for too much")
        self._steps.append(_Step(test, to))
        return len(self._steps) - 1

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise BadPattern("the pattern ends early")
        self._position += 1
        return character

    def _alternatives(self) -> Callable[[int], int]:
        self._depth += 1
        if self._depth > PATTERN_NESTING_MAX:
            raise BadPattern("groups stand too deep in each other")
        options = [self._sequence()]
        while self._peek() == "|":
            self._next()
            options.append(self._sequence())
        self._depth -= 1
        if len(options) == 1:
            return options[0]
        return lambda end: self._add(None, *[option(end) for option in options])

    def _sequence(self) -> Callable[[int], int]:
        parts: list[Callable[[int], int]] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))

        def build(end: int) -> int:
            for part in reversed(parts):
                end = part(end)
            return end

        return build

    def _repeated(self, part: Callable[[int], int]) -> Callable[[int], int]:
        mark = self._peek()
        if mark not in ("*", "+", "?", "{") or not mark:
            return part
        self._next()
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(mark) or self._bounds()
        if self._peek() == "?":
            self._next()
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise BadPattern("a repetition of a repetition")

        def build(end: int) -> int:
            start = end
            if high is None:
                start = self._add(None, end)
                self._steps[start] = _Step(None, (part(start), end))
            else:
                for _ in range(high - low):
                    start = self._add(None, part(start), end)
            for _ in range(low):
                start = part(start)
            return start

        return build

    def _bounds(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._position)
        text = self._text[self._position : end]
        low, comma, high = text.partition(",")
        if end < 0 or not low.isdecimal() or not (high or "0").isdecimal() or len(text) > 9:
            raise BadPattern("a repetition count that is none")
        self._position = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > PATTERN_STEPS_COUNT_MAX or (most is not None and most < least):
            raise BadPattern("a repetition count out of range")
        return least, most

    def _atom(self) -> Callable[[int], int]:
        character = self._next()
        if character == "(":
            if self._peek() == "?":
                self._next()
                if self._next() != ":":
                    raise BadPattern("only plain groups are understood")
            inner = self._alternatives()
            if self._next() != ")":
                raise BadPattern("a group is not closed")
            return inner
        if character == ".":
            return self._one(lambda c: c != "\n")
        if character == "[":
            return self._one(self._class())
        if character == "\\":
            return self._one(self._escape())
        if character in _SPECIAL:
            raise BadPattern(f"{character!r} is not expected")
        return self._one(lambda c: c == character)

    def _one(self, test: Test) -> Callable[[int], int]:
        return lambda end: self._add(test, end)

    def _escape(self) -> Test:
        character = self._next()
        known = _CLASSES.get(character.lower())
        if known is not None:
            return known if character.islower() else lambda c: not known(c)
        if character.isalnum():
            raise BadPattern(f"\\{character} is not understood")
        return lambda c: c == character

    def _class(self) -> Test:
        negated = self._peek() == "^"
        if negated:
            self._next()
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            character = self._next()
            if character == "\\":
                tests.append(self._escape())
            elif self._peek() == "-" and self._text[self._position + 1 :][:1] not in ("]", ""):
                self._next()
                last = self._next()
                if last < character or last == "\\":
                    raise BadPattern(f"{character}-{last} is no range")
                tests.append(lambda c, first=character, last=last: first <= c <= last)  # type: ignore[misc]
            else:
                tests.append(lambda c, only=character: c == only)  # type: ignore[misc]
        self._next()
        return lambda c: any(test(c) for test in tests) is not negated

"""As much of PromQL as the dashboard and the alerts use: which series a query asks for.

What the grammar here does not know is refused, so that a slip of the pen is found as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["Query", "Selector", "parse"]

AGGREGATIONS: Final = frozenset({"sum", "max", "min", "count", "topk"})
FUNCTIONS: Final = frozenset({"rate", "increase", "histogram_quantile", "clamp_min", "time"})
_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<string>"[^"]*") | (?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])
    | (?P<number>\d+(?:\.\d+)?) | (?P<word>[a-zA-Z_:][\w:]*)
    | (?P<operator>[=!]~|[=!<>]=|[-+*/<>=]) | (?P<mark>[(){},]) )""",
    re.VERBOSE,
)
_BINARY: Final = frozenset({"-", "+", "*", "/", ">", "<", ">=", "<=", "==", "!="})


class Selector(NamedTuple):
    """A metric, and what its labels have to be: label, operator, value."""

    metric: str
    matchers: Sequence[tuple[str, str, str]] = ()

    def takes(self, metric: str, labels: Mapping[str, str]) -> bool:
        """Whether it selects a series."""
        return metric == self.metric and all(self._fits(labels, *one) for one in self.matchers)

    @staticmethod
    def _fits(labels: Mapping[str, str], label: str, operator: str, value: str) -> bool:
        found = labels.get(label, "")
        is_so = bool(re.fullmatch(value, found)) if "~" in operator else found == value
        return is_so != operator.startswith("!")


@dataclass
class Query:
    """What a query names."""

    selectors: list[Selector] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    """Those by which it groups and matches."""


def parse(text: str) -> Query:
    """Read a query. Raises `ValueError` where it is none."""
    parser = _Parser(text)
    parser.expression()
    if parser.kind:
        raise ValueError(f"{parser.text!r} is left of {text}")
    return parser.query


class _Parser:
    def __init__(self, query: str) -> None:
        self.query = Query()
        self._rest = query
        self._advance()

    def expression(self) -> None:
        """Operands with operators between them; which binds more does not matter here."""
        self._operand()
        while self.text in _BINARY:
            self._advance()
            self._matching()
            self._operand()

    def _operand(self) -> None:
        if self.kind == "number":
            self._advance()
        elif self.text == "(":
            self._arguments()
        elif self.kind == "word":
            self._call(self._advance())
        else:
            raise ValueError(f"{self.text!r} is no operand")
        if self.kind == "range":
            self._advance()

    def _call(self, name: str) -> None:
        if name in AGGREGATIONS:
            if self.text == "by":
                self._advance()
                self._labels()
            self._arguments()
        elif self.text == "(":
            if name not in FUNCTIONS:
                raise ValueError(f"{name} is no function that is known here")
            self._arguments()
        else:
            self.query.selectors.append(Selector(name, self._matchers()))

    def _arguments(self) -> None:
        self._take("(")
        while self.text != ")":
            self.expression()
            if self.text != ")":
                self._take(",")
        self._take(")")

    def _matching(self) -> None:
        if self.text == "on":
            self._advance()
            self._labels()
            if self.text in ("group_left", "group_right"):
                self._advance()
                self._labels()

    def _labels(self) -> None:
        self._take("(")
        while self.text != ")":
            self.query.labels.add(self._advance())
            if self.text != ")":
                self._take(",")
        self._take(")")

    def _matchers(self) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        if self.text != "{":
            return found
        self._take("{")
        while self.text != "}":
            label, operator, value = self._advance(), self._advance(), self._advance()
            found.append((label, operator, value.strip('"')))
            if self.text != "}":
                self._take(",")
        self._take("}")
        return found

    def _take(self, text: str) -> None:
        if self.text != text:
            raise ValueError(f"{self.text!r} stands where {text!r} should")
        self._advance()

    def _advance(self) -> str:
        """Go to the next token; returns the one that was there."""
        before = getattr(self, "text", "")
        found = _TOKEN.match(self._rest)
        if found is None:
            if self._rest.strip():
                raise ValueError(f"no token begins at {self._rest[:20]!r}")
            self.kind, self.text, self._rest = "", "", ""
            return before
        self.kind, self.text = str(found.lastgroup), found.group().strip()
        self._rest = self._rest[found.end() :]
        return before

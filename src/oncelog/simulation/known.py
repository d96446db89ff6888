"""Lists known defects: findings that do not fail a run, because an open issue is about each.

The list is data, ``known_defects.toml``: a pattern for the kind and the detail of a finding, the
faults that must have struck before, the issue, and a plan that shows it. The fix of a defect
deletes its entry. A finding that fits no entry fails the run.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["KnownDefect", "RunFacts", "known_as", "known_defects"]

FILE: Final = "known_defects.toml"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that a known defect may depend on: the kinds of faults, and the flushing."""

    faults: frozenset[str]
    flushed: bool


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """One entry. `needs`: all these faults have struck; "a|b" means either of the two."""

    name: str
    kind: str
    detail: str
    needs: tuple[str, ...]
    flushed: bool | None
    """Whether every message is flushed in the runs that it applies to; None: in all."""
    issue: int
    plan: str
    """A file in tests/simulation/found."""

    def explains(self, kind: str, detail: str, run: RunFacts) -> bool:
        """Return whether the finding is this defect."""
        if not any(fnmatch.fnmatchcase(kind, one) for one in self.kind.split("|")):
            return False
        if not fnmatch.fnmatchcase(detail, self.detail):
            return False
        if self.flushed is not None and self.flushed != run.flushed:
            return False
        struck = run.faults
        return all(struck.intersection(need.split("|")) for need in self.needs)


@cache
def known_defects() -> tuple[KnownDefect, ...]:
    """Return the list of known defects."""
    table = tomllib.loads(files("oncelog.simulation").joinpath(FILE).read_text("utf-8"))
    return tuple(
        KnownDefect(
            entry["name"],
            entry["kind"],
            entry.get("detail", "*"),
            tuple(entry.get("needs", ())),
            entry.get("flushed"),
            entry["issue"],
            entry["plan"],
        )
        for entry in table.get("defect", [])
    )


def known_as(
    kind: str, detail: str, run: RunFacts, defects: Iterable[KnownDefect]
) -> KnownDefect | None:
    """Return the known defect that explains a finding, None if there is none."""
    return next((defect for defect in defects if defect.explains(kind, detail, run)), None)

"""Known defects: what a run may find without failing, because an open issue will mend it.

The list is data, ``known_defects.toml``: a pattern for the kind and the detail of a finding, the
faults without which it must not occur, the issue, and a seed that shows it. The issue that mends a
defect deletes its entry. A finding that fits no entry fails the run.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from oncelog.simulation.checkers import Anomaly

__all__ = ["KnownDefect", "Sorted", "known_defects", "sort_findings"]

FILE: Final = "known_defects.toml"


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """One entry. `needs`: at least one of these faults has struck before the finding."""

    name: str
    kind: str
    detail: str
    needs: tuple[str, ...]
    issue: int
    seed: str

    def explains(self, anomaly: Anomaly, faults: Iterable[tuple[float, str]]) -> bool:
        """Whether the finding is this defect."""
        if not fnmatch.fnmatchcase(anomaly.kind, self.kind):
            return False
        if not fnmatch.fnmatchcase(anomaly.detail, self.detail):
            return False
        return not self.needs or any(kind in self.needs for _, kind in faults)


@dataclass(frozen=True, slots=True)
class Sorted:
    """A run's findings: not promised, known, and those that fail it."""

    allowed: list[Anomaly]
    known: list[tuple[KnownDefect, Anomaly]]
    unknown: list[Anomaly]


def known_defects() -> tuple[KnownDefect, ...]:
    """The list as it is shipped."""
    table = tomllib.loads(files("oncelog.simulation").joinpath(FILE).read_text("utf-8"))
    return tuple(
        KnownDefect(
            entry["name"],
            entry["kind"],
            entry.get("detail", "*"),
            tuple(entry.get("needs", ())),
            entry["issue"],
            entry["seed"],
        )
        for entry in table.get("defect", [])
    )


def sort_findings(
    anomalies: Iterable[Anomaly],
    faults: Sequence[tuple[float, str]],
    defects: Sequence[KnownDefect],
) -> Sorted:
    """Tell a run's findings apart. `faults` are (time, kind) as they struck."""
    sorted_ = Sorted([], [], [])
    for anomaly in anomalies:
        if anomaly.allowed:
            sorted_.allowed.append(anomaly)
            continue
        for defect in defects:
            if defect.explains(anomaly, faults):
                sorted_.known.append((defect, anomaly))
                break
        else:
            sorted_.unknown.append(anomaly)
    return sorted_

"""Stores a run's results on disk after every row, so that none is lost."""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.gauges import CpuTime
from bench.stats import Figures

Samples = dict[str, list[float]]
"""System -> one figure per round."""

EARLIER_PEER: Final = "4.3.1"
"""The Apache Kafka beside which those runs were made that did not note it."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How a broker came to be warm under one row's load."""

    seconds: float
    first: float
    """Rate of the first window."""
    last: float
    """Rate of the last one."""
    steady: bool
    """Whether its last windows differed by less than the rule says."""


@dataclass
class Results:
    """Everything, by row; figures in the order in which they were first measured."""

    samples: dict[tuple[str, str], Samples] = field(default_factory=dict)
    """By row and figure."""
    cpu: dict[str, Samples] = field(default_factory=lambda: defaultdict(dict))
    """CPU seconds of the broker per unit of work."""
    split: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    """User and system CPU seconds per unit of work, over all rounds together."""
    system_calls: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """System calls of the broker per unit of work."""
    warm_ups: dict[str, dict[str, WarmUp]] = field(default_factory=lambda: defaultdict(dict))
    facts: dict[str, str] = field(default_factory=dict)
    """Of the run: commit, tools, machine."""

    def add(self, row: str, system: str, figures: Figures) -> None:
        """One round's figures."""
        for figure, value in figures.items():
            self.samples.setdefault((row, figure), {}).setdefault(system, []).append(value)

    def add_cpu(self, row: str, system: str, used: CpuTime, amount: float) -> None:
        """Add the broker's CPU time for `amount` units of work in one round."""
        self.cpu[row].setdefault(system, []).append(used.total_s / amount)
        user, system_s, before = self.split[row].get(system, [0.0, 0.0, 0.0])
        self.split[row][system] = [
            user + used.user_s,
            system_s + used.system_s,
            before + amount,
        ]

    def forget(self, row: str) -> None:
        """Drop a row, because it is measured anew or was not measured to its end."""
        for key in [key for key in self.samples if key[0] == row]:
            del self.samples[key]
        for part in (self.cpu, self.split, self.system_calls, self.warm_ups):
            part.pop(row, None)

    def only(self, *prefixes: str) -> "Results":
        """The rows whose keys begin with one of them, and the facts."""
        made = Results(facts=dict(self.facts))
        made.samples = {key: by for key, by in self.samples.items() if key[0].startswith(prefixes)}
        for part in ("cpu", "split", "system_calls", "warm_ups"):
            by_row = {
                row: by for row, by in getattr(self, part).items() if row.startswith(prefixes)
            }
            getattr(made, part).update(by_row)
        return made

    def rounds(self) -> int:
        """The most rounds that any figure has."""
        return max((len(v) for by in self.samples.values() for v in by.values()), default=0)

    def save(self, path: Path) -> None:
        """Write it all to a file."""
        document: dict[str, Any] = {
            "facts": self.facts,
            "samples": [[*key, by] for key, by in self.samples.items()],
            "cpu": self.cpu,
            "split": self.split,
            "system_calls": self.system_calls,
            "warm_ups": {
                row: {system: asdict(one) for system, one in by.items()}
                for row, by in self.warm_ups.items()
            },
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1))

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read what `save` wrote."""
        document = json.loads(path.read_text())
        made = cls(facts=document["facts"])
        made.samples = {(row, figure): by for row, figure, by in document["samples"]}
        made.cpu.update(document["cpu"])
        made.split.update(document["split"])
        made.system_calls.update(document["system_calls"])
        for row, by in document["warm_ups"].items():
            made.warm_ups[row] = {system: WarmUp(**one) for system, one in by.items()}
        return made


def figure_at(name: str, system: str) -> str:
    """A figure's name with the broker it was measured at."""
    return f"{name} on {system}"

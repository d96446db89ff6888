"""Searches with memory: keeps the plans whose runs reached something new, and changes them.

A fresh seed finds what is likely; a plan that came to a rare state is near others that come to
rarer ones. What counts as reached is `oncelog.simulation.reach`, how a plan is changed is
`oncelog.simulation.mutate`. Run number i is planned from what the runs up to i - `LAG_RUNS`
reached, in their order, so one seed decides the whole search, whatever the number of processes.

Sources: Zalewski, "American Fuzzy Lop" (2013), for the idea of a corpus guided by coverage.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from oncelog.simulation.campaign import (
    RUNS_PER_PROCESS,
    Campaign,
    RunFinding,
    Summary,
    keep_what_is_there,
    run_plan,
)
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.mutate import mutate
from oncelog.simulation.plan import Plan, from_json, part_rng, to_json
from oncelog.simulation.progress import Display

__all__ = ["Corpus", "Search", "run_search"]

FIRST_YIELD: Final = 10.0
"""New names a run that are expected of either kind of plan before there is a result."""
YIELD_SHARE: Final = 0.2
"""The weight of the newest run in the average of its kind."""
CHANCE_MIN: Final = 0.1
"""Neither fresh nor changed plans become rarer than that, once there is one to change."""
LAG_RUNS: Final = 8
"""Runs that may be under way while the next plan is made."""
REACHED_FILE: Final = "reached.txt"

Start = Callable[[Plan], Callable[[], Summary]]
"""Starts a run; the returned function waits for its end."""


class Corpus:
    """The kept plans, and the names that any run reached. They are files in `folder`, if given.

    Raises `ValueError` for a file there that is no plan.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.plans: list[Plan] = []
        self.reached: set[str] = set()
        self._folder = folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            try:
                self.plans.append(from_json(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path} is not a plan: {error}") from None
        names = folder / REACHED_FILE
        if names.exists():
            self.reached.update(names.read_text(encoding="utf-8").splitlines())

    def add(self, plan: Plan, reached: frozenset[str]) -> int:
        """Keep the plan if its run reached something new; return how many names were new."""
        new = sorted(reached - self.reached)
        if new:
            self.plans.append(plan)
            self.reached.update(new)
            self._write(plan, new)
        return len(new)

    def _write(self, plan: Plan, new: list[str]) -> None:
        if self._folder is None:
            return
        text = to_json(plan) + "\n"
        name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        (self._folder / f"{name}.json").write_text(text, encoding="utf-8")
        with (self._folder / REACHED_FILE).open("a", encoding="utf-8") as names:
            names.writelines(f"{line}\n" for line in new)


@dataclass(frozen=True, slots=True)
class _Drawn:
    plan: Plan
    is_mutated: bool


@dataclass
class Search:
    """A search of one seed; its state and what it found."""

    seed: int
    profile: str | None = None
    duration_s: float | None = None
    corpus: Corpus = field(default_factory=Corpus)
    campaign: Campaign = field(default_factory=Campaign)
    plans: dict[str, Plan] = field(default_factory=dict)
    """Signature of an unknown finding -> the plan of the first run that shows it."""
    curve: list[int] = field(default_factory=list)
    """How many names had been reached after each run."""
    yields: dict[bool, float] = field(
        default_factory=lambda: {False: FIRST_YIELD, True: FIRST_YIELD}
    )
    """Of fresh (False) and of changed plans: new names a run, an average of the latest ones."""
    mutated_count: int = 0
    names_by_mutated: int = 0
    findings_by_mutated: int = 0

    @property
    def mutated_chance(self) -> float:
        """Return the share of plans to change: as large as their share of what is new lately."""
        share = self.yields[True] / max(sum(self.yields.values()), 1e-9)
        return min(max(share, CHANCE_MIN), 1.0 - CHANCE_MIN)

    def draw(self, index: int) -> _Drawn:
        """Return the plan of a run: a kept one that is changed, or that of a fresh seed."""
        rng = part_rng(self.seed, f"search {index}")
        fresh = draw_plan(self.seed + index, self.profile, self.duration_s)
        kept = [p for p in self.corpus.plans if self.profile in (None, p.profile)]
        if not kept or rng.random() >= self.mutated_chance:
            return _Drawn(fresh, False)
        plan = rng.choice(kept)
        alike = [p for p in kept if (p.profile, p.brokers) == (plan.profile, plan.brokers)]
        donor = rng.choice(alike)
        if donor is plan or rng.random() < 0.5:
            donor = draw_plan(self.seed + index, plan.profile, self.duration_s, plan.brokers)
        return _Drawn(mutate(rng, plan, donor), True)

    def add(self, drawn: _Drawn, summary: Summary) -> list[RunFinding]:
        """Add a run that is over; return its findings that are new and no known defect."""
        new_count = self.corpus.add(drawn.plan, summary.reached)
        new = self.campaign.add(summary)
        before = self.yields[drawn.is_mutated]
        self.yields[drawn.is_mutated] = before + YIELD_SHARE * (new_count - before)
        self.curve.append(len(self.corpus.reached))
        self.plans |= {finding.signature: drawn.plan for finding in new}
        if drawn.is_mutated:
            self.mutated_count += 1
            self.names_by_mutated += new_count
            self.findings_by_mutated += len(new)
        return new

    def run(self, run_count: int, start: Start) -> Iterator[tuple[Summary, list[RunFinding]]]:
        """Carry out so many runs; yield each summary with its new findings, in order."""
        under_way: deque[tuple[_Drawn, Callable[[], Summary]]] = deque()
        for index in range(run_count + LAG_RUNS):
            if index >= LAG_RUNS and under_way:
                drawn, wait = under_way.popleft()
                summary = wait()
                yield summary, self.add(drawn, summary)
            if index < run_count:
                drawn = self.draw(index)
                under_way.append((drawn, start(drawn.plan)))

    def tenths(self) -> dict[int, int]:
        """Return how many names had been reached after each tenth of the runs."""
        count = len(self.curve)
        after = sorted({max(1, count * tenth // 10) for tenth in range(1, 11)}) if count else []
        return {runs: self.curve[runs - 1] for runs in after}

    def facts(self) -> dict[str, object]:
        """Return what the search adds up to, for a summary."""
        return {
            "reached": len(self.corpus.reached),
            "reached_after_runs": {str(runs): count for runs, count in self.tenths().items()},
            "plans_kept": len(self.corpus.plans),
            "mutated_runs": self.mutated_count,
            "names_by_mutated": self.names_by_mutated,
            "findings_by_mutated": self.findings_by_mutated,
        }


def run_search(
    search: Search,
    run_count: int,
    jobs: int,
    tell: Callable[[Plan, RunFinding], None],
) -> None:
    """Carry out a search and show its progress; `tell` is called with each new finding."""
    with _runs(jobs) as start, Display(run_count) as display:
        for summary, new in search.run(run_count, start):
            for finding in new:
                tell(search.plans[finding.signature], finding)
            display.update(summary)


@contextmanager
def _runs(jobs: int) -> Iterator[Start]:
    if jobs == 1:
        yield lambda plan: partial(run_plan, plan)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, keep_what_is_there, maxtasksperchild=RUNS_PER_PROCESS) as pool:
        yield lambda plan: pool.apply_async(run_plan, (plan,)).get
